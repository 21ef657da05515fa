//! Creating and mapping the segment. A mapping in use is never unmapped: sessions keep plain references, and a
//! process maps a segment once.

use crate::layout::{DatabaseEntry, DatabaseState, Header, Layout, MAGIC, OtherWriters, Slot, VERSION};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

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
    mapping: &'static Mapping,
}

/// What this process knows of the file that it has mapped.
struct Mapping {
    device: u64,
    inode: u64,
    /// The path has been seen to name another file.
    left: AtomicBool,
}

impl Segment {
    /// Maps the segment at `path`, creating it when there is none or when it is of another version or
    /// instance, and gives it the permissions `mode`, whatever the umask. The flag says whether it is new. Only the
    /// instance calls this, under its directory lock.
    ///
    /// # Errors
    /// When the file cannot be made or mapped.
    pub fn create(path: &Path, instance: [u8; 16], mode: u32) -> Result<(Segment, bool), SegmentError> {
        match Segment::open(path, instance) {
            Ok(segment) => {
                let metadata = std::fs::metadata(path)?;
                if metadata.mode() & 0o777 != mode {
                    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
                }
                return Ok((segment, false));
            }
            Err(SegmentError::Io(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error.into());
            }
            Err(SegmentError::Io(_)) => {}
            Err(_) => {
                retire(path);
                std::fs::remove_file(path)?;
            }
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        // With room for all of it: an access to a page for which there is none later would end the process.
        if let Err(error) = allocate(&file, size_of::<Layout>()) {
            drop(std::fs::remove_file(path));
            return Err(error.into());
        }
        let segment = Mapped::file(&file)?.keep();
        let header = segment.header();
        header.version.store(VERSION, SeqCst);
        for (word, bytes) in header.instance.iter().zip(instance.chunks_exact(8)) {
            let mut le = [0; 8];
            le.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(le), SeqCst);
        }
        header.magic.store(MAGIC, SeqCst);
        // Not at its creation: there the umask would take away from it.
        file.set_permissions(Permissions::from_mode(mode))?;
        Ok((segment, true))
    }

    /// Maps an existing segment of `instance`.
    ///
    /// # Errors
    /// When it is not there, or not usable by this build.
    pub fn open(path: &Path, instance: [u8; 16]) -> Result<Segment, SegmentError> {
        let mapped = Mapped::open(path)?;
        let header = &mapped.layout().header;
        let same = header
            .instance
            .iter()
            .zip(instance.chunks_exact(8))
            .all(|(word, bytes)| word.load(SeqCst).to_le_bytes() == bytes);
        if same { Ok(mapped.keep()) } else { Err(SegmentError::OtherInstance) }
    }
}

/// Of a segment of any release: they all begin with magic number, version and whether it is retired.
fn version_of(file: &File) -> Option<u32> {
    let (mut magic, mut version) = ([0; 8], [0; 4]);
    file.read_exact_at(&mut magic, 0).ok()?;
    file.read_exact_at(&mut version, offset_of!(Header, version) as u64).ok()?;
    (u64::from_ne_bytes(magic) == MAGIC).then_some(u32::from_ne_bytes(version))
}

/// Tells the sessions that have the segment mapped, whatever its release, that another one takes its place.
/// Makes `file` `bytes` long, with room for all of them.
fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open; the call touches no memory.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn retire(path: &Path) {
    if let Ok(file) = OpenOptions::new().read(true).write(true).open(path)
        && version_of(&file).is_some()
    {
        // The file is removed next: who finds it gone maps the new one, too.
        let _ = file.write_all_at(&1u32.to_ne_bytes(), offset_of!(Header, retired) as u64);
    }
}

/// A mapping that ends with this value unless it is kept: whoever waits for a segment that it can use tries often.
struct Mapped {
    address: *mut Layout,
    device: u64,
    inode: u64,
}

impl Mapped {
    /// A segment of this version, of whatever instance.
    fn open(path: &Path) -> Result<Mapped, SegmentError> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // Others have other lengths.
        match version_of(&file) {
            Some(VERSION) => Mapped::file(&file),
            Some(found) => Err(SegmentError::Version { found }),
            None => Err(SegmentError::NotASegment),
        }
    }

    fn file(file: &File) -> Result<Mapped, SegmentError> {
        let metadata = file.metadata()?;
        if metadata.len() < size_of::<Layout>() as u64 {
            return Err(SegmentError::NotASegment);
        }
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
        Ok(Mapped { address: address.cast(), device: metadata.dev(), inode: metadata.ino() })
    }

    fn layout(&self) -> &Layout {
        // SAFETY: the mapping is page-aligned and long enough, it lasts as long as this value, and Layout consists
        // of atomics only, for which every bit pattern is valid.
        unsafe { &*self.address }
    }

    /// For the life of the process.
    fn keep(self) -> Segment {
        let Mapped { address, device, inode } = *std::mem::ManuallyDrop::new(self);
        let mapping = Box::leak(Box::new(Mapping { device, inode, left: AtomicBool::new(false) }));
        // SAFETY: as in `layout`, and it is never unmapped now.
        Segment { layout: unsafe { &*address }, mapping }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and whoever borrowed it is gone.
        unsafe { libc::munmap(self.address.cast(), size_of::<Layout>()) };
    }
}

impl Segment {
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

    /// Those that were ever taken. The lowest free slot is taken first, and looking at the others would make pages of
    /// memory of them.
    pub(crate) fn slots_used(&self) -> &'static [Slot] {
        let used = self.header().slots_used.load(SeqCst) as usize;
        &self.layout.slots[..used.min(self.layout.slots.len())]
    }

    /// True once a newer segment has taken its place, as far as this process knows.
    pub fn retired(&self) -> bool {
        self.header().retired.load(SeqCst) != 0 || self.mapping.left.load(SeqCst)
    }

    /// Looks whether `path` still names the file that is mapped. An instance that finds no segment at its path, or
    /// none that it can use, makes a new one and has no means to tell those who have the old one mapped. A path that
    /// names nothing says nothing: the instance may still serve what was removed.
    pub fn check_path(&self, path: &Path) {
        let Ok(metadata) = std::fs::metadata(path) else { return };
        if (metadata.dev(), metadata.ino()) != (self.mapping.device, self.mapping.inode) {
            self.mapping.left.store(true, SeqCst);
        }
    }

    /// State of a database.
    pub fn state(&self, database: u16) -> DatabaseState {
        DatabaseState::from_u32(self.database(database).state.load(SeqCst))
    }

    /// Whether the instance writes the log of the database anew, or died while it did.
    pub fn is_rewriting(&self, database: u16) -> bool {
        self.database(database).rewriting.load(SeqCst) != 0
    }

    /// Whether what the wal-index shows may be an earlier state, see [`Segment::doubt_rewriting`].
    pub fn is_log_in_doubt(&self, database: u16) -> bool {
        self.database(database).rewriting.load(SeqCst) == 2
    }

    /// What becomes of processes without the VFS that write to a database.
    pub fn other_writers(&self, database: u16) -> OtherWriters {
        OtherWriters::from_u32(self.database(database).other_writers.load(SeqCst))
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
