//! The observer's file; replaced atomically and durably.

use serde::{Deserialize, Serialize};
use standfast_arbitration::record::Record;
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::checked_file;
use standfast_environment::state::paths::Paths;
use standfast_io::Disk;
use std::path::PathBuf;
use std::sync::Arc;

const WHAT: &str = "standfast-observer 1";

#[derive(Serialize, Deserialize)]
struct Content {
    record: Option<Record>,
}

pub struct ObserverFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl ObserverFile {
    /// The file at its place, whether or not it exists.
    pub fn new(disk: Arc<dyn Disk>, paths: &Paths) -> ObserverFile {
        ObserverFile { disk, path: paths.observer.clone() }
    }

    /// Reads the record. The inner `None`: there is no usable one. It is safe to continue without: an observer that has
    /// forgotten decides nothing until the members have confirmed where they stand.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load(&self) -> Result<Option<Option<Record>>, InstanceError> {
        let bytes = self.disk.read(&self.path).map_err(InstanceError::io("read", &self.path))?;
        Ok(checked_file::decode(WHAT, &bytes).map(|content: Content| content.record))
    }

    /// Replaces the record.
    ///
    /// # Errors
    /// When it cannot be written. Which of the two records the file has then is not known.
    pub fn store(&self, record: Option<&Record>) -> Result<(), InstanceError> {
        let content = Content { record: record.cloned() };
        let bytes =
            checked_file::encode(WHAT, &content).map_err(|error| InstanceError::Failed(error.to_string()))?;
        self.disk.replace(&self.path, &bytes).map_err(InstanceError::io("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_arbitration::record::{Incarnation, Standing};
    use standfast_environment::config::settings::Config;
    use standfast_io::DirectDisk;
    use standfast_types::{IncarnationId, Scn};

    #[test]
    fn record_is_read_back_and_damage_is_no_record() {
        let directory = std::env::temp_dir().join(format!("standfast-observer-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let paths = Paths::new(&directory, &Config::default()).unwrap();
        let file = ObserverFile::new(Arc::new(DirectDisk), &paths);
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
        let text = std::fs::read_to_string(&paths.observer).unwrap();
        std::fs::write(&paths.observer, text.replace("alpha", "gamma")).unwrap();
        assert_eq!(file.load().unwrap(), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
