//! A protected database: its path, its marker, and the way to its instance.

use crate::instance;
use crate::whereabouts::{Whereabouts, read_marker};
use standfast_session::{FileId, Marker, Segment};
use std::path::{Path, PathBuf};

/// A protected database: its path and the way to its instance.
pub(crate) struct Database {
    /// Absolute path, as SQLite gave it.
    pub file: PathBuf,
    pub path: String,
    /// Identity of the file that was opened.
    opened: Option<FileId>,
    /// The marker, once one written for this file has been found.
    marker: Whereabouts,
}

impl Database {
    /// Creates the state of the database at `path`, which has just been opened.
    pub fn at(path: &Path) -> Database {
        let database = Database {
            file: path.to_owned(),
            path: path.to_string_lossy().into_owned(),
            opened: FileId::of(path),
            marker: Whereabouts::default(),
        };
        let _ = database.find_marker();
        database
    }

    /// Returns the known marker, if it is usable.
    pub fn marker(&self) -> Option<&Marker> {
        self.marker.get()
    }

    /// Returns the marker. Reads an unusable one again, because the instance rewrites it.
    ///
    /// # Errors
    /// A message with the reason and the remedy, when no marker is usable.
    pub fn find_marker(&self) -> Result<&Marker, String> {
        if let Some(marker) = self.marker.get() {
            return Ok(marker);
        }
        let path = &self.path;
        let remedy =
            || format!("Run `standfast protect {path}` at its instance, or restart that, to write it again");
        let marker = match read_marker(&self.file) {
            Ok(Some(marker)) => marker,
            Ok(None) => return Err("it is no longer protected: close and reopen it to write to it".into()),
            Err(why) => return Err(format!("{why}. {}", remedy())),
        };
        let Some(opened) = self.opened.or_else(|| FileId::of(&self.file)) else {
            return Err("what file it is cannot be found out: close and reopen it".into());
        };
        match marker.check(&self.file, opened) {
            Ok(()) => Ok(self.marker.note(marker)),
            Err(foreign) => Err(marker.explain(&self.file, &foreign)),
        }
    }

    /// Replaces the known marker by one that was found later.
    pub fn note_marker(&self, marker: Marker) {
        self.marker.note(marker);
    }

    /// Returns whether the marker beside the file is still the known one.
    pub fn is_still_protected(&self) -> bool {
        let Some(known) = self.marker.get() else { return false };
        matches!(Marker::read(&self.file), Ok(Some(found)) if found.database == known.database && found.instance == known.instance)
    }

    /// Returns whether the path now names another file than the one that was opened.
    pub fn is_replaced(&self) -> bool {
        matches!((self.opened, FileId::of(&self.file)), (Some(opened), Some(now)) if opened != now)
    }

    /// Returns the shared memory of the instance; `None` when there is none or it cannot be used.
    pub fn segment(&self) -> Option<(&Marker, Segment)> {
        let marker = self.find_marker().ok()?;
        Some((marker, instance::segment(marker, &self.file).ok()?))
    }

    /// Returns whether the instance lives, for a session in `segment`. Leaves the segment when the instance no longer
    /// reads it, because it has made a new one, there or elsewhere.
    pub fn attends(&self, marker: &Marker, segment: Segment) -> bool {
        segment.check_path(&marker.segment);
        let alive = instance::alive(marker);
        if alive && !marker.segment.exists() && self.has_moved() {
            segment.leave();
        }
        alive
    }

    /// Returns whether the instance was started with its shared memory elsewhere since the marker was read; from now on
    /// it is looked for there.
    pub fn has_moved(&self) -> bool {
        let (Some(known), Ok(Some(found))) = (self.marker(), read_marker(&self.file)) else { return false };
        let has_moved = (found.instance, found.database) == (known.instance, known.database)
            && (&found.segment, &found.runtime) != (&known.segment, &known.runtime);
        if has_moved {
            self.note_marker(found);
        }
        has_moved
    }
}
