//! The VFS: opens protected databases through the shim and forwards everything else.

use crate::bindings::{File, SystemCall, Vfs, code, open};
use crate::database::Database;
use crate::file::{self, install};
use crate::host::{Host, host};
use crate::main_file::MainFile;
use crate::new_connection::on_new_connection;
use crate::report::{Cause, report, shield, shield_with};
use crate::shim_file::{Kind, Place, SHIM_BYTES};
use crate::turn;
use standfast_session::Marker;
use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_double, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Name under which the VFS is registered.
pub const NAME: &CStr = c"standfast";

/// Registers the VFS around the host's default one. False when another copy of this library has done so already.
///
/// # Errors
/// When SQLite has no default VFS or rejects the registration.
pub(crate) fn register(host: &Host, default: bool) -> Result<bool, String> {
    // SAFETY: functions of the host with valid arguments; registered VFSs live as long as the process.
    unsafe {
        let existing = (host.vfs_find)(NAME.as_ptr());
        if !existing.is_null() {
            return Ok((*existing).open.is_some_and(|open| open as usize == x_open as *const () as usize));
        }
        let real = (host.vfs_find)(std::ptr::null());
        if real.is_null() {
            return Err("this SQLite has no default VFS to build upon".into());
        }
        let vfs = Box::into_raw(Box::new(around(real)));
        match (host.vfs_register)(vfs, c_int::from(default)) {
            code::OK => {
                if default {
                    stand_before(real, vfs);
                }
                Ok(true)
            }
            result => Err(format!("cannot register the VFS: SQLite code {result}")),
        }
    }
}

/// # Safety
/// `real` is a registered VFS.
unsafe fn around(real: *mut Vfs) -> Vfs {
    // SAFETY: as the caller promises; fields of a later version are read only when that version is there.
    let (version, file_bytes, max_pathname, v3) = unsafe {
        let v3 = ((*real).version >= 3)
            .then(|| ((*real).set_system_call, (*real).get_system_call, (*real).next_system_call));
        ((*real).version, (*real).file_bytes, (*real).max_pathname, v3)
    };
    let (set, get, next) = v3.unwrap_or((None, None, None));
    // SAFETY: as above.
    let (dl_open, last_error) = unsafe { ((*real).dl_open, (*real).get_last_error) };
    Vfs {
        version: version.min(3),
        file_bytes: file_bytes + SHIM_BYTES as c_int,
        max_pathname,
        next: std::ptr::null_mut(),
        name: NAME.as_ptr(),
        app_data: real.cast(),
        open: Some(x_open),
        delete: Some(x_delete),
        access: Some(x_access),
        full_pathname: Some(x_full_pathname),
        dl_open: dl_open.and(Some(x_dl_open)),
        dl_error: dl_open.and(Some(x_dl_error)),
        dl_sym: dl_open.and(Some(x_dl_sym)),
        dl_close: dl_open.and(Some(x_dl_close)),
        randomness: Some(x_randomness),
        sleep: Some(x_sleep),
        current_time: Some(x_current_time),
        get_last_error: last_error.and(Some(x_get_last_error)),
        current_time_int64: Some(x_current_time_int64),
        set_system_call: set.and(Some(x_set_system_call)),
        get_system_call: get.and(Some(x_get_system_call)),
        next_system_call: next.and(Some(x_next_system_call)),
    }
}

/// Calls the method of the host's VFS.
macro_rules! real {
    ($vfs:expr, $method:ident ( $($argument:expr),* ), $missing:expr) => {{
        // SAFETY: SQLite passes our VFS, whose app_data is the host's VFS; the method is called with that one and with
        // the arguments that SQLite passed.
        unsafe {
            let real = real_vfs($vfs);
            match (*real).$method {
                Some(method) => method(real $(, $argument)*),
                None => $missing,
            }
        }
    }};
}

/// # Safety
/// `vfs` is a VFS of this library, which `around` has filled.
unsafe fn real_vfs(vfs: *mut Vfs) -> *mut Vfs {
    // SAFETY: `around` has set it.
    unsafe { (*vfs).app_data.cast() }
}

enum Opening<'a> {
    /// Opened by the VFS below alone, without the shim.
    Plain,
    Main(&'a Path),
    Log(*const MainFile),
    /// Rollback journal of a protected database.
    Journal,
    SuperJournal,
}

type Open = unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int;

/// The VFS below, and its own `xOpen`.
#[derive(Clone, Copy)]
struct Below {
    vfs: usize,
    open: Open,
    /// The shim's VFS, which is to be the default one.
    ours: usize,
}

static BELOW: OnceLock<Below> = OnceLock::new();

/// Replaces `xOpen` of the VFS below: `sqlite3_shutdown` and `sqlite3_initialize` make that VFS the default again, and
/// no other code of the shim runs from then on.
///
/// # Safety
/// Both are registered VFSs.
unsafe fn stand_before(real: *mut Vfs, ours: *mut Vfs) {
    // SAFETY: as the caller promises. Another thread may open a file meanwhile: the pointer changes in one step, and
    // either function opens the file.
    unsafe {
        if let Some(open) = (*real).open {
            let below = Below { vfs: real as usize, open, ours: ours as usize };
            if BELOW.set(below).is_ok() {
                let place = AtomicPtr::from_ptr((&raw mut (*real).open).cast::<*mut c_void>());
                place.store(x_open_below as *mut c_void, SeqCst);
            }
        }
    }
}

/// Opens a file of the host.
///
/// # Safety
/// `real` is a registered VFS other than ours; the rest are arguments for its `xOpen`.
unsafe fn host_open(
    real: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let own = BELOW.get().filter(|below| below.vfs == real as usize).map(|below| below.open);
    // SAFETY: as the caller promises.
    match unsafe { own.or((*real).open) } {
        // SAFETY: as above.
        Some(open) => unsafe { open(real, name, file, flags, out_flags) },
        None => code::CANTOPEN,
    }
}

unsafe extern "C" fn x_open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    shield(|| {
        // SAFETY: `vfs` is ours, and SQLite passes a name that is null or a C string, and memory of the size that the
        // VFS asks for.
        unsafe {
            let real = real_vfs(vfs);
            match opening(name, flags, false) {
                Opening::Plain => host_open(real, name, file, flags, out_flags),
                found => open_in(Place::behind(file), found, false, (real, name, file, flags, out_flags)),
            }
        }
    })
}

unsafe extern "C" fn x_open_below(
    real: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    shield(|| {
        restore_default(real);
        // SAFETY: SQLite passes this VFS, a name that is null or a C string, and memory of the size that this VFS asks
        // for.
        unsafe {
            let file_bytes = usize::try_from((*real).file_bytes).unwrap_or(0);
            // A connection that asks for this VFS by name wants no shim.
            let asked_for = flags & open::MAIN_DB != 0 && !RESTORED.take();
            let found = if asked_for { Opening::Plain } else { opening(name, flags, true) };
            match found {
                Opening::Main(_) | Opening::Log(_) | Opening::SuperJournal if file_bytes >= SHIM_BYTES => {
                    open_in(Place::apart(file_bytes), found, true, (real, name, file, flags, out_flags))
                }
                Opening::Journal => code::CANTOPEN,
                _ => host_open(real, name, file, flags, out_flags),
            }
        }
    })
}

thread_local! {
    /// The open in progress on this thread has made the shim's VFS the default again.
    static RESTORED: Cell<bool> = const { Cell::new(false) };
}

/// Makes the shim's VFS the default again, when `sqlite3_shutdown` and `sqlite3_initialize` have made it the VFS below.
fn restore_default(real: *mut Vfs) {
    RESTORED.set(false);
    let (Some(host), Some(below)) = (host(), BELOW.get()) else { return };
    // SAFETY: functions of the host, and our VFS, which lives as long as the process.
    unsafe {
        if (host.vfs_find)(std::ptr::null()) == real {
            let result = (host.vfs_register)(below.ours as *mut Vfs, 1);
            RESTORED.set(result == code::OK);
            (host.auto_extension)(on_new_connection);
        }
    }
}

/// Opens a file of the host in `place` and puts the shim's file before it.
///
/// # Safety
/// The arguments are those of `xOpen`, with a VFS of the host; `file` has room for ours.
unsafe fn open_in(
    place: Place,
    opening: Opening<'_>,
    below: bool,
    (vfs, name, file, flags, out_flags): (*mut Vfs, *const c_char, *mut File, c_int, *mut c_int),
) -> c_int {
    // SAFETY: as the caller promises; `place` has room for a file of the host. A file whose method table is set must be
    // closed even after a failure. The state outlives the WAL, which SQLite closes first.
    unsafe {
        (*file).methods = std::ptr::null();
        if let Opening::Journal = opening {
            place.free();
            return code::CANTOPEN;
        }
        let real = place.real;
        // SQLite clears only the memory that it takes for the file.
        (*real).methods = std::ptr::null();
        let result = host_open(vfs, name, real, flags, out_flags);
        if result != code::OK {
            if !(*real).methods.is_null()
                && let Some(close) = (*(*real).methods).close
            {
                close(real);
            }
            place.free();
            return result;
        }
        match opening {
            Opening::Main(path) => {
                // Below another VFS the name is not SQLite's.
                let is_uri = !below && flags & open::URI != 0;
                let is_immutable = is_uri && uri_flag(name, c"immutable");
                let state = MainFile::new(Arc::new(Database::at(path)), real, below, is_immutable);
                install(file, place, Kind::Main, state.opened());
            }
            Opening::Log(main) => install(file, place, Kind::Log, main),
            Opening::SuperJournal => install(file, place, Kind::SuperJournal, std::ptr::null()),
            Opening::Plain | Opening::Journal => {}
        }
    }
    code::OK
}

/// Returns whether the URI of a database file sets `key`.
///
/// # Safety
/// `name` is that of a database file that SQLite opens by URI: names and values of the parameters follow it, and an empty
/// name ends them (as `sqlite3_uri_parameter` requires).
unsafe fn uri_flag(name: *const c_char, key: &CStr) -> bool {
    // SAFETY: as the caller promises; each string ends before the next begins.
    unsafe {
        let after = |text: *const c_char| text.add(CStr::from_ptr(text).count_bytes() + 1);
        let mut at = after(name);
        while *at != 0 {
            let value = after(at);
            if CStr::from_ptr(at) == key {
                let value = CStr::from_ptr(value).to_bytes().to_ascii_lowercase();
                return !matches!(value.as_slice(), b"0" | b"no" | b"off" | b"false" | b"");
            }
            at = after(value);
        }
    }
    false
}

/// # Safety
/// `name` is null or a C string.
unsafe fn opening<'a>(name: *const c_char, flags: c_int, below: bool) -> Opening<'a> {
    if name.is_null() {
        return Opening::Plain;
    }
    if flags & open::MAIN_DB != 0 {
        // SAFETY: a C string.
        let path = path_of(unsafe { CStr::from_ptr(name) });
        return match Marker::read(path) {
            Ok(None) => Opening::Plain,
            // Whether the marker is usable is checked once the file is open.
            _ => Opening::Main(path),
        };
    }
    if flags & open::SUPER_JOURNAL != 0 {
        return Opening::SuperJournal;
    }
    if flags & (open::WAL | open::MAIN_JOURNAL) == 0 {
        return Opening::Plain;
    }
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let is_log = flags & open::WAL != 0;
    let ending: &[u8] = if is_log { b"-wal" } else { b"-journal" };
    let database = name.strip_suffix(ending).map(|path| Path::new(OsStr::from_bytes(path)));
    let main = database.and_then(|path| MainFile::of_journal(path, is_log, below));
    let Some(main) = main else { return Opening::Plain };
    if is_log {
        return Opening::Log(main);
    }
    // SAFETY: its connection is opening a journal, so the file is open.
    file::refuse_outside_log(unsafe { &*main }, code::CANTOPEN, "a rollback journal was to be opened");
    Opening::Journal
}

fn path_of(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

unsafe extern "C" fn x_delete(vfs: *mut Vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    shield(|| {
        // SAFETY: a C string of SQLite.
        if !name.is_null() && is_protected_log(unsafe { CStr::from_ptr(name) }) {
            return code::IOERR_DELETE;
        }
        real!(vfs, delete(name, sync_directory), code::IOERR_DELETE)
    })
}

/// Returns whether `name` is the WAL of a protected database, which holds frames that the instance has not captured
/// yet.
fn is_protected_log(name: &CStr) -> bool {
    let Some(database) = name.to_bytes().strip_suffix(b"-wal") else { return false };
    let path = Path::new(OsStr::from_bytes(database));
    let protected = !matches!(Marker::read(path), Ok(None));
    if protected {
        let path = path.to_string_lossy();
        let text = format!(
            "refused to delete the log of the protected database {path}: run `standfast unprotect {path}` first"
        );
        report(&path, Cause::WalOnly, code::IOERR_DELETE, &text);
    }
    protected
}

unsafe extern "C" fn x_access(vfs: *mut Vfs, name: *const c_char, flags: c_int, result: *mut c_int) -> c_int {
    real!(vfs, access(name, flags, result), code::IOERR)
}

unsafe extern "C" fn x_full_pathname(
    vfs: *mut Vfs,
    name: *const c_char,
    bytes: c_int,
    out: *mut c_char,
) -> c_int {
    real!(vfs, full_pathname(name, bytes, out), code::CANTOPEN)
}

unsafe extern "C" fn x_dl_open(vfs: *mut Vfs, name: *const c_char) -> *mut c_void {
    real!(vfs, dl_open(name), std::ptr::null_mut())
}

unsafe extern "C" fn x_dl_error(vfs: *mut Vfs, bytes: c_int, out: *mut c_char) {
    real!(vfs, dl_error(bytes, out), ())
}

unsafe extern "C" fn x_dl_sym(vfs: *mut Vfs, library: *mut c_void, name: *const c_char) -> SystemCall {
    real!(vfs, dl_sym(library, name), None)
}

unsafe extern "C" fn x_dl_close(vfs: *mut Vfs, library: *mut c_void) {
    real!(vfs, dl_close(library), ())
}

unsafe extern "C" fn x_randomness(vfs: *mut Vfs, bytes: c_int, out: *mut c_char) -> c_int {
    real!(vfs, randomness(bytes, out), 0)
}

const SECOND_US: c_int = 1_000_000;

unsafe extern "C" fn x_sleep(vfs: *mut Vfs, microseconds: c_int) -> c_int {
    shield_with(0, || {
        let time = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
        let mut slept = None;
        // SAFETY: `vfs` is ours, as SQLite passes it.
        let mut alone = || slept = Some(unsafe { host_sleep(vfs, microseconds) });
        if turn::sleep(time, &mut alone) {
            slept.get_or_insert(microseconds);
        }
        // SAFETY: as above.
        slept.unwrap_or_else(|| unsafe { host_sleep(vfs, microseconds) })
    })
}

/// Sleeps by the VFS below.
///
/// # Safety
/// `vfs` is a VFS of this library, which `around` has filled. as SQLite passes it: it holds the VFS below.
unsafe fn host_sleep(vfs: *mut Vfs, microseconds: c_int) -> c_int {
    /// That sleep rounds up to whole seconds (SQLite built without usleep).
    static ROUNDS: AtomicBool = AtomicBool::new(false);
    let time = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
    if ROUNDS.load(Relaxed) && microseconds < SECOND_US {
        std::thread::sleep(time);
        return microseconds;
    }
    let slept = real!(vfs, sleep(microseconds), 0);
    if slept >= SECOND_US && microseconds < SECOND_US {
        ROUNDS.store(true, Relaxed);
    }
    slept
}

unsafe extern "C" fn x_current_time(vfs: *mut Vfs, out: *mut c_double) -> c_int {
    real!(vfs, current_time(out), code::ERROR)
}

unsafe extern "C" fn x_get_last_error(vfs: *mut Vfs, bytes: c_int, out: *mut c_char) -> c_int {
    real!(vfs, get_last_error(bytes, out), 0)
}

unsafe extern "C" fn x_current_time_int64(vfs: *mut Vfs, out: *mut i64) -> c_int {
    real!(vfs, current_time_int64(out), code::ERROR)
}

unsafe extern "C" fn x_set_system_call(vfs: *mut Vfs, name: *const c_char, call: SystemCall) -> c_int {
    real!(vfs, set_system_call(name, call), code::NOTFOUND)
}

unsafe extern "C" fn x_get_system_call(vfs: *mut Vfs, name: *const c_char) -> SystemCall {
    real!(vfs, get_system_call(name), None)
}

unsafe extern "C" fn x_next_system_call(vfs: *mut Vfs, name: *const c_char) -> *const c_char {
    real!(vfs, next_system_call(name), std::ptr::null())
}
