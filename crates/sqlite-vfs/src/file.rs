//! The file methods. A protected database file and its WAL carry a pointer to the [`MainFile`] state.

use crate::bindings::{File, IoMethods, LOCK_EXCLUSIVE, SYNC_NORMAL, Sqlite3, code, control};
use crate::checksums::{self, SUM_BYTES};
use crate::commit;
use crate::host::{Host, host, sqlite_string};
use crate::main_file::MainFile;
use crate::pragma;
use crate::report::{Cause, report, shield};
use crate::shim_file::{
    Kind, Place, ShimFile, check_reserved_lock, close, device_characteristics, file_size, parts, real,
    sector_size, unlock,
};
use crate::super_journal;
use standfast_types::{WAL_HEADER_BYTES, WalFile};
use std::ffi::{CStr, c_char, c_int, c_void};

/// Makes `file` a file of the shim around the host's file in `place`, which has just been opened.
///
/// # Safety
/// `file` has room for a [`ShimFile`], and `place` holds an open file of the host that outlives it; for [`Kind::Main`]
/// `main` comes from `Box::into_raw`, for [`Kind::Log`] it outlives the file, for [`Kind::SuperJournal`] it is null.
pub(crate) unsafe fn install(file: *mut File, place: Place, kind: Kind, main: *const MainFile) {
    // SAFETY: as the caller promises.
    unsafe {
        let methods = match kind {
            Kind::Main | Kind::Log => methods_for(&*(*place.real).methods),
            Kind::SuperJournal => &raw const super_journal::METHODS,
        };
        let Place { real, own_words } = place;
        file.cast::<ShimFile>().write(ShimFile { base: File { methods }, kind, main, real, own_words });
    }
}

/// Argument of the file control [`control::FIND`].
#[repr(C)]
pub(crate) struct Find {
    /// Address of [`METHODS`]: another copy of this library in the process has a different one, and does not answer.
    key: *const c_void,
    main: *const MainFile,
}

/// Returns the state of the open file of a schema, if this shim opened it as a protected database. A VFS stacked on the
/// shim passes the operation on, although its file structure does not show the shim's file.
///
/// # Safety
/// `schema` is a C string, and `connection` an open connection of `host` that the caller uses; the state lives as long
/// as the connection has the schema.
pub(crate) unsafe fn main_of<'a>(
    host: &Host,
    connection: *mut Sqlite3,
    schema: *const c_char,
) -> Option<&'a MainFile> {
    let mut find = Find { key: (&raw const METHODS).cast(), main: std::ptr::null() };
    // SAFETY: as the caller promises; the shim's file expects this argument with this operation, and other files do not
    // know the operation.
    unsafe {
        (host.file_control)(connection, schema, control::FIND, (&raw mut find).cast());
        find.main.as_ref()
    }
}

/// Returns the shim's methods with the version of the host's, so that SQLite uses no feature that the host's file
/// lacks.
fn methods_for(real: &IoMethods) -> *const IoMethods {
    match real.version {
        3.. if real.shm_map.is_some() => &raw const METHODS[2],
        2 if real.shm_map.is_some() => &raw const METHODS[1],
        _ => &raw const METHODS[0],
    }
}

static METHODS: [IoMethods; 3] = [methods(1), methods(2), methods(3)];

const fn methods(version: c_int) -> IoMethods {
    IoMethods {
        version,
        close: Some(close),
        read: Some(read),
        write: Some(write),
        truncate: Some(truncate),
        sync: Some(sync),
        file_size: Some(file_size),
        lock: Some(lock),
        unlock: Some(unlock),
        check_reserved_lock: Some(check_reserved_lock),
        file_control: Some(file_control),
        sector_size: Some(sector_size),
        device_characteristics: Some(device_characteristics),
        shm_map: Some(shm_map),
        shm_lock: Some(shm_lock),
        shm_barrier: Some(shm_barrier),
        shm_unmap: Some(shm_unmap),
        fetch: Some(fetch),
        unfetch: Some(unfetch),
    }
}

unsafe extern "C" fn read(file: *mut File, buffer: *mut c_void, count: c_int, offset: i64) -> c_int {
    shield(|| {
        // SAFETY: SQLite passes an open file of ours.
        let (kind, main) = unsafe { parts(file) };
        main.durable_ns.set(0);
        if let Err(result) = commit::before_read(main) {
            return result;
        }
        if kind == Kind::Log {
            let mut frames = main.frames.borrow_mut();
            if count as usize == SUM_BYTES {
                match checksums::complete(&mut frames, &mut RealLog(file), offset as u64) {
                    Ok(Some(sum)) => {
                        if let Err(result) =
                            frames.before_read(offset as u64, count as usize, into_real(file))
                        {
                            return result;
                        }
                        // SAFETY: SQLite passes a buffer of `count` bytes, which is as many as a checksum has.
                        unsafe {
                            std::ptr::copy_nonoverlapping(sum.as_ptr(), buffer.cast::<u8>(), SUM_BYTES)
                        };
                        return code::OK;
                    }
                    Ok(None) => {}
                    Err(result) => return result,
                }
            }
            if let Err(result) = frames.before_read(offset as u64, count as usize, into_real(file)) {
                return result;
            }
        }
        real!(file, read(buffer, count, offset))
    })
}

unsafe extern "C" fn write(file: *mut File, buffer: *const c_void, count: c_int, offset: i64) -> c_int {
    shield(|| {
        // SAFETY: SQLite passes an open file of ours.
        let (kind, main) = unsafe { parts(file) };
        if let Err(result) = may_write(kind, main) {
            return result;
        }
        // SAFETY: SQLite passes `count` bytes.
        let data = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), count as usize) };
        // `may_write` lets only writes to a WAL through.
        if let Err(result) = main.frames.borrow_mut().write(offset as u64, data, into_real(file)) {
            return result;
        }
        if offset == 0 && data.len() == WAL_HEADER_BYTES {
            // The header must be durable before any frame of its generation, whatever `synchronous` is: after a power
            // loss the instance tells by the header which frames the redo continues.
            return real!(file, sync(SYNC_NORMAL));
        }
        code::OK
    })
}

fn into_real(file: *mut File) -> impl FnMut(u64, &[u8]) -> Result<(), c_int> {
    move |offset, data| match real!(file, write(data.as_ptr().cast(), data.len() as c_int, offset as i64)) {
        code::OK => Ok(()),
        result => Err(result),
    }
}

/// The host's file of a WAL.
struct RealLog(*mut File);

impl WalFile for RealLog {
    type Error = c_int;

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), c_int> {
        match real!(self.0, read(out.as_mut_ptr().cast(), out.len() as c_int, offset as i64)) {
            code::OK => Ok(()),
            result => Err(result),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), c_int> {
        into_real(self.0)(offset, data)
    }
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    shield(|| {
        // SAFETY: SQLite passes an open file of ours.
        let (kind, main) = unsafe { parts(file) };
        match may_write(kind, main) {
            Ok(()) => real!(file, truncate(size)),
            Err(result) => result,
        }
    })
}

fn may_write(kind: Kind, main: &MainFile) -> Result<(), c_int> {
    match kind {
        Kind::Log => main.may_write_log(),
        Kind::Main | Kind::SuperJournal => {
            refuse_outside_log(main, code::READONLY, "the database file itself was to be written");
            Err(code::READONLY)
        }
    }
}

/// Reports an operation that occurs only on a database that is not, or shall no longer be, in WAL mode.
pub(crate) fn refuse_outside_log(main: &MainFile, result: c_int, what: &str) {
    let path = &main.database.path;
    let text = format!(
        "refused on the protected database {path}: {what}. It must stay in WAL mode and only its instance \
         checkpoints it; run `standfast unprotect {path}` first"
    );
    report(path, Cause::WalOnly, result, &text);
}

unsafe extern "C" fn sync(file: *mut File, flags: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    shield(|| match unsafe { parts(file) }.0 {
        // The redo log makes commits durable; the instance syncs the WAL before it checkpoints.
        Kind::Log => code::OK,
        Kind::Main | Kind::SuperJournal => real!(file, sync(flags)),
    })
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> c_int {
    shield(|| {
        // The last connection to close a database takes this lock to checkpoint the database and delete its WAL; a
        // connection that changes the journal mode takes it too.
        if level == LOCK_EXCLUSIVE {
            return code::BUSY;
        }
        // SAFETY: SQLite passes an open file of ours, with state; it does not lock a WAL.
        unsafe { parts(file) }.1.lock_asked();
        real!(file, lock(level))
    })
}

unsafe extern "C" fn file_control(file: *mut File, operation: c_int, argument: *mut c_void) -> c_int {
    shield(|| {
        // SAFETY: SQLite passes an open file of ours.
        let (kind, main) = unsafe { parts(file) };
        if kind == Kind::Log {
            return real!(file, file_control(operation, argument));
        }
        match operation {
            control::COMMIT_PHASETWO => {
                let durable = commit::phase_two(main);
                if durable != code::OK {
                    return durable;
                }
            }
            control::PRAGMA => {
                // SAFETY: for this operation the argument is SQLite's array of result, name and value.
                let taken = unsafe { pragma::run(main, argument.cast::<*mut c_char>()) };
                if taken != code::NOTFOUND {
                    return taken;
                }
            }
            control::FIND if !argument.is_null() => {
                // SAFETY: only `main_of` asks this.
                let find = unsafe { &mut *argument.cast::<Find>() };
                if find.key == (&raw const METHODS).cast() {
                    find.main = main;
                    return code::OK;
                }
            }
            control::PDB if !argument.is_null() => main.used_by(argument.cast()),
            // SQLite then takes no blocking locks, and none before the read lock: the queue for the write lock serves
            // their purpose.
            control::LOCK_TIMEOUT => return code::NOTFOUND,
            control::VFSNAME => {
                let result = real!(file, file_control(operation, argument));
                // SAFETY: for this operation the argument is the place of a string that SQLite frees.
                return unsafe { prefix_name(result, argument.cast()) };
            }
            _ => {}
        }
        real!(file, file_control(operation, argument))
    })
}

/// Puts this VFS's name and a slash before the inner VFS's name, SQLite's convention for stacked VFSs.
///
/// # Safety
/// `name` is the place of a string made by SQLite's allocator, or of null.
unsafe fn prefix_name(result: c_int, name: *mut *mut c_char) -> c_int {
    let Some(host) = host().filter(|_| result == code::OK) else { return result };
    // SAFETY: as the caller promises; the old string is freed once and replaced.
    unsafe {
        if !(*name).is_null() {
            let inner = CStr::from_ptr(*name).to_string_lossy().into_owned();
            (host.free)((*name).cast());
            *name = sqlite_string(host, &format!("standfast/{inner}"));
        }
    }
    result
}

unsafe extern "C" fn shm_map(
    file: *mut File,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    address: *mut *mut c_void,
) -> c_int {
    shield(|| {
        let result = real!(file, shm_map(region, bytes, extend, address));
        if region == 0 && !address.is_null() {
            // SAFETY: SQLite passes an open file of ours and a place for the address, which has been set.
            unsafe { parts(file).1.wal_index.set((*address).cast()) };
        }
        result
    })
}

unsafe extern "C" fn shm_lock(file: *mut File, offset: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    shield(|| unsafe { parts(file) }.1.shm_lock(offset, count, flags))
}

unsafe extern "C" fn shm_barrier(file: *mut File) {
    real!(file, shm_barrier())
}

unsafe extern "C" fn shm_unmap(file: *mut File, _delete: c_int) -> c_int {
    shield(|| {
        // SAFETY: SQLite passes an open file of ours.
        let main = unsafe { parts(file) }.1;
        main.forget_write_lock();
        main.wal_index.set(std::ptr::null_mut());
        // The wal-index is never deleted: the instance has it mapped.
        real!(file, shm_unmap(0))
    })
}

unsafe extern "C" fn fetch(file: *mut File, offset: i64, count: c_int, page: *mut *mut c_void) -> c_int {
    shield(|| {
        // SAFETY: SQLite passes an open file of ours.
        let (_, main) = unsafe { parts(file) };
        main.durable_ns.set(0);
        match commit::before_read(main) {
            Ok(()) => real!(file, fetch(offset, count, page)),
            Err(result) => result,
        }
    })
}

unsafe extern "C" fn unfetch(file: *mut File, offset: i64, page: *mut c_void) -> c_int {
    real!(file, unfetch(offset, page))
}
