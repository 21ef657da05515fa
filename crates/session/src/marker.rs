//! The small file beside a protected database (`app.db-standfast`) by which a session finds its instance.
//!
//! ```text
//! standfast-marker 1
//! instance=0123456789abcdef0123456789abcdef
//! name=orders-a
//! directory=/var/lib/standfast
//! segment=/dev/shm/standfast-0123456789abcdef0123456789abcdef
//! database=3
//! ```
//! Lines of unknown keys are ignored. It is written by `protect` and removed by `unprotect`.

use std::fmt;
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "standfast-marker 1";
const MARKER_BYTES_MAX: u64 = 64 * 1024;

/// Where the instance of a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Identity of the instance.
    pub instance: [u8; 16],
    /// Its name, for messages.
    pub name: String,
    /// Its directory; the lock file in it tells whether the instance runs.
    pub directory: PathBuf,
    /// Its shared memory.
    pub segment: PathBuf,
    /// Number of the database.
    pub database: u16,
}

/// Why a marker cannot be used.
#[derive(Debug)]
pub enum MarkerError {
    /// It cannot be read.
    Io(std::io::Error),
    /// It is not a marker, or of another version; what is wrong.
    Malformed(&'static str),
}

impl fmt::Display for MarkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MarkerError::Io(error) => write!(f, "cannot read the marker file: {error}"),
            MarkerError::Malformed(why) => write!(f, "malformed marker file: {why}"),
        }
    }
}

impl std::error::Error for MarkerError {}

/// Path of the marker of the database file at `database`.
pub fn marker_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-standfast");
    PathBuf::from(name)
}

impl Marker {
    /// Reads the marker beside `database`; `None` when the database is not protected.
    ///
    /// # Errors
    /// When there is a marker that cannot be used. The caller must then refuse to write.
    pub fn read(database: &Path) -> Result<Option<Marker>, MarkerError> {
        let path = marker_path(database);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(MarkerError::Io(error)),
            Ok(metadata) if metadata.len() > MARKER_BYTES_MAX => {
                return Err(MarkerError::Malformed("too large"));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(&path).map_err(MarkerError::Io)?;
        Marker::parse(&text).map(Some)
    }

    /// Decodes the text of a marker.
    ///
    /// # Errors
    /// `Malformed` with what is missing.
    pub fn parse(text: &str) -> Result<Marker, MarkerError> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(MarkerError::Malformed("the first line is not `standfast-marker 1`"));
        }
        let (mut instance, mut name, mut directory, mut segment, mut database) =
            (None, None, None, None, None);
        for (key, value) in lines.filter_map(|line| line.split_once('=')) {
            match key {
                "instance" => instance = parse_identity(value),
                "name" => name = Some(value.to_owned()),
                "directory" => directory = Some(PathBuf::from(value)),
                "segment" => segment = Some(PathBuf::from(value)),
                "database" => database = value.parse().ok(),
                _ => {}
            }
        }
        Ok(Marker {
            instance: instance.ok_or(MarkerError::Malformed("no valid `instance`"))?,
            name: name.ok_or(MarkerError::Malformed("no `name`"))?,
            directory: directory.ok_or(MarkerError::Malformed("no `directory`"))?,
            segment: segment.ok_or(MarkerError::Malformed("no `segment`"))?,
            database: database.ok_or(MarkerError::Malformed("no valid `database`"))?,
        })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        write!(f, "instance=")?;
        self.instance.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        writeln!(f, "\nname={}", self.name)?;
        writeln!(f, "directory={}", self.directory.display())?;
        writeln!(f, "segment={}", self.segment.display())?;
        writeln!(f, "database={}", self.database)
    }
}

fn parse_identity(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[i * 2..i * 2 + 2], 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_survives_text_and_says_what_is_missing() {
        let marker = Marker {
            instance: [0xa5; 16],
            name: "orders-a".into(),
            directory: "/srv/standfast".into(),
            segment: "/dev/shm/standfast-x".into(),
            database: 3,
        };
        assert_eq!(Marker::parse(&marker.to_string()).unwrap(), marker);
        let cut = marker.to_string().replace("segment=", "seg=");
        assert!(matches!(Marker::parse(&cut), Err(MarkerError::Malformed("no `segment`"))));
        assert!(Marker::parse("SQLite format 3").is_err());
    }
}
