//! Keeps the content of a database in a file beside it, before a full resync image replaces it that may lack some of
//! it.
//!
//! The file is a copy: readers have the database open under its name, and would read a renamed file for ever. The copy
//! is written under another name and renamed once it is complete and durable.

use crate::ApplyError;
use crate::standby_file::StandbyFile;
use standfast_io::{DirectDisk, Disk, outside};
use standfast_types::Scn;
use std::io::{BufWriter, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// Content of a database, kept before a full resync image replaced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The file, a database by itself.
    pub path: PathBuf,
    pub bytes: u64,
    /// End of the image that replaced it.
    pub scn: Scn,
}

/// Returns where the content of the database at `path` is kept when an image that ends at `scn` replaces it.
pub fn path_of_kept(path: &Path, scn: Scn) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".before-{scn}"));
    path.with_file_name(name)
}

/// Copies the committed content of `file` to `path`, and leaves `free_bytes` free on the volume.
///
/// # Errors
/// `NotKept`; nothing is left at `path` then.
pub fn keep(file: &StandbyFile, path: &Path, free_bytes: u64) -> std::result::Result<(), ApplyError> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let kept = room_for(file, path, free_bytes)
        .and_then(|()| copy(file, &part))
        .and_then(|()| outside::rename_new(&part, path));
    kept.map_err(|source| {
        let _ = outside::remove(&part);
        ApplyError::NotKept { name: file.plan().name.clone(), path: path.to_owned(), source }
    })
}

fn room_for(file: &StandbyFile, path: &Path, free_bytes: u64) -> Result<()> {
    let bytes = u64::from(file.pages()) * file.page_size().bytes() as u64;
    let free = DirectDisk.free_bytes(path.parent().unwrap_or(Path::new(".")))?;
    if free < bytes.saturating_add(free_bytes) {
        let text = format!("it takes {bytes} bytes, and {free_bytes} of {free} free ones are to stay free");
        return Err(Error::new(ErrorKind::StorageFull, text));
    }
    Ok(())
}

fn copy(file: &StandbyFile, part: &Path) -> Result<()> {
    // Left by an interrupted attempt.
    outside::remove(part)?;
    let out = outside::create_new(part, 0o600)?;
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let mut page = vec![0; file.page_size().bytes()];
    for page_no in 1..=file.pages() {
        // The page of the lock byte is never read.
        if page_no == file.lock_page() || !file.read_page(page_no, &mut page).map_err(Error::other)? {
            page.fill(0);
        }
        out.write_all(&page)?;
    }
    out.into_inner().map_err(|error| error.into_error())?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_is_named_after_its_database_and_the_image() {
        let path = path_of_kept(Path::new("/db/app.db"), Scn(77));
        assert_eq!(path, Path::new("/db/app.db.before-77"));
    }
}
