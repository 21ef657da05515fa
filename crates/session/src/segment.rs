//! Creates, maps and reads the shared memory: two files, one of which sessions map for reading only.

use crate::error::SegmentError;
use crate::files::{self, Place, WRITABLE_BY_OTHERS, published_mode, published_path, version_of};
use crate::layout::{
    DatabaseState, Head, MAGIC, OtherWriters, Published, PublishedDatabase, RequestedDatabase, Requests,
    Slot, VERSION,
};
use crate::mapping::{Mapped, Shared};
use crate::slot_locks::SlotLocks;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Settings that the instance publishes to sessions; changeable while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Default of sessions, as bits of [`crate::CommitMode`].
    pub commit_mode: u32,
    /// Readers wait until what they see is durable.
    pub durable_visibility: bool,
    /// How long writers wait for an instance that does not run.
    pub write_wait_ms: u32,
    /// How long a commit waits without being released before it reports "outcome unknown".
    pub commit_wait_ms: u32,
}

// SAFETY: `repr(C)`, and nothing but atomics.
unsafe impl Shared for Published {}
// SAFETY: `repr(C)`, and nothing but atomics.
unsafe impl Shared for Requests {}

/// The shared memory of an instance, mapped.
#[derive(Clone, Copy)]
pub struct Segment {
    /// As sessions see it. Only the instance may write to it, through [`Segment::publish`].
    pub(crate) published: &'static Published,
    pub(crate) requests: &'static Requests,
    pub(crate) mapping: &'static Mapping,
}

/// What this process knows of the files that it has mapped.
pub(crate) struct Mapping {
    published: Mapped<Published>,
    requests: Mapped<Requests>,
    /// Device and inode of the two files.
    files: [(u64, u64); 2],
    /// The paths were seen to name other files, or the instance has made a new segment elsewhere.
    left: AtomicBool,
    /// The locks by which sessions hold their slots.
    pub(crate) locks: &'static SlotLocks,
    pub(crate) own: Option<Own>,
}

impl Mapping {
    /// Maps truncated files again; true when there was one.
    pub(crate) fn restore(&self, own: &Own) -> io::Result<bool> {
        let [published, requests] = self.files;
        let requests = restore(&self.requests, &own.path, requests)?;
        if requests {
            self.locks.forget();
        }
        // A starting instance, and sessions of other releases, read this header.
        begin(&self.requests.content.head, own.instance);
        Ok(restore(&self.published, &published_path(&own.path), published)? || requests)
    }
}

/// Makes `file`, which is at `path`, as long as it was and maps it again, if it was truncated; returns whether it was.
fn restore<T: Shared>(mapped: &Mapped<T>, path: &Path, file: (u64, u64)) -> io::Result<bool> {
    let is_short = || {
        std::fs::symlink_metadata(path)
            .is_ok_and(|metadata| id(&metadata) == file && metadata.len() < size_of::<T>() as u64)
    };
    if !mapped.is_lost() && !is_short() {
        return Ok(false);
    }
    // No descriptor is kept open for this.
    let opened = Place::of(path).map_err(io::Error::other)?.ours(0)?;
    let is_it = |opened: &File| opened.metadata().is_ok_and(|metadata| id(&metadata) == file);
    let opened = opened.filter(is_it).ok_or(io::ErrorKind::NotFound)?;
    files::allocate(&opened, size_of::<T>())?;
    mapped.map_again(&opened)?;
    Ok(true)
}

/// State that only the instance has.
pub(crate) struct Own {
    /// The instance's copy of what it published. Nothing that the instance does depends on what the shared memory holds
    /// instead.
    pub truth: Box<Published>,
    /// Held while the generation of a database changes.
    pub generations: Mutex<()>,
    path: PathBuf,
    instance: [u8; 16],
}

impl Own {
    /// Moves the instance's copy to `position` unless it is higher, and returns the higher of the two.
    pub(crate) fn move_durable(&self, database: u16, position: u64) -> u64 {
        self.truth.of(database).durable.fetch_max(position, SeqCst).max(position)
    }
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Segment {
    /// Maps the segment at `path`, and creates it when there is none or when it is of another version or instance.
    /// Gives it the permissions `mode`, whatever the umask: its write permissions apply to the file of the requests,
    /// never to the published one. The flag says whether it is new. Only the instance calls this, under its directory
    /// lock.
    ///
    /// # Errors
    /// When the files cannot be created or mapped, or other users could replace them.
    pub fn create(path: &Path, instance: [u8; 16], mode: u32) -> Result<(Segment, bool), SegmentError> {
        let places = (Place::of(&published_path(path))?, Place::of(path)?);
        let found = (
            places.0.find(instance, size_of::<Published>(), WRITABLE_BY_OTHERS)?,
            places.1.find(instance, size_of::<Requests>(), 0)?,
        );
        let (files, new) = match found {
            (Some(published), Some(requests)) => ((published, requests), false),
            _ => {
                places.1.clear()?;
                places.0.clear()?;
                // In this order: a process that finds the file that markers name finds the other one, too.
                let published = places.0.make(size_of::<Published>())?;
                let requests = places.1.make(size_of::<Requests>()).inspect_err(|_| {
                    let _ = places.0.clear();
                })?;
                ((published, requests), true)
            }
        };
        let published = Mapped::<Published>::of(&files.0, true)?;
        let requests = Mapped::<Requests>::of(&files.1, true)?;
        if new {
            begin(&published.content.head, instance);
            begin(&requests.content.head, instance);
        }
        // Not at creation, where the umask would remove permissions.
        files.0.set_permissions(Permissions::from_mode(published_mode(mode)))?;
        files.1.set_permissions(Permissions::from_mode(mode))?;
        let ids = [id(&files.0.metadata()?), id(&files.1.metadata()?)];
        let own = Own {
            truth: published.content.copied(),
            generations: Mutex::new(()),
            path: path.to_owned(),
            instance,
        };
        let locks = SlotLocks::of(ids[1], path);
        Ok((Segment::keep(published, requests, ids, locks, Some(own)), new))
    }

    /// Maps the existing segment of `instance`, which belongs to one of the users `owners` or to root.
    ///
    /// # Errors
    /// When it does not exist, is not usable by this build, or belongs to another user.
    pub fn open(path: &Path, instance: [u8; 16], owners: &[u32]) -> Result<Segment, SegmentError> {
        let (requests, of_requests) = files::open(path, true)?;
        if !of_requests.is_file() {
            return Err(SegmentError::NotASegment);
        }
        let (requests_path, path) = (path, published_path(path));
        let (published, of_published) = match files::open(&path, false) {
            // It is of a release that had one file, or is being made.
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(other_release(&requests)),
            opened => opened?,
        };
        let (owner, mode) = (of_published.uid(), of_published.mode() & 0o7777);
        let is_trusted = of_published.is_file()
            && (owner == 0 || owners.contains(&owner))
            && owner == of_requests.uid()
            && mode & WRITABLE_BY_OTHERS == 0;
        if !is_trusted {
            return Err(SegmentError::Untrusted { path, owner, mode });
        }
        match version_of(&published) {
            Some(VERSION) if files::is_of(&published, instance) => {}
            Some(VERSION) => return Err(SegmentError::OtherInstance),
            _ => return Err(other_release(&published)),
        }
        // Anybody may write its header, which therefore counts only for a release that had one file.
        if of_requests.len() != size_of::<Requests>() as u64 {
            return Err(other_release(&requests));
        }
        let too_short = |error: io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => SegmentError::NotASegment,
            _ => error.into(),
        };
        let published = Mapped::of(&published, false).map_err(too_short)?;
        let requests = Mapped::of(&requests, true).map_err(too_short)?;
        let files = [id(&of_published), id(&of_requests)];
        let locks = SlotLocks::of(files[1], requests_path);
        Ok(Segment::keep(published, requests, files, locks, None))
    }

    fn keep(
        published: Mapped<Published>,
        requests: Mapped<Requests>,
        files: [(u64, u64); 2],
        locks: &'static SlotLocks,
        own: Option<Own>,
    ) -> Segment {
        let mapping = Mapping { published, requests, files, left: AtomicBool::new(false), locks, own };
        Segment {
            published: published.content,
            requests: requests.content,
            mapping: Box::leak(Box::new(mapping)),
        }
    }

    /// Removes the files of the segment at `path`, if they are there.
    pub fn remove(path: &Path) {
        let _ = std::fs::remove_file(path);
        let _ = std::fs::remove_file(published_path(path));
    }
}

/// Why a file that is not of this release cannot be used.
fn other_release(file: &File) -> SegmentError {
    match version_of(file) {
        Some(found) if found != VERSION => SegmentError::Version { found },
        _ => SegmentError::NotASegment,
    }
}

/// Writes the header of a segment.
fn begin(head: &Head, instance: [u8; 16]) {
    head.version.store(VERSION, SeqCst);
    for (word, bytes) in head.instance.iter().zip(instance.chunks_exact(8)) {
        let mut le = [0; 8];
        le.copy_from_slice(bytes);
        word.store(u64::from_le_bytes(le), SeqCst);
    }
    head.magic.store(MAGIC, SeqCst);
}

impl Segment {
    /// What is published: for the instance its own copy, for sessions the shared memory.
    pub(crate) fn truth(&self) -> &'static Published {
        self.mapping.own.as_ref().map_or(self.published, |own| &own.truth)
    }

    pub(crate) fn published_of(&self, database: u16) -> &'static PublishedDatabase {
        self.truth().of(database)
    }

    /// The requests of a database; numbers out of range wrap, so that a corrupt marker cannot reach outside.
    pub(crate) fn database(&self, database: u16) -> &'static RequestedDatabase {
        &self.requests.databases[usize::from(database) % self.requests.databases.len()]
    }

    pub(crate) fn slot(&self, slot: usize) -> &'static Slot {
        &self.requests.slots[slot % self.requests.slots.len()]
    }

    /// The slots that were ever taken. The lowest free slot is taken first; reading the others would allocate pages of
    /// memory for them.
    pub(crate) fn slots_used(&self) -> &'static [Slot] {
        let used = self.requests.slots_used.load(SeqCst) as usize;
        &self.requests.slots[..used.min(self.requests.slots.len())]
    }

    /// True once a newer segment has replaced it, as far as this process knows, or what is published was lost: nothing
    /// reports any more what is durable.
    pub fn retired(&self) -> bool {
        self.published.head.retired.load(SeqCst) != 0
            || self.mapping.left.load(SeqCst)
            || self.mapping.published.is_lost()
    }

    /// Whether the file of the requests was truncated: new sessions need [`Segment::restore_requests`]. Sessions that
    /// have begun a transaction continue, because what they wait for is published.
    pub fn is_request_lost(&self) -> bool {
        self.mapping.requests.is_lost()
    }

    /// For a process with sessions: maps the file of the requests, at `path`, again when it was truncated and the
    /// instance has restored its length.
    ///
    /// # Errors
    /// When it is not complete yet, or another file.
    pub fn restore_requests(&self, path: &Path) -> Result<(), SegmentError> {
        if self.mapping.own.is_some() || !self.is_request_lost() {
            return Ok(());
        }
        let (file, metadata) = files::open(path, true)?;
        if id(&metadata) != self.mapping.files[1] || metadata.len() < size_of::<Requests>() as u64 {
            return Err(SegmentError::NotASegment);
        }
        self.mapping.requests.map_again(&file)?;
        self.mapping.locks.forget();
        Ok(())
    }

    /// Checks whether `path` still names the mapped files. An instance that finds no segment at its path, or none that
    /// it can use, makes a new one and cannot notify processes that have the old one mapped. A path that names nothing
    /// proves nothing: the instance may still serve the removed files.
    ///
    /// Also checks whether this process still has the descriptor by which its sessions hold their slots.
    pub fn check_path(&self, path: &Path) {
        self.mapping.locks.check();
        let paths = [&published_path(path), path];
        let is_other = |(path, file): (&Path, &(u64, u64))| {
            std::fs::symlink_metadata(path).is_ok_and(|metadata| id(&metadata) != *file)
        };
        if paths.into_iter().zip(&self.mapping.files).any(is_other) {
            self.mapping.left.store(true, SeqCst);
        }
    }

    /// Called when the instance is known to have made a new segment elsewhere.
    pub fn leave(&self) {
        self.mapping.left.store(true, SeqCst);
    }

    /// Whether both are the same mapping.
    pub fn is(&self, other: Segment) -> bool {
        std::ptr::eq(self.mapping, other.mapping)
    }

    /// Reports to sessions that have the segment at `path` mapped that another one has replaced it, and removes it.
    /// Leaves files of other users alone.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn retire(path: &Path) -> Result<(), SegmentError> {
        for path in [path, &published_path(path)] {
            let place = Place::of(path)?;
            if place.ours(0)?.is_some() {
                place.clear()?;
            }
        }
        Ok(())
    }

    pub fn state(&self, database: u16) -> DatabaseState {
        DatabaseState::from_u32(self.published_of(database).state.load(SeqCst))
    }

    /// Whether the instance is rewriting the WAL of the database, or died while it did.
    pub fn is_rewriting(&self, database: u16) -> bool {
        self.published_of(database).rewriting.load(SeqCst) != 0
    }

    /// Whether the wal-index may show an earlier state, see [`Segment::suspect_rewriting`].
    pub fn is_wal_suspect(&self, database: u16) -> bool {
        self.published_of(database).rewriting.load(SeqCst) == 2
    }

    /// What happens to processes without the VFS that write to a database.
    pub fn other_writers(&self, database: u16) -> OtherWriters {
        OtherWriters::from_u32(self.published_of(database).other_writers.load(SeqCst))
    }

    /// SCN of the last captured commit of a database.
    pub fn scn(&self, database: u16) -> u64 {
        self.published_of(database).scn.load(SeqCst)
    }

    /// Packed durable position of a database.
    pub fn durable(&self, database: u16) -> u64 {
        self.published_of(database).durable.load(SeqCst)
    }

    /// Whether the instance publishes that it runs.
    pub fn running(&self) -> bool {
        self.truth().settings.running.load(SeqCst) != 0
    }

    pub fn config(&self) -> SegmentConfig {
        let settings = &self.truth().settings;
        SegmentConfig {
            commit_mode: settings.commit_mode.load(SeqCst),
            durable_visibility: settings.durable_visibility.load(SeqCst) != 0,
            write_wait_ms: settings.write_wait_ms.load(SeqCst),
            commit_wait_ms: settings.commit_wait_ms.load(SeqCst),
        }
    }
}
