//! Creating and mapping the segment. A mapping is never unmapped: sessions keep plain references, and a
//! process maps a segment once.

use crate::layout::{DatabaseEntry, DatabaseState, Header, Layout, MAGIC, Slot, VERSION};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

/// Why a segment cannot be used.
#[derive(Debug)]
pub enum SegmentError {
    /// The file cannot be opened or mapped.
    Io(io::Error),
    /// It is not a segment, or not finished.
    NotASegment,
    /// Another version of Standfast made it.
    Version {
        /// Version found.
        found: u32,
    },
    /// It belongs to another instance.
    OtherInstance,
}

impl From<io::Error> for SegmentError {
    fn from(error: io::Error) -> Self {
        SegmentError::Io(error)
    }
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SegmentError::Io(error) => write!(f, "shared memory: {error}"),
            SegmentError::NotASegment => write!(f, "shared memory is not a Standfast segment"),
            SegmentError::Version { found } => write!(
                f,
                "shared memory has version {found}, this build has version {VERSION}: extension and instance must be of the same release"
            ),
            SegmentError::OtherInstance => write!(f, "shared memory belongs to another instance"),
        }
    }
}

impl std::error::Error for SegmentError {}

/// What the instance tells sessions; changeable while running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Bits of [`crate::CommitMode`].
    pub commit_mode: u32,
    /// Readers wait until what they see is durable.
    pub durable_visibility: bool,
    /// How long writers wait for an instance that does not run.
    pub write_wait_ms: u32,
    /// How long a commit waits without being released before it reports "outcome unknown".
    pub commit_wait_ms: u32,
}

/// A mapped segment.
#[derive(Clone, Copy)]
pub struct Segment {
    layout: &'static Layout,
}

impl Segment {
    /// Maps the segment at `path`, creating it when there is none or when it is of another version or
    /// instance. The flag says whether it is new. Only the instance calls this, under its directory lock.
    ///
    /// # Errors
    /// When the file cannot be made or mapped.
    pub fn create(path: &Path, instance: [u8; 16], mode: u32) -> Result<(Segment, bool), SegmentError> {
        match Segment::open(path, instance) {
            Ok(segment) => return Ok((segment, false)),
            Err(SegmentError::Io(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error.into());
            }
            Err(SegmentError::Io(_)) => {}
            Err(_) => {
                if let Ok(old) = Segment::map(path) {
                    old.header().retired.store(1, SeqCst);
                }
                std::fs::remove_file(path)?;
            }
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)?;
        file.set_len(size_of::<Layout>() as u64)?;
        let segment = Segment::map_file(&file)?;
        let header = segment.header();
        header.version.store(VERSION, SeqCst);
        for (word, bytes) in header.instance.iter().zip(instance.chunks_exact(8)) {
            let mut le = [0; 8];
            le.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(le), SeqCst);
        }
        header.magic.store(MAGIC, SeqCst);
        Ok((segment, true))
    }

    /// Maps an existing segment of `instance`.
    ///
    /// # Errors
    /// When it is not there, or not usable by this build.
    pub fn open(path: &Path, instance: [u8; 16]) -> Result<Segment, SegmentError> {
        let segment = Segment::map(path)?;
        let header = segment.header();
        if header.magic.load(SeqCst) != MAGIC {
            return Err(SegmentError::NotASegment);
        }
        let found = header.version.load(SeqCst);
        if found != VERSION {
            return Err(SegmentError::Version { found });
        }
        let same = header
            .instance
            .iter()
            .zip(instance.chunks_exact(8))
            .all(|(word, bytes)| word.load(SeqCst).to_le_bytes() == bytes);
        if same { Ok(segment) } else { Err(SegmentError::OtherInstance) }
    }

    fn map(path: &Path) -> Result<Segment, SegmentError> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() < size_of::<Layout>() as u64 {
            return Err(SegmentError::NotASegment);
        }
        Segment::map_file(&file)
    }

    fn map_file(file: &std::fs::File) -> Result<Segment, SegmentError> {
        // SAFETY: a shared mapping of a file that is at least this long and that nobody truncates (it is
        // only ever removed); the address is chosen by the kernel.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Layout>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the mapping is page-aligned, long enough, never unmapped, and Layout consists of atomics
        // only, for which every bit pattern is valid.
        Ok(Segment { layout: unsafe { &*address.cast::<Layout>() } })
    }

    pub(crate) fn header(&self) -> &'static Header {
        &self.layout.header
    }

    /// Entry of a database; numbers out of range wrap, so that a corrupt marker cannot reach outside.
    pub(crate) fn database(&self, database: u16) -> &'static DatabaseEntry {
        &self.layout.databases[usize::from(database) % self.layout.databases.len()]
    }

    pub(crate) fn slot(&self, slot: usize) -> &'static Slot {
        &self.layout.slots[slot % self.layout.slots.len()]
    }

    pub(crate) fn slots(&self) -> &'static [Slot] {
        &self.layout.slots
    }

    /// True once a newer segment has taken its place.
    pub fn retired(&self) -> bool {
        self.header().retired.load(SeqCst) != 0
    }

    /// State of a database.
    pub fn state(&self, database: u16) -> DatabaseState {
        DatabaseState::from_u32(self.database(database).state.load(SeqCst))
    }

    /// SCN of the last captured commit of a database.
    pub fn scn(&self, database: u16) -> u64 {
        self.database(database).scn.load(SeqCst)
    }

    /// Whether the instance says that it runs.
    pub fn running(&self) -> bool {
        self.header().running.load(SeqCst) != 0
    }

    /// The settings in force.
    pub fn config(&self) -> SegmentConfig {
        let header = self.header();
        SegmentConfig {
            commit_mode: header.commit_mode.load(SeqCst),
            durable_visibility: header.durable_visibility.load(SeqCst) != 0,
            write_wait_ms: header.write_wait_ms.load(SeqCst),
            commit_wait_ms: header.commit_wait_ms.load(SeqCst),
        }
    }
}
