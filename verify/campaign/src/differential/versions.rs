//! The SQLites under test: one `libsqlite3.so` per directory, named by version and variant, as `scripts/sqlites.sh`
//! creates them.

use crate::{CampaignError, During, Result};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Version and variant, such as `3.40.1` or `3.40.1-setlk`.
    pub name: String,
    pub library: PathBuf,
}

/// Returns the requested versions in `directory`; all of them when `wanted` is empty.
///
/// # Errors
/// When a requested one is missing, or there is none.
pub fn find(directory: &Path, wanted: &[String]) -> Result<Vec<Version>> {
    let missing =
        |what: &str| CampaignError::NoSqlites { directory: directory.to_owned(), what: what.to_owned() };
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing("the directory")),
        entries => entries.during(|| format!("list {}", directory.display()))?,
    };
    // Workers run in other directories, so the paths must be absolute.
    let directory = directory.canonicalize().during(|| format!("find {}", directory.display()))?;
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.during(|| format!("list {}", directory.display()))?;
        let library = directory.join(entry.file_name()).join("libsqlite3.so");
        if library.is_file() {
            all.push(Version { name: entry.file_name().to_string_lossy().into_owned(), library });
        }
    }
    all.sort_by_key(|version| key(&version.name));
    if all.is_empty() {
        return Err(missing("any"));
    }
    if wanted.is_empty() {
        return Ok(all);
    }
    let mut found = Vec::new();
    for name in wanted {
        let matching: Vec<Version> =
            all.iter().filter(|version| is_meant(name, &version.name)).cloned().collect();
        let exact = matching.iter().find(|version| version.name == *name).cloned();
        match (exact, matching.is_empty()) {
            (Some(version), _) => found.push(version),
            (None, true) => return Err(missing(name)),
            (None, false) => found.extend(matching),
        }
    }
    Ok(found)
}

/// Whether `wanted`, a version or a part of one such as `3.40`, matches `name`.
fn is_meant(wanted: &str, name: &str) -> bool {
    let rest = name.strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
}

fn key(name: &str) -> (Vec<u32>, String) {
    let (version, variant) = name.split_once('-').unwrap_or((name, ""));
    (version.split('.').map(|part| part.parse().unwrap_or(0)).collect(), variant.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::Hint;

    #[test]
    fn partial_version_selects_all_its_variants() {
        let directory = standfast_testkit::TempDir::new("sqlites").unwrap();
        for name in ["3.9.0", "3.40.1", "3.40.1-setlk", "3.45.0"] {
            std::fs::create_dir(directory.join(name)).unwrap();
            std::fs::write(directory.join(name).join("libsqlite3.so"), b"").unwrap();
        }
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            find(&directory.join("."), &wanted)
                .map(|found| found.into_iter().map(|version| version.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["3.9.0", "3.40.1", "3.40.1-setlk", "3.45.0"]);
        assert_eq!(names(&["3.40"]).unwrap(), ["3.40.1", "3.40.1-setlk"]);
        assert_eq!(names(&["3.40.1"]).unwrap(), ["3.40.1"]);
        assert!(names(&["3.4"]).unwrap_err().for_terminal().contains("scripts/sqlites.sh"));
    }
}
