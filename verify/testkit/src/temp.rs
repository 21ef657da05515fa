use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new directory under the system's temporary directory, removed with its content on drop. `STANDFAST_KEEP_TEMP=1`
/// keeps it and prints its path.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates a directory whose name contains `label`, the process id and a unique number.
    pub fn new(label: &str) -> Result<TempDir> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("standfast-{label}-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                // Left behind by a killed process that had the same pid.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                other => return other.map(|()| TempDir { path }),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::env::var_os("STANDFAST_KEEP_TEMP").is_some_and(|value| value == "1") {
            eprintln!("kept {}", self.path.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_lives_as_long_as_its_handle() {
        let one = TempDir::new("temp").unwrap();
        let two = TempDir::new("temp").unwrap();
        assert_ne!(one.path(), two.path());
        std::fs::write(one.join("file"), b"x").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
        assert!(two.path().exists());
    }
}
