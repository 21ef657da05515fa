//! The directory in which a campaign with real processes runs, its programs and its messages.

use crate::Result;
use crate::error::During;
use crate::programs::Programs;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Clone, Debug)]
pub struct Site {
    pub programs: Programs,
    /// A directory of this campaign alone, on a real disk. Removed when there are no findings.
    pub directory: PathBuf,
    pub verbose: bool,
    pub started: Instant,
}

impl Site {
    /// Creates the directory.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn new(programs: Programs, directory: PathBuf, verbose: bool) -> Result<Site> {
        std::fs::create_dir_all(&directory).during(|| format!("create {}", directory.display()))?;
        Ok(Site { programs, directory, verbose, started: Instant::now() })
    }

    /// Writes progress to standard error, with the seconds since the start.
    pub fn say(&self, words: &str) {
        if self.verbose {
            eprintln!("{:8.2} {words}", self.started.elapsed().as_secs_f64());
        }
    }

    /// Removes the directory after a pass; otherwise keeps it and returns its path for the operator.
    pub fn leave(&self, passed: bool) -> Option<String> {
        if passed {
            let _ = std::fs::remove_dir_all(&self.directory);
            return None;
        }
        Some(self.directory.display().to_string())
    }
}
