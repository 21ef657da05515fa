//! The structure that SQLite uses for a file of the shim, and the methods that all kinds of files share. The host's file
//! lies behind the structure in the memory that SQLite allocated, or in memory of its own ([`Place`]).

use crate::bindings::{File, code};
use crate::main_file::MainFile;
use crate::report::shield;
use std::ffi::c_int;

/// Role of an open file for its database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The database itself: owns the state.
    Main,
    /// The WAL: borrows the state. SQLite closes the WAL before the database.
    Log,
    /// The super-journal of a transaction: belongs to no database and has no state.
    SuperJournal,
}

/// The structure that SQLite uses as its `sqlite3_file`.
#[repr(C)]
pub(crate) struct ShimFile {
    pub base: File,
    pub kind: Kind,
    pub main: *const MainFile,
    pub real: *mut File,
    /// Words of separate memory at `real`; 0 where `real` lies behind this structure.
    pub own_words: usize,
}

/// Bytes of the shim before the host's file, which needs the alignment of a pointer.
pub(crate) const SHIM_BYTES: usize = size_of::<ShimFile>();
const _: () = assert!(SHIM_BYTES.is_multiple_of(align_of::<u64>()));

pub(crate) struct Place {
    pub real: *mut File,
    pub own_words: usize,
}

impl Place {
    /// Memory behind the shim's file.
    ///
    /// # Safety
    /// `file` must point to memory of the size that our VFS asks for.
    pub unsafe fn behind(file: *mut File) -> Place {
        // SAFETY: the VFS asks for SHIM_BYTES more than the host's file needs.
        Place { real: unsafe { file.cast::<u8>().add(SHIM_BYTES).cast() }, own_words: 0 }
    }

    /// Separate memory of `file_bytes`, aligned for pointers. [`Place::free`] frees it.
    pub fn apart(file_bytes: usize) -> Place {
        let memory = vec![0u64; file_bytes.div_ceil(size_of::<u64>()).max(1)].into_boxed_slice();
        let own_words = memory.len();
        Place { real: Box::into_raw(memory).cast(), own_words }
    }

    /// # Safety
    /// The file in it is closed, and the memory is not used again.
    pub unsafe fn free(self) {
        if self.own_words != 0 {
            // SAFETY: made in `apart` with this length, and freed once, as the caller promises.
            drop(unsafe {
                Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.real.cast::<u64>(), self.own_words))
            });
        }
    }
}

/// Returns the host's file.
///
/// # Safety
/// `file` is one of ours and open.
pub(crate) unsafe fn real_of(file: *mut File) -> *mut File {
    // SAFETY: only `install` gives out our methods, and it has set it.
    unsafe { (*file.cast::<ShimFile>()).real }
}

/// Calls the method of the host's file.
macro_rules! real {
    ($file:expr, $method:ident ( $($argument:expr),* )) => {{
        // SAFETY: the file is the shim's and open, hence so is the host's file, to which this method belongs; SQLite
        // passed these arguments for this method.
        unsafe {
            let real = $crate::shim_file::real_of($file);
            match (*(*real).methods).$method {
                Some(method) => method(real $(, $argument)*),
                None => $crate::shim_file::missing(),
            }
        }
    }};
}
pub(crate) use real;

/// Result of a method that the host's file lacks.
pub(crate) trait Missing {
    fn missing() -> Self;
}
impl Missing for c_int {
    fn missing() -> c_int {
        code::IOERR
    }
}
impl Missing for () {
    fn missing() {}
}
pub(crate) fn missing<T: Missing>() -> T {
    T::missing()
}

/// The shim's part of an open file.
///
/// # Safety
/// `file` is one of ours and open, and has state.
pub(crate) unsafe fn parts<'a>(file: *mut File) -> (Kind, &'a MainFile) {
    // SAFETY: only `install` gives out the methods that call this, and it has set both.
    unsafe {
        let shim = &*file.cast::<ShimFile>();
        (shim.kind, &*shim.main)
    }
}

pub(crate) unsafe extern "C" fn close(file: *mut File) -> c_int {
    shield(|| {
        let result = real!(file, close());
        // SAFETY: SQLite closes an open file of ours once. The state comes from Box::into_raw, and its last borrower,
        // the WAL, was closed before.
        unsafe {
            let shim = file.cast::<ShimFile>();
            if (*shim).kind == Kind::Main {
                drop(Box::from_raw((*shim).main.cast_mut()));
            }
            Place { real: (*shim).real, own_words: (*shim).own_words }.free();
            (*shim).main = std::ptr::null();
            (*shim).base.methods = std::ptr::null();
        }
        result
    })
}

pub(crate) unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> c_int {
    real!(file, unlock(level))
}

pub(crate) unsafe extern "C" fn check_reserved_lock(file: *mut File, reserved: *mut c_int) -> c_int {
    real!(file, check_reserved_lock(reserved))
}

pub(crate) unsafe extern "C" fn file_size(file: *mut File, size: *mut i64) -> c_int {
    real!(file, file_size(size))
}

pub(crate) unsafe extern "C" fn sector_size(file: *mut File) -> c_int {
    real!(file, sector_size())
}

pub(crate) unsafe extern "C" fn device_characteristics(file: *mut File) -> c_int {
    real!(file, device_characteristics())
}
