//! The shared configuration as this instance keeps it, in a file of its directory.

use crate::config::error::InstanceError;
use crate::config::shared_configuration::SharedConfiguration;
use crate::state::alert::AlertLog;
use standfast_io::Disk;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct KeptConfiguration {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    kept: Mutex<Option<SharedConfiguration>>,
    /// Changes whenever `kept` does.
    changes: AtomicU64,
}

impl KeptConfiguration {
    /// Reads the file. One that cannot be read is reported and is like none: the primary makes another, and sends it.
    pub fn load(disk: Arc<dyn Disk>, path: PathBuf, alert: &AlertLog) -> KeptConfiguration {
        let read = match disk.read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| error.to_string()),
        };
        let kept = read.unwrap_or_else(|error| {
            alert.say(format!("the shared configuration in {} cannot be read: {error}", path.display()));
            None
        });
        KeptConfiguration { path, disk, kept: Mutex::new(kept), changes: AtomicU64::new(0) }
    }

    fn kept(&self) -> MutexGuard<'_, Option<SharedConfiguration>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self) -> Option<SharedConfiguration> {
        self.kept().clone()
    }

    /// Returns the configuration as it is sent to standbys.
    pub fn document(&self) -> Option<serde_json::Value> {
        self.kept().as_ref().and_then(|kept| serde_json::to_value(kept).ok())
    }

    /// Changes with every change of the configuration.
    pub fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Keeps, durably, what `make` makes of the present configuration; `None`: it stays as it is.
    ///
    /// # Errors
    /// When the file cannot be written. The change holds in this process; after a restart the primary makes it again, or
    /// sends it again.
    pub fn change(
        &self,
        make: impl FnOnce(Option<&SharedConfiguration>) -> Option<SharedConfiguration>,
    ) -> Result<(), InstanceError> {
        let mut kept = self.kept();
        let Some(made) = make(kept.as_ref()).filter(|made| Some(made) != kept.as_ref()) else {
            return Ok(());
        };
        *kept = Some(made.clone());
        self.changes.fetch_add(1, SeqCst);
        let failed = |error| InstanceError::io("write the shared configuration", &self.path)(error);
        let text = serde_json::to_vec_pretty(&made)
            .map_err(|error| failed(std::io::Error::new(ErrorKind::InvalidData, error)))?;
        self.disk.replace(&self.path, &text).map_err(failed)
    }
}
