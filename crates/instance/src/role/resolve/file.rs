//! The file of an offline database: what it is, and what it holds compared with the redo.

use super::Offline;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use serde::{Deserialize, Serialize};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::open_database::{open_guarded, recover_index};
use standfast_environment::state::control::{DatabaseRecord, LastingIdentity};
use standfast_io::outside;
use standfast_log::RecordReader;
use standfast_primary::open::divergence::{Comparison, Divergence};
use standfast_primary::open::evidence::Pages;
use standfast_primary::open::protect;
use standfast_primary::open::reconcile;
use standfast_session::wal_path;
use standfast_sqlite_wal::guard::register_guard_vfs;
use standfast_sqlite_wal::state::PageFound;
use standfast_types::{Hint, PageNo, Scn};
use std::os::unix::fs::MetadataExt;

/// Limit of redo read to find out what a file holds, beyond the redo that the database needs anyway.
const COMPARED_BYTES_MAX: u64 = 1 << 30;

/// State of the file of an offline database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFound {
    pub exists: bool,
    /// Whether it is the file that the instance last had open, by inode and creation time; `None`: unknown.
    pub is_known: Option<bool>,
    pub bytes: u64,
    /// Last modification, microseconds since the Unix epoch.
    pub modified_us: u64,
    /// Size of its WAL; 0 if there is none.
    pub wal_bytes: u64,
    /// Last modification of the WAL, microseconds since the Unix epoch.
    pub wal_modified_us: Option<u64>,
    /// State of the file at its last recorded file SCN.
    pub noted: Option<Noted>,
    /// It is not in WAL mode, like a copy made by `VACUUM INTO`.
    pub is_not_in_wal_mode: bool,
    /// Why it cannot be used as it is.
    pub unusable: Option<String>,
}

/// A file SCN and the state of the file at that time, see [`FileFound::noted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    pub scn: Scn,
    pub bytes: u64,
    /// Last modification at that time, microseconds since the Unix epoch.
    pub modified_us: u64,
}

impl FileFound {
    /// Looks at the file of a database.
    pub(super) fn of(environment: &Environment, record: &DatabaseRecord) -> FileFound {
        let microseconds = |metadata: &std::fs::Metadata| {
            u64::try_from(metadata.mtime()).unwrap_or(0) * 1_000_000 + metadata.mtime_nsec() as u64 / 1000
        };
        let control = environment.control();
        let noted = control.whole_file(record.id).map(|whole| Noted {
            scn: whole.scn,
            bytes: whole.stamp.bytes,
            modified_us: whole.stamp.modified_ns / 1000,
        });
        let wal = std::fs::metadata(wal_path(&record.path)).ok();
        let mut found = FileFound {
            noted,
            wal_bytes: wal.as_ref().map_or(0, std::fs::Metadata::len),
            wal_modified_us: wal.as_ref().map(microseconds),
            ..FileFound::default()
        };
        let metadata = match std::fs::metadata(&record.path) {
            Ok(metadata) => metadata,
            Err(error) => {
                found.unusable = Some(format!("{}: {error}", record.path.display()));
                return found;
            }
        };
        (found.exists, found.bytes, found.modified_us) = (true, metadata.len(), microseconds(&metadata));
        let known = control.known_file(record.id);
        let identity = LastingIdentity::of(&record.path).ok();
        found.is_known = known.zip(identity).map(|(known, found)| known.identity.may_be(&found));
        found.is_not_in_wal_mode = protect::is_in_wal_mode(&record.path).is_ok_and(|is_in| !is_in);
        found.unusable = match protect::page_size(&record.path) {
            Err(error) => Some(error.in_one_line()),
            Ok(size) if size != record.page_size => Some(format!(
                "its page size is {}, and that of the database {}",
                size.bytes(),
                record.page_size.bytes()
            )),
            Ok(_) => None,
        };
        found
    }

    /// Compares the content of the file with the redo, as far back as necessary to explain all of its pages.
    ///
    /// # Errors
    /// Why that is not possible, as text.
    pub(super) fn compare(&self, environment: &Environment, offline: &Offline) -> Result<Divergence, String> {
        if let Some(why) = &self.unusable {
            return Err(why.clone());
        }
        let record = &offline.record;
        let words = |error: InstanceError| error.in_one_line();
        let connection = open_to_compare(record, self, environment.vfs_base.as_deref()).map_err(words)?;
        connection.execute_batch("BEGIN").map_err(|error| error.to_string())?;
        recover_index(&connection).map_err(words)?;
        let earlier = reconcile::boundaries_before(&offline.log, offline.from);
        look_back((offline.from, offline.end), &earlier, |from| compare_from(offline, from, &connection))
    }
}

/// Compares from `from` on and, while that does not explain the file, from ever earlier positions, each time twice as many
/// further back. Returns the last comparison that was possible: earlier redo may be gone.
fn look_back(
    (mut from, end): (Scn, Scn),
    earlier: &[Scn],
    mut compare: impl FnMut(Scn) -> Result<Divergence, String>,
) -> Result<Divergence, String> {
    let (mut next, mut step) = (0, 1);
    let mut last = None;
    loop {
        let found = match (compare(from), last) {
            (Err(_), Some(last)) => return Ok(last),
            (found, _) => found?,
        };
        let is_explained = found.unexplained == 0 && found.commits.number > 0;
        let is_enough = end.bytes_since(from) > COMPARED_BYTES_MAX;
        if is_explained || is_enough || next >= earlier.len() {
            return Ok(found);
        }
        let index = (next + step - 1).min(earlier.len() - 1);
        (from, next, step, last) = (earlier[index], index + 1, step * 2, Some(found));
    }
}

/// Opens a file that is not in WAL mode read-only, so that it does not change.
fn open_to_compare(
    record: &DatabaseRecord,
    file: &FileFound,
    vfs_base: Option<&str>,
) -> Result<Connection, InstanceError> {
    if !file.is_not_in_wal_mode {
        return open_guarded(&record.path, vfs_base);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    outside::look(&record.path).map_err(InstanceError::io("open", &record.path))?;
    let vfs = register_guard_vfs(vfs_base)?;
    let connection = Connection::open_with_flags_and_vfs(&record.path, flags, vfs.as_str())?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    Ok(connection)
}

fn compare_from(offline: &Offline, from: Scn, connection: &Connection) -> Result<Divergence, String> {
    let record = &offline.record;
    let pages = PagesOf { connection };
    let mut comparison = Comparison::new(record.id, record.page_size, record.start_scn, pages);
    let mut reader = RecordReader::new(offline.log.clone(), from, offline.end);
    while let Some((bytes, end)) = reader.next_record().map_err(|error| error.in_one_line())? {
        comparison.take(bytes, end)?;
    }
    Ok(comparison.finish(from))
}

/// The pages that a read transaction sees.
struct PagesOf<'a> {
    connection: &'a Connection,
}

impl Pages for PagesOf<'_> {
    fn read(&mut self, page_no: PageNo, image: &mut [u8]) -> std::io::Result<PageFound> {
        let sql = "SELECT data FROM sqlite_dbpage('main') WHERE pgno = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(std::io::Error::other)?;
        let copied = statement.query_row([page_no], |row| {
            let data = row.get_ref(0)?.as_blob()?;
            let is_page = data.len() == image.len();
            if is_page {
                image.copy_from_slice(data);
            }
            Ok(is_page)
        });
        match copied.optional().map_err(std::io::Error::other)? {
            Some(true) => Ok(PageFound::There),
            _ => Ok(PageFound::Absent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 4096 + 1_000;

    /// Looks back over positions that are 10 apart. Returns the result, and the positions from which was compared.
    fn looked_back(
        positions: u64,
        answer: impl Fn(u64) -> Option<(u64, u64)>,
    ) -> (Result<Scn, String>, Vec<u64>) {
        let earlier: Vec<Scn> = (1..=positions).map(|index| Scn(END - 10 * (index + 1))).collect();
        let mut from_all = Vec::new();
        let found = look_back((Scn(END - 10), Scn(END)), &earlier, |from| {
            from_all.push((END - from.0) / 10);
            let (unexplained, commits) = answer((END - from.0) / 10).ok_or("it is gone")?;
            let mut found = Divergence { from, unexplained, ..Divergence::default() };
            found.commits.number = commits;
            Ok(found)
        });
        (found.map(|found| found.from), from_all)
    }

    fn at(back: u64) -> Result<Scn, String> {
        Ok(Scn(END - 10 * back))
    }

    #[test]
    fn file_is_compared_further_back_until_it_is_explained() {
        assert_eq!(looked_back(40, |_| Some((0, 1))), (at(1), vec![1]), "the redo that it needs is enough");
        let explained_from = |enough: u64| move |back| Some(if back >= enough { (0, 1) } else { (3, 1) });
        assert_eq!(looked_back(40, explained_from(9)), (at(16), vec![1, 2, 4, 8, 16]));
        // Without a commit nothing is known of the file, though nothing contradicts it.
        let first_commit = |back| Some((0, u64::from(back >= 3)));
        assert_eq!(looked_back(40, first_commit), (at(4), vec![1, 2, 4]));
        // The oldest position is the last.
        assert_eq!(looked_back(5, |_| Some((3, 1))), (at(6), vec![1, 2, 4, 6]));
        assert_eq!(looked_back(0, |_| Some((3, 1))), (at(1), vec![1]));
    }

    #[test]
    fn redo_that_is_gone_ends_the_search_with_what_was_found() {
        let kept = |until: u64| move |back| (back <= until).then_some((3, 1));
        assert_eq!(looked_back(40, kept(5)), (at(4), vec![1, 2, 4, 8]));
        assert_eq!(looked_back(40, kept(0)), (Err("it is gone".into()), vec![1]));
    }

    #[test]
    fn search_ends_once_enough_redo_was_read() {
        let end = 3 * COMPARED_BYTES_MAX;
        for (back, times) in [(COMPARED_BYTES_MAX, 2), (COMPARED_BYTES_MAX + 1, 1)] {
            let mut compared = 0;
            let earlier = [Scn(end - 2 * COMPARED_BYTES_MAX), Scn(4096)];
            let found = look_back((Scn(end - back), Scn(end)), &earlier, |from| {
                compared += 1;
                Ok(Divergence { from, unexplained: 3, ..Divergence::default() })
            });
            assert_eq!((compared, found.is_ok()), (times, true), "{back}");
        }
    }
}
