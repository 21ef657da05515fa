//! Files that were set aside when other content replaced a database: `NAME.before-SCN` beside it.
//!
//! A standby makes one when a full resync image replaces its file and may lack redo that the file holds; a primary
//! makes one when an operator has decided in favour of the redo (`resolve`). The control file lists them; nothing else
//! is ever removed. `[kept]` of the configuration limits them, and the alert log names each file that is removed.
//! [`to_remove`] decides.

use crate::config::error::InstanceError;
use crate::config::settings::KeptConfig;
use crate::context::environment::Environment;
use crate::state::control::KeptFile;
use crate::state::now::now_us;
use standfast_apply::Kept;
use standfast_io::outside;
use standfast_session::{journal_path, wal_path};
use standfast_types::Hint;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

const DAY_US: u64 = 86_400_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Days,
    Files,
    Bytes,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Limit::Days => "[kept] days",
            Limit::Files => "[kept] files_max",
            Limit::Bytes => "[kept] bytes_max",
        })
    }
}

/// Returns the files to remove, by index in `files`, with the limit that applies. The newest file of a database is
/// removed for its age only.
pub fn to_remove(files: &[KeptFile], config: &KeptConfig, now_us: u64) -> Vec<(usize, Limit)> {
    let is_old = |file: &KeptFile| now_us.saturating_sub(file.kept_us) > config.days * DAY_US;
    let mut by_age: Vec<usize> = (0..files.len()).collect();
    by_age.sort_by_key(|at| (files[*at].kept_us, files[*at].scn));
    let mut removed: Vec<(usize, Limit)> =
        by_age.iter().copied().filter(|at| is_old(&files[*at])).map(|at| (at, Limit::Days)).collect();
    let mut left: Vec<usize> = by_age.into_iter().filter(|at| !is_old(&files[*at])).collect();
    loop {
        let bytes: u64 = left.iter().map(|at| files[*at].bytes).sum();
        let limit = if left.len() > config.files_max {
            Limit::Files
        } else if bytes > config.bytes_max {
            Limit::Bytes
        } else {
            return removed;
        };
        let is_newest = |place: usize| {
            let name = &files[left[place]].name;
            left[place + 1..].iter().all(|at| files[*at].name != *name)
        };
        let Some(oldest) = (0..left.len()).find(|place| !is_newest(*place)) else { return removed };
        removed.push((left.remove(oldest), limit));
    }
}

/// Whether a file is named like a kept file, or like a file that is being made for a database.
pub fn is_named_so(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some((_, rest)) = name.rsplit_once(".before-") else { return name.ends_with(REBUILDING) };
    let digits = rest.trim_end_matches("-wal").trim_end_matches("-shm").trim_end_matches(".part");
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Suffix of the name of a database that is being rebuilt from the redo.
pub const REBUILDING: &str = ".rebuilding";

/// Records and reports what apply has kept.
pub fn note(environment: &Environment, name: &str, kept: &Kept) {
    if environment.of_control(|control| control.kept_files.iter().any(|file| file.path == kept.path)) {
        return;
    }
    let file = KeptFile {
        name: name.to_owned(),
        path: kept.path.clone(),
        scn: kept.scn,
        bytes: kept.bytes,
        kept_us: now_us(),
    };
    let text = format!(
        "database {name}: an image replaces it as of SCN {} that may lack redo which was here, because the primary's operator has \
         decided for a file; what was here is kept as {}",
        kept.scn,
        kept.path.display()
    );
    environment.alert.say(text);
    if let Err(error) = environment.update_control(|control| control.note_kept(file)) {
        environment.alert.say(format!("{} stays unlisted: {}", kept.path.display(), error.in_one_line()));
    }
}

/// Removes what the limits no longer allow. Called periodically.
pub fn look(environment: &Environment) {
    let files = environment.of_control(|control| control.kept_files.clone());
    for (at, limit) in to_remove(&files, &environment.config.kept, now_us()) {
        let file = &files[at];
        match remove_file(environment, file) {
            Ok(()) => environment.alert.say(format!(
                "database {}: {} is not kept any longer: {limit}",
                file.name,
                file.path.display()
            )),
            // Retried at the next poll; the list shows that the file is still there.
            Err(_) => continue,
        }
    }
}

fn remove_file(environment: &Environment, file: &KeptFile) -> Result<(), InstanceError> {
    for path in [wal_path(&file.path), journal_path(&file.path), file.path.clone()] {
        outside::remove(&path).map_err(InstanceError::io("remove", path))?;
    }
    environment.update_control(|control| control.kept_files.retain(|other| other.path != file.path))
}

pub fn files(environment: &Environment) -> Vec<KeptFile> {
    environment.of_control(|control| control.kept_files.clone())
}

/// Removes a kept file, by its path or its file name.
///
/// # Errors
/// When there is no such kept file, or it cannot be removed.
pub fn remove(environment: &Environment, wanted: &str) -> Result<PathBuf, InstanceError> {
    let files = files(environment);
    let is_it = |file: &&KeptFile| {
        file.path == Path::new(wanted) || file.path.file_name().is_some_and(|name| name == wanted)
    };
    let Some(file) = files.iter().find(is_it) else {
        let what = format!("{wanted} is no file that this instance keeps");
        return Err(InstanceError::refused(what, "`standfast database kept` lists them"));
    };
    remove_file(environment, file)?;
    environment.alert.say(format!("{} removed by command", file.path.display()));
    Ok(file.path.clone())
}

/// Returns the files with the most recently kept first.
pub fn sorted(mut files: Vec<KeptFile>) -> Vec<KeptFile> {
    files.sort_by_key(|file| Reverse(file.kept_us));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::Scn;

    fn file(name: &str, day: u64, bytes: u64) -> KeptFile {
        let path = PathBuf::from(format!("/db/{name}.before-{day}"));
        KeptFile { name: name.into(), path, scn: Scn(day), bytes, kept_us: day * DAY_US }
    }

    fn config(files_max: usize, bytes_max: u64, days: u64) -> KeptConfig {
        KeptConfig { files_max, bytes_max, days, free_bytes_min: 0 }
    }

    #[test]
    fn nothing_is_removed_within_the_limits() {
        let files = [file("a", 1, 10), file("a", 2, 10), file("b", 3, 10)];
        assert_eq!(to_remove(&files, &config(3, 30, 9), 10 * DAY_US), []);
    }

    #[test]
    fn oldest_kept_files_go_first_and_the_newest_per_database_stays() {
        let files = [file("a", 3, 10), file("a", 1, 10), file("b", 2, 10), file("a", 2, 10)];
        let removed = to_remove(&files, &config(1, 1000, 90), 10 * DAY_US);
        assert_eq!(removed, [(1, Limit::Files), (3, Limit::Files)]);
        let removed = to_remove(&files, &config(9, 30, 90), 10 * DAY_US);
        assert_eq!(removed, [(1, Limit::Bytes)]);
    }

    #[test]
    fn age_limit_removes_even_the_newest_file() {
        let files = [file("a", 1, 10), file("b", 8, 10)];
        assert_eq!(to_remove(&files, &config(9, 1000, 5), 10 * DAY_US), [(0, Limit::Days)]);
    }

    #[test]
    fn kept_files_are_recognised_by_their_names() {
        let so = |name: &str| is_named_so(&Path::new("/db").join(name));
        assert!(so("app.db.before-77") && so("app.db.before-77-wal") && so("app.db.rebuilding"));
        assert!(!so("app.db") && !so("app.db.before-") && !so("app.db.before-tuesday"));
    }
}
