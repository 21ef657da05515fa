//! The observer's file: one line with a checksum, then the record as JSON; replaced atomically and durably.

use serde::{Deserialize, Serialize};
use standfast_arbitration::record::Record;
use standfast_environment::config::error::InstanceError;
use standfast_format::crc32c;
use standfast_io::Disk;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file in the observer's directory. A directory that has it is an observer's.
pub const NAME: &str = "observer";
const FIRST_LINE: &str = "standfast-observer 1 ";

#[derive(Serialize, Deserialize)]
struct Content {
    record: Option<Record>,
}

pub struct ObserverFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl ObserverFile {
    /// The file in `directory`, whether or not it exists.
    pub fn new(disk: Arc<dyn Disk>, directory: &Path) -> ObserverFile {
        ObserverFile { disk, path: directory.join(NAME) }
    }

    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Reads the record. The inner `None`: there is no usable one. It is safe to continue without: an observer that has
    /// forgotten decides nothing until the members have confirmed where they stand.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load(&self) -> Result<Option<Option<Record>>, InstanceError> {
        let bytes = self.disk.read(&self.path).map_err(InstanceError::io("read", &self.path))?;
        Ok(decode(&bytes))
    }

    /// Replaces the record.
    ///
    /// # Errors
    /// When it cannot be written. Which of the two records the file has then is not known.
    pub fn store(&self, record: Option<&Record>) -> Result<(), InstanceError> {
        let content = Content { record: record.cloned() };
        let body = serde_json::to_string_pretty(&content)
            .map_err(|error| InstanceError::Failed(error.to_string()))?;
        let text = format!("{FIRST_LINE}{:08x}\n{body}", crc32c(body.as_bytes()));
        self.disk.replace(&self.path, text.as_bytes()).map_err(InstanceError::io("write", &self.path))
    }
}

/// Returns the content; `None`: the bytes are no file of an observer.
fn decode(bytes: &[u8]) -> Option<Option<Record>> {
    let (first, body) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    let crc = u32::from_str_radix(first.strip_prefix(FIRST_LINE)?, 16).ok()?;
    let content = (crc32c(body.as_bytes()) == crc).then(|| serde_json::from_str::<Content>(body).ok())??;
    Some(content.record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_arbitration::record::{Incarnation, Standing};
    use standfast_io::DirectDisk;
    use standfast_types::{IncarnationId, Scn};

    #[test]
    fn record_is_read_back_and_damage_is_no_record() {
        let directory = std::env::temp_dir().join(format!("standfast-observer-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = ObserverFile::new(Arc::new(DirectDisk), &directory);
        file.store(None).unwrap();
        assert_eq!(file.load().unwrap(), Some(None));
        let record = Record {
            serial: 7,
            primary: "alpha".into(),
            incarnation: Incarnation { number: 3, id: IncarnationId([9; 8]) },
            standing: Standing::Synchronized { target: "beta".into() },
            candidates: vec!["alpha".into(), "beta".into()],
            acknowledged: Scn(512),
        };
        file.store(Some(&record)).unwrap();
        assert_eq!(file.load().unwrap(), Some(Some(record)));
        let path = directory.join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("alpha", "gamma")).unwrap();
        assert_eq!(file.load().unwrap(), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
