//! The control file itself; replaced atomically and durably on every change.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use super::{Control, KeptFile};
use crate::config::error::InstanceError;
use crate::state::checked_file;
use standfast_io::Disk;
use std::path::Path;

const WHAT: &str = "standfast-control 1";

impl Control {
    /// Reads the control file at `path`.
    ///
    /// # Errors
    /// When it is missing, damaged, or of another version.
    pub fn load(disk: &dyn Disk, path: &Path) -> Result<Control, InstanceError> {
        let bytes = disk.read(path).map_err(InstanceError::io("read the control file", path))?;
        let decoded = checked_file::decode(WHAT, &bytes).map(|mut control: Control| {
            if let Some(directory) = path.parent() {
                control.databases.iter_mut().for_each(|record| record.path = directory.join(&record.path));
                control.kept_mut().for_each(|kept| kept.path = directory.join(&kept.path));
            }
            control
        });
        decoded.ok_or_else(|| {
            InstanceError::refused(
                format!("{} is damaged or of another version", path.display()),
                "restore the instance directory from a backup, or create the standby again",
            )
        })
    }

    /// Returns every file that is kept, or about to be.
    fn kept_mut(&mut self) -> impl Iterator<Item = &mut KeptFile> {
        self.kept_files.iter_mut().chain(self.file_swaps.iter_mut().map(|swap| &mut swap.kept))
    }

    /// Replaces the control file.
    ///
    /// # Errors
    /// When it cannot be written; the old content stays.
    pub fn store(&self, disk: &dyn Disk, path: &Path) -> Result<(), InstanceError> {
        let mut stored = self.clone();
        if let Some(directory) = path.parent() {
            let relative = |path: &Path| path.strip_prefix(directory).unwrap_or(path).to_owned();
            stored.databases.iter_mut().for_each(|record| record.path = relative(&record.path));
            stored.kept_mut().for_each(|kept| kept.path = relative(&kept.path));
        }
        let bytes =
            checked_file::encode(WHAT, &stored).map_err(|error| InstanceError::Failed(error.to_string()))?;
        disk.replace(path, &bytes).map_err(InstanceError::io("write the control file", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::control::DatabaseRecord;
    use crate::state::control::tests::control;
    use standfast_types::{DatabaseId, InstanceId, PageSize, Scn};
    use std::path::PathBuf;

    #[test]
    fn control_file_is_read_back_and_damage_is_detected() {
        let control = control();
        let path = std::env::temp_dir().join(format!("standfast-control-{}", std::process::id()));
        control.store(&standfast_io::DirectDisk, &path).unwrap();
        assert_eq!(Control::load(&standfast_io::DirectDisk, &path).unwrap(), control);
        let damaged = std::fs::read_to_string(&path).unwrap().replace("primary", "standby");
        std::fs::write(&path, damaged).unwrap();
        assert!(Control::load(&standfast_io::DirectDisk, &path).is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn stored_paths_follow_a_renamed_instance_directory() {
        let base = std::env::temp_dir().join(format!("standfast-relative-{}", std::process::id()));
        let [one, other] = ["one", "other"].map(|name| base.join(name));
        std::fs::create_dir_all(&one).unwrap();
        let record = |path: PathBuf| DatabaseRecord {
            id: DatabaseId(1),
            name: "app.db".into(),
            path,
            page_size: PageSize::new(4096).unwrap(),
            start_scn: Scn::START,
            redo_from: Scn::START,
            begun_empty: false,
        };
        let text = serde_json::json!({
            "instance": InstanceId([1; 16]), "family": InstanceId([1; 16]), "role": "standby",
            "incarnations": [], "checkpoint": 5, "next_database": 1,
            "databases": [record(one.join("db/app.db")), record("/srv/elsewhere.db".into())],
        });
        let control: Control = serde_json::from_value(text).unwrap();
        control.store(&standfast_io::DirectDisk, &one.join("control")).unwrap();
        std::fs::rename(&one, &other).unwrap();
        let moved = Control::load(&standfast_io::DirectDisk, &other.join("control")).unwrap();
        let paths: Vec<&Path> = moved.databases.iter().map(|record| record.path.as_path()).collect();
        assert_eq!(paths, [other.join("db/app.db").as_path(), Path::new("/srv/elsewhere.db")]);
        std::fs::remove_dir_all(base).unwrap();
    }
}
