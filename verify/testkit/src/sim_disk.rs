//! Implements the `standfast-io` traits on a simulated machine.

use crate::SECTOR_BYTES;
use crate::file_tree::FileId;
use crate::machine::{Boot, Reach, SimMachine, State};
use standfast_io::{Disk, LogFile};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The disk of a simulated machine in one boot. After a power loss every call fails, and [`SimMachine::disk`] returns a
/// new disk. Directories need not be created.
#[derive(Clone, Debug)]
pub struct SimDisk {
    machine: Arc<SimMachine>,
    boot: Boot,
}

impl SimDisk {
    pub(crate) fn new(machine: Arc<SimMachine>, boot: Boot) -> SimDisk {
        SimDisk { machine, boot }
    }

    fn file(&self, file: FileId, path: &Path) -> Arc<dyn LogFile> {
        let machine = Arc::clone(&self.machine);
        Arc::new(SimLogFile { machine, boot: self.boot, file, path: path.to_owned() })
    }
}

fn existing(state: &State, path: &Path) -> Result<FileId> {
    state.reach(path)?;
    state
        .tree
        .find(path)
        .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no file {}", path.display())))
}

/// Makes the names durable unless the call is in flight or the disk lies.
fn sync_names(state: &mut State, reach: Reach) {
    if reach == Reach::Durable {
        state.tree.sync_names();
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path, bytes: u64) -> Result<Arc<dyn LogFile>> {
        let created = self.machine.boundary(self.boot, |state, reach| {
            state.reach(path)?;
            if state.tree.find(path).is_some() {
                return Err(ErrorKind::AlreadyExists.into());
            }
            if bytes > state.free_bytes() {
                return Err(ErrorKind::StorageFull.into());
            }
            let file = state.tree.create(path);
            state.resize(file, bytes)?;
            if reach == Reach::Durable {
                state.tree.sync(file);
            }
            Ok(())
        });
        match created {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                // Like the real disk, remove the file that could not be completed.
                let _ = self.machine.call(self.boot, |state| {
                    state.reach(path)?;
                    Ok(state.tree.remove(path))
                });
                Err(error)
            }
            other => other.and_then(|()| self.open(path)),
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn LogFile>> {
        let file = self.machine.call(self.boot, |state| {
            let file = existing(state, path)?;
            state.tree.opened(file);
            Ok(file)
        })?;
        Ok(self.file(file, path))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.machine.call(self.boot, |state| Ok(state.content(existing(state, path)?)?.seen().to_vec()))
    }

    /// Writes, syncs and renames a file `PATH.new`, like the real disk. A power loss in between may leave that file
    /// behind.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut fresh = path.file_name().ok_or_else(|| Error::from(ErrorKind::InvalidInput))?.to_owned();
        fresh.push(".new");
        let fresh = path.with_file_name(fresh);
        self.machine.boundary(self.boot, |state, reach| {
            state.reach(path)?;
            if bytes.len() as u64 > state.free_bytes() {
                return Err(ErrorKind::StorageFull.into());
            }
            let file = state.tree.create(&fresh);
            state.write(file, 0, bytes)?;
            if reach == Reach::InFlight && state.rng.chance(50) {
                return Ok(());
            }
            if reach != Reach::Lied {
                state.tree.sync(file);
            }
            state.tree.rename(&fresh, path);
            sync_names(state, reach);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.machine.boundary(self.boot, |state, reach| {
            existing(state, from)?;
            state.tree.rename(from, to);
            sync_names(state, reach);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.machine.boundary(self.boot, |state, reach| {
            state.reach(path)?;
            state.tree.remove(path);
            sync_names(state, reach);
            Ok(())
        })
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.machine.call(self.boot, |state| {
            state.reach(directory)?;
            Ok(state.tree.list(directory))
        })
    }

    fn in_turns(&self) -> bool {
        true
    }

    /// Returns a hash of the content in place of the time.
    fn last_write(&self, path: &Path) -> Result<Option<(u64, u64)>> {
        self.machine.call(self.boot, |state| {
            let file = existing(state, path)?;
            let content = state.tree.content(file).ok_or_else(|| Error::from(ErrorKind::NotFound))?.seen();
            let mut hasher = DefaultHasher::new();
            content.hash(&mut hasher);
            Ok(Some((content.len() as u64, hasher.finish())))
        })
    }

    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        self.machine.call(self.boot, |state| Ok(state.free_bytes()))
    }
}

struct SimLogFile {
    machine: Arc<SimMachine>,
    boot: Boot,
    file: FileId,
    path: PathBuf,
}

impl LogFile for SimLogFile {
    /// Refuses what direct I/O refuses: addresses, offsets and lengths that are not multiples of a sector.
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()> {
        let misaligned = |number: u64| !number.is_multiple_of(SECTOR_BYTES);
        if misaligned(data.as_ptr() as u64) || misaligned(data.len() as u64) || misaligned(offset) {
            return Err(Error::from_raw_os_error(libc::EINVAL));
        }
        self.machine.boundary(self.boot, |state, reach| {
            if let Err(error) = state.reach(&self.path) {
                if state.rng.chance(50) {
                    state.write(self.file, offset, data)?;
                }
                return Err(error);
            }
            match reach {
                Reach::Durable => state.write_through(self.file, offset, data),
                Reach::InFlight | Reach::Lied => state.write(self.file, offset, data),
            }
        })
    }

    fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        self.machine.call(self.boot, |state| {
            state.reach(&self.path)?;
            state.write(self.file, offset, data)
        })
    }

    fn sync(&self) -> Result<()> {
        self.machine.boundary(self.boot, |state, reach| {
            state.reach(&self.path)?;
            if reach == Reach::Durable {
                state.tree.sync(self.file);
            }
            Ok(())
        })
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        self.machine.call(self.boot, |state| {
            state.reach(&self.path)?;
            let bytes = state.content(self.file)?.seen();
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let end = start.saturating_add(out.len());
            out.copy_from_slice(bytes.get(start..end).ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?);
            Ok(())
        })
    }

    fn len(&self) -> Result<u64> {
        self.machine.call(self.boot, |state| {
            state.reach(&self.path)?;
            Ok(state.content(self.file)?.seen().len() as u64)
        })
    }
}

impl Drop for SimLogFile {
    fn drop(&mut self) {
        // Handles of an earlier boot are no longer counted.
        let mut state = self.machine.lock();
        if state.is_boot(self.boot) {
            state.tree.closed(self.file);
        }
    }
}
