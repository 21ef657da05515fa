//! The file of `--html`: claimed before the tests, replaced as a whole at their end.

use crate::html::page::{Identity, SIGNATURE, placeholder};
use crate::{NetError, Result};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

pub struct ReportFile {
    path: PathBuf,
    begun: Instant,
    identity: Identity,
}

impl ReportFile {
    /// Claims the file: writes a report that says that there is no result yet. This shows before long tests that the
    /// file can be written, and afterwards whether the command was killed.
    pub fn begin(path: &Path) -> Result<ReportFile> {
        let identity = Identity {
            host: system("hostname"),
            kernel: format!("{} {}", system("ostype"), system("osrelease")),
            begun: SystemTime::now(),
            took: Duration::ZERO,
        };
        let file = ReportFile { path: path.to_owned(), begun: Instant::now(), identity };
        file.put(&placeholder(&file.identity))?;
        Ok(file)
    }

    pub fn end(mut self, page: impl FnOnce(&Identity) -> String) -> Result<()> {
        self.identity.took = self.begun.elapsed();
        self.put(&page(&self.identity))
    }

    /// Writes under another name first, so that a reader always finds a whole report or the previous one, even when
    /// space runs out.
    fn put(&self, page: &str) -> Result<()> {
        check(&self.path)?;
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = self.path.with_file_name(name);
        let failed = |error| {
            unusable(
                &self.path,
                &format!("cannot be written: {error}; name a file in a directory that can (--html)"),
            )
        };
        let mut file = File::create_new(&part).map_err(failed)?;
        let written = file.write_all(page.as_bytes()).and_then(|()| file.sync_all());
        written.and_then(|()| std::fs::rename(&part, &self.path)).map_err(|error| {
            // An incomplete page is of no use.
            let _ = std::fs::remove_file(&part);
            failed(error)
        })
    }
}

fn unusable(path: &Path, reason: &str) -> NetError {
    NetError::File { path: path.to_owned(), reason: reason.to_owned() }
}

/// Returns Ok when nothing is at `path`, or an earlier report.
fn check(path: &Path) -> Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(unusable(path, &format!("cannot be looked at: {error}; name another file (--html)")));
        }
        Ok(metadata) => metadata,
    };
    if !metadata.is_file() {
        return Err(unusable(path, "is not a regular file; name one that does not exist (--html)"));
    }
    let mut start = vec![0; SIGNATURE.len()];
    match File::open(path).and_then(|mut file| file.read_exact(&mut start)) {
        Ok(()) if start == SIGNATURE.as_bytes() => Ok(()),
        _ => Err(unusable(
            path,
            "exists and is not a report of a network test; it is left alone. Name another file (--html), or remove it",
        )),
    }
}

/// Returns a setting under `/proc/sys/kernel`; `unknown` when it cannot be read.
fn system(name: &str) -> String {
    let printed = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    printed.map_or_else(|_| "unknown".to_owned(), |printed| printed.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("standfast-html-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn only_an_earlier_report_is_replaced_and_no_file_is_left_over() {
        let directory = directory("replaced");
        let path = directory.join("report.html");
        for number in 0..2 {
            let file = ReportFile::begin(&path).unwrap();
            assert!(std::fs::read_to_string(&path).unwrap().contains("NO RESULT"));
            file.end(|identity| {
                assert!(!identity.host.is_empty() && identity.kernel.len() > 3);
                format!("{SIGNATURE}report {number}")
            })
            .unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{SIGNATURE}report {number}"));
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn foreign_files_are_left_alone_even_if_created_meanwhile() {
        let directory = directory("foreign");
        let path = directory.join("thesis.html");
        for content in ["<!DOCTYPE html>\n<html>my thesis</html>", ""] {
            std::fs::write(&path, content).unwrap();
            assert!(matches!(ReportFile::begin(&path), Err(NetError::File { .. })));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        let late = directory.join("late.html");
        let file = ReportFile::begin(&late).unwrap();
        std::fs::write(&late, "came between").unwrap();
        assert!(file.end(|_| SIGNATURE.into()).is_err());
        assert_eq!(std::fs::read_to_string(&late).unwrap(), "came between");
        let link = directory.join("link.html");
        std::os::unix::fs::symlink(&late, &link).unwrap();
        for no_file in
            [&directory, &link, &directory.join("none/report.html"), &PathBuf::from("/proc/report.html")]
        {
            assert!(ReportFile::begin(no_file).is_err(), "{}", no_file.display());
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
