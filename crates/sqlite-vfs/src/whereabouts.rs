//! Where the instance of a database is, as seen by this process: by its marker, and by the markers that have replaced
//! it.

use standfast_session::Marker;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Directories, separated by colons, in which this process finds the runtime directories of instances that are mounted
/// elsewhere than the marker says.
const MOUNTED: &str = "STANDFAST_RUNTIME_DIRECTORY";

/// The markers found for a file, one after the other: an instance may be started with another runtime directory.
/// References to earlier ones stay valid.
#[derive(Default)]
pub(crate) struct Whereabouts(OnceLock<Box<Known>>);

struct Known {
    marker: Marker,
    later: Whereabouts,
}

impl Whereabouts {
    /// Returns the newest marker; `None` before the first.
    pub fn get(&self) -> Option<&Marker> {
        let known = self.0.get()?;
        known.later.get().or(Some(&known.marker))
    }

    /// Records a marker newer than all before, and returns the newest.
    pub fn note(&self, marker: Marker) -> &Marker {
        match self.0.get() {
            Some(known) => known.later.note(marker),
            None => &self.0.get_or_init(|| Box::new(Known { marker, later: Whereabouts::default() })).marker,
        }
    }
}

/// Reads a marker like [`Marker::read`], with the paths as this process sees them.
pub(crate) fn read_marker(database: &Path) -> Result<Option<Marker>, standfast_session::MarkerError> {
    Ok(Marker::read(database)?.map(|marker| marker.seen_from(&mounted())))
}

/// Returns the directories in [`MOUNTED`]. A setuid program takes nothing from its user's environment.
fn mounted() -> Vec<PathBuf> {
    // SAFETY: takes a number, and returns one.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Vec::new();
    }
    let named = std::env::var_os(MOUNTED).unwrap_or_default();
    std::env::split_paths(&named).filter(|path| path.is_absolute()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_marker_counts_and_earlier_ones_stay_valid() {
        let marker = |segment: &str| Marker {
            instance: [1; 16],
            name: "n".into(),
            directory: "/i".into(),
            segment: segment.into(),
            runtime: None,
            owner: None,
            database: 3,
            path: "/srv/app.db".into(),
            file: None,
        };
        let whereabouts = Whereabouts::default();
        assert!(whereabouts.get().is_none());
        let first = whereabouts.note(marker("/first"));
        whereabouts.note(marker("/second"));
        assert_eq!(whereabouts.note(marker("/third")).segment, Path::new("/third"));
        assert_eq!(first.segment, Path::new("/first"));
        assert_eq!(whereabouts.get().unwrap().segment, Path::new("/third"));
    }
}
