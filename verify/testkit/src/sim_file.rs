//! One open file of SQLite on a simulated machine: the behaviour of the VFS without its calling convention. Errors are
//! SQLite result codes.

use crate::file_tree::{FileId, normal};
use crate::locks::{HandleId, LockLevel};
use crate::machine::{Boot, Reach, SimMachine, State};
use crate::sim_vfs_shm::Shm;
use rusqlite::ffi;
use std::ffi::{c_int, c_void};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) type Code<T> = Result<T, c_int>;

/// Maps errors of an operation to its result code, except for a full disk, which has the same code everywhere.
fn code(of_operation: c_int) -> impl Fn(Error) -> c_int {
    move |error| if error.kind() == ErrorKind::StorageFull { ffi::SQLITE_FULL } else { of_operation }
}

#[derive(Debug)]
pub(crate) struct OpenFile {
    machine: Arc<SimMachine>,
    boot: Boot,
    file: FileId,
    handle: HandleId,
    delete_on_close: Option<PathBuf>,
    /// Mapped shared memory. The mutex is only needed because methods take `&self`: SQLite never runs two calls on one
    /// file in parallel.
    shm: Mutex<Option<Arc<Shm>>>,
}

impl OpenFile {
    /// Opens `path`, or a new temporary file when it is None, according to the `SQLITE_OPEN_` bits of `flags`.
    pub(crate) fn open(machine: &Arc<SimMachine>, path: Option<&Path>, flags: c_int) -> Code<OpenFile> {
        let boot = machine.boot();
        let wants = |flag| flags & flag != 0;
        let (file, handle) = machine
            .call(boot, |state| {
                let found = path.and_then(|path| state.tree.find(path));
                let file = match (path, found) {
                    (_, Some(_)) if wants(ffi::SQLITE_OPEN_CREATE) && wants(ffi::SQLITE_OPEN_EXCLUSIVE) => {
                        return Err(ErrorKind::AlreadyExists.into());
                    }
                    (_, Some(file)) => file,
                    (Some(path), None) if wants(ffi::SQLITE_OPEN_CREATE) => state.tree.create(path),
                    (Some(_), None) => return Err(ErrorKind::NotFound.into()),
                    (None, None) => state.tree.create_unnamed(Default::default()),
                };
                state.tree.opened(file);
                Ok((file, state.next_handle()))
            })
            .map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists | ErrorKind::NotFound => ffi::SQLITE_CANTOPEN,
                _ => ffi::SQLITE_IOERR,
            })?;
        let delete_on_close = path.filter(|_| wants(ffi::SQLITE_OPEN_DELETEONCLOSE)).map(normal);
        Ok(OpenFile {
            machine: Arc::clone(machine),
            boot,
            file,
            handle,
            delete_on_close,
            shm: Mutex::new(None),
        })
    }

    /// Reads the bytes that exist and fills the rest of `out` with zeros, which is `SQLITE_IOERR_SHORT_READ`.
    pub(crate) fn read(&self, out: &mut [u8], offset: u64) -> Code<()> {
        let copied = self.machine.call(self.boot, |state| {
            let bytes = state.content(self.file)?.seen();
            let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
            let copied = rest.len().min(out.len());
            out[..copied].copy_from_slice(&rest[..copied]);
            Ok(copied)
        });
        let copied = copied.map_err(code(ffi::SQLITE_IOERR_READ))?;
        out[copied..].fill(0);
        if copied == out.len() { Ok(()) } else { Err(ffi::SQLITE_IOERR_SHORT_READ) }
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Code<()> {
        self.machine
            .call(self.boot, |state| state.write(self.file, offset, data))
            .map_err(code(ffi::SQLITE_IOERR_WRITE))
    }

    pub(crate) fn truncate(&self, size: u64) -> Code<()> {
        self.machine
            .call(self.boot, |state| state.resize(self.file, size))
            .map_err(code(ffi::SQLITE_IOERR_TRUNCATE))
    }

    pub(crate) fn sync(&self) -> Code<()> {
        let synced = self.machine.boundary(self.boot, |state, reach| {
            if reach == Reach::Durable {
                state.tree.sync(self.file);
            }
            Ok(())
        });
        synced.map_err(code(ffi::SQLITE_IOERR_FSYNC))
    }

    pub(crate) fn size(&self) -> Code<u64> {
        let size = self.machine.call(self.boot, |state| Ok(state.content(self.file)?.seen().len() as u64));
        size.map_err(code(ffi::SQLITE_IOERR_FSTAT))
    }

    pub(crate) fn lock(&self, level: c_int) -> Code<()> {
        let Some(level) = LockLevel::from_number(level) else { return Err(ffi::SQLITE_MISUSE) };
        let granted = self.machine.call(self.boot, |state| {
            Ok(state.file_locks.entry(self.file).or_default().lock(self.handle, level))
        });
        granted_or_busy(granted.map_err(code(ffi::SQLITE_IOERR_LOCK))?)
    }

    /// Takes effect on a machine without power too, like every call that releases something.
    pub(crate) fn unlock(&self, level: c_int) -> Code<()> {
        let Some(level) = LockLevel::from_number(level) else { return Err(ffi::SQLITE_MISUSE) };
        self.give_back(|state| {
            if let Some(locks) = state.file_locks.get_mut(&self.file) {
                locks.unlock(self.handle, level);
            }
        });
        self.machine.call(self.boot, |_| Ok(())).map_err(code(ffi::SQLITE_IOERR_UNLOCK))
    }

    pub(crate) fn is_reserved(&self) -> Code<bool> {
        let reserved = self.machine.call(self.boot, |state| {
            Ok(state.file_locks.get(&self.file).is_some_and(|locks| locks.reserved()))
        });
        reserved.map_err(code(ffi::SQLITE_IOERR_CHECKRESERVEDLOCK))
    }

    pub(crate) fn sector_size(&self) -> c_int {
        self.machine.options.sector_size as c_int
    }

    pub(crate) fn characteristics(&self) -> c_int {
        if self.machine.options.powersafe_overwrite { ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE } else { 0 }
    }

    /// Address of a region of the shared memory; None when the region does not exist and `extend` is false.
    pub(crate) fn shm_map(&self, region: usize, bytes: usize, extend: bool) -> Code<Option<*mut c_void>> {
        let shm = self.machine.call(self.boot, |state| {
            let mut mapped = self.shm.lock().unwrap_or_else(PoisonError::into_inner);
            let shm = mapped.get_or_insert_with(|| Arc::clone(state.shm.entry(self.file).or_default()));
            Ok(Arc::clone(shm))
        });
        Ok(shm.map_err(code(ffi::SQLITE_IOERR_SHMMAP))?.region(region, bytes, extend))
    }

    pub(crate) fn shm_lock(&self, first: c_int, count: c_int, flags: c_int) -> Code<()> {
        let Some(shm) = self.mapped() else { return Err(ffi::SQLITE_IOERR_SHMLOCK) };
        let slots = ffi::SQLITE_SHM_NLOCK;
        if first < 0 || count < 1 || first > slots - count {
            return Err(ffi::SQLITE_MISUSE);
        }
        let mask = (((1_u32 << count) - 1) << first) as u8;
        let taken = if flags & ffi::SQLITE_SHM_LOCK != 0 {
            let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
            self.machine.call(self.boot, |_| Ok(shm.locks(|locks| locks.lock(self.handle, mask, exclusive))))
        } else {
            shm.locks(|locks| locks.unlock(self.handle, mask));
            self.machine.call(self.boot, |_| Ok(true))
        };
        granted_or_busy(taken.map_err(code(ffi::SQLITE_IOERR_SHMLOCK))?)
    }

    /// Unmaps the shared memory. The last connection that unmaps it drops it, so there is no file to delete.
    pub(crate) fn shm_unmap(&self) {
        let shm = self.shm.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(shm) = shm else { return };
        shm.locks(|locks| locks.forget(self.handle));
        self.give_back(|state| {
            // Mapping happens under the same lock: one reference is the map's and one is `shm`.
            if Arc::strong_count(&shm) == 2 {
                state.shm.remove(&self.file);
            }
        });
    }

    fn mapped(&self) -> Option<Arc<Shm>> {
        self.shm.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs bookkeeping only in the boot of this file; later boots have no state of it.
    fn give_back(&self, forget: impl FnOnce(&mut State)) {
        let mut state = self.machine.lock();
        if state.is_boot(self.boot) {
            forget(&mut state);
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shm_unmap();
        if let Some(path) = &self.delete_on_close {
            let _ = self.machine.call(self.boot, |state| Ok(state.tree.remove(path)));
        }
        self.give_back(|state| {
            if let Some(locks) = state.file_locks.get_mut(&self.file) {
                locks.unlock(self.handle, LockLevel::None);
            }
            state.tree.closed(self.file);
        });
    }
}

fn granted_or_busy(granted: bool) -> Code<()> {
    if granted { Ok(()) } else { Err(ffi::SQLITE_BUSY) }
}

/// `xDelete`: durable, and a sync boundary, when `sync_directory` is set.
pub(crate) fn delete(machine: &SimMachine, path: &Path, sync_directory: bool) -> Code<()> {
    let remove = |state: &mut State| {
        if state.tree.remove(path) { Ok(()) } else { Err(Error::from(ErrorKind::NotFound)) }
    };
    let removed = if sync_directory {
        machine.boundary(machine.boot(), |state, reach| {
            remove(state)?;
            if reach == Reach::Durable {
                state.tree.sync_names();
            }
            Ok(())
        })
    } else {
        machine.call(machine.boot(), remove)
    };
    removed.map_err(|error| match error.kind() {
        ErrorKind::NotFound => ffi::SQLITE_IOERR_DELETE_NOENT,
        _ => ffi::SQLITE_IOERR_DELETE,
    })
}

/// `xAccess`. An empty file does not exist for SQLite, as in its Unix VFS.
pub(crate) fn access(machine: &SimMachine, path: &Path, flags: c_int) -> Code<bool> {
    let found = machine.call(machine.boot(), |state| {
        let size =
            state.tree.find(path).map(|file| state.content(file).map_or(0, |content| content.seen().len()));
        Ok(size.is_some_and(|size| flags != ffi::SQLITE_ACCESS_EXISTS || size > 0))
    });
    found.map_err(code(ffi::SQLITE_IOERR_ACCESS))
}
