//! Where a campaign with real processes runs.

use crate::Result;
use crate::error::During;
use crate::programs::Programs;
use std::path::PathBuf;
use std::time::Instant;

/// See the module.
#[derive(Clone, Debug)]
pub struct Site {
    /// The programs under test.
    pub programs: Programs,
    /// A directory of this campaign alone, on a real disk. Removed when nothing was found.
    pub directory: PathBuf,
    /// Say what is going on, on standard error.
    pub verbose: bool,
    /// When it began.
    pub started: Instant,
}

impl Site {
    /// Makes the directory.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(programs: Programs, directory: PathBuf, verbose: bool) -> Result<Site> {
        std::fs::create_dir_all(&directory).during(|| format!("create {}", directory.display()))?;
        Ok(Site { programs, directory, verbose, started: Instant::now() })
    }

    /// Says what is going on, and since when.
    pub fn say(&self, words: &str) {
        if self.verbose {
            eprintln!("{:8.2} {words}", self.started.elapsed().as_secs_f64());
        }
    }

    /// Removes everything, or says where it was kept for whoever looks into what went wrong.
    pub fn leave(&self, passed: bool) -> Option<String> {
        if passed {
            let _ = std::fs::remove_dir_all(&self.directory);
            return None;
        }
        Some(self.directory.display().to_string())
    }
}
