//! Rollback journals beside a database in WAL mode.
//!
//! SQLite looks for one whenever it opens a database. It rolls a journal that it takes for the rest of a transaction
//! ("hot") back into the database, and deletes the super-journal named there, a path of any length to anywhere
//! (<https://www.sqlite.org/fileformat2.html#the_rollback_journal>). A user who may write to the directory could
//! thereby make the instance do both with the instance's rights. SQLite waits for a journal that is a FIFO. The
//! instance avoids all of this: its connections see no journal at all (the guard VFS), and a database with a journal
//! that could be hot is not opened.

use standfast_io::outside::Folder;
use standfast_session::journal_path;
use standfast_types::Hint;
use std::borrow::Cow;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Puts a new database into WAL mode through the guard VFS. `journal_mode=OFF` comes first, because the change would be
/// journalled, and the guard VFS knows no journals.
pub const INTO_WAL_MODE: &str = "PRAGMA journal_mode=OFF; PRAGMA journal_mode=WAL";

/// A rollback journal that may be hot, or that is no regular file.
#[derive(Debug, thiserror::Error)]
pub enum JournalFound {
    /// It may hold the rest of an unfinished transaction.
    #[error("{journal} may hold a transaction that was not finished")]
    Hot { journal: PathBuf, database: PathBuf },
    /// It is a link, a FIFO or a device, or cannot be read.
    #[error("{journal} is no rollback journal of SQLite: {source}")]
    Foreign { journal: PathBuf, source: std::io::Error },
}

impl Hint for JournalFound {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            JournalFound::Hot { database, .. } => format!(
                "if it belongs to the database, its owner rolls the transaction back with `sqlite3 {} \
                         'PRAGMA user_version'`; if not, remove it",
                database.display()
            )
            .into(),
            JournalFound::Foreign { .. } => "remove it".into(),
        })
    }
}

/// Checks that nothing beside `database` is a rollback journal that SQLite would roll back: there is none, or an empty
/// one, or one with a cleared header. Follows no link and waits for nothing.
///
/// # Errors
/// The journal that was found.
pub fn check_no_journal(database: &Path) -> Result<(), JournalFound> {
    let journal = journal_path(database);
    match first_byte(&journal) {
        Ok(None | Some(0)) => Ok(()),
        Ok(Some(_)) => Err(JournalFound::Hot { journal, database: database.to_owned() }),
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(JournalFound::Foreign { journal, source }),
    }
}

/// The byte by which SQLite decides whether a journal is hot (`hasHotJournal`); `None`: the journal is empty.
fn first_byte(path: &Path) -> Result<Option<u8>, std::io::Error> {
    let (folder, name) = Folder::of(path)?;
    let mut byte = [0];
    let read = folder.open_file(name, false)?.read(&mut byte)?;
    Ok((read == 1).then_some(byte[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_testkit::TempDir;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn only_a_harmless_rollback_journal_is_accepted() {
        let directory = TempDir::new("journal").unwrap();
        let database = directory.path().join("app.db");
        let journal = journal_path(&database);
        assert!(check_no_journal(&database).is_ok());
        for harmless in [&[][..], &[0; 512]] {
            std::fs::write(&journal, harmless).unwrap();
            assert!(check_no_journal(&database).is_ok());
        }
        std::fs::write(&journal, [0xd9, 0xd5]).unwrap();
        assert!(matches!(check_no_journal(&database), Err(JournalFound::Hot { .. })));
        std::fs::remove_file(&journal).unwrap();
        std::os::unix::fs::symlink("/dev/null", &journal).unwrap();
        assert!(matches!(check_no_journal(&database), Err(JournalFound::Foreign { .. })));
        std::fs::remove_file(&journal).unwrap();
        let name = CString::new(journal.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(matches!(check_no_journal(&database), Err(JournalFound::Foreign { .. })));
    }
}
