//! Paths of the command line as the instance needs them.

use standfast_environment::InstanceError;
use std::path::{Path, PathBuf};

pub fn absolute(path: &Path) -> Result<PathBuf, InstanceError> {
    std::path::absolute(path).map_err(|source| InstanceError::Io {
        doing: "find",
        path: path.to_owned(),
        source,
    })
}
