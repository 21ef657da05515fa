//! Accesses to mapped memory whose file was truncated: the kernel answers them with SIGBUS, which ends the process. One
//! handler serves all code that maps files that others may truncate: each [`Resolver`] decides about its own addresses,
//! and for any other address the signal does what it did before.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// Handles an address that it knows: true when the access can be repeated. Called within a signal handler.
pub type Resolver = fn(address: usize) -> bool;

const RESOLVERS_MAX: usize = 4;
/// Most mappings known at a time. One more is not protected: an access to it ends the process.
const MAPPINGS_MAX: usize = 256;

/// The [`Resolver`]s, as addresses; unused entries are null.
static RESOLVERS: [AtomicPtr<c_void>; RESOLVERS_MAX] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; RESOLVERS_MAX];
/// The action before ours; never freed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);
/// Excludes concurrent changes of the tables and the handler; the handler takes no lock.
static CHANGES: Mutex<()> = Mutex::new(());

/// A mapping of the shared memory, kept for the life of the process.
struct Mapping {
    /// 0: an unused entry. Written last.
    begin: AtomicUsize,
    end: AtomicUsize,
    is_lost: AtomicBool,
}

static MAPPINGS: [Mapping; MAPPINGS_MAX] = [const {
    Mapping { begin: AtomicUsize::new(0), end: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; MAPPINGS_MAX];

/// Registers `resolver` for addresses that the kernel cannot serve. The first call installs the process's handler; the
/// handler that was there before is called for addresses that no resolver knows. Registering a resolver again changes
/// nothing.
pub fn on_bus_error(resolver: Resolver) {
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let resolver = resolver as *mut c_void;
    for place in &RESOLVERS {
        let known = place.load(SeqCst);
        if known == resolver {
            return;
        }
        if known.is_null() {
            place.store(resolver, SeqCst);
            break;
        }
    }
    if BEFORE.load(SeqCst).is_null() {
        install();
    }
}

fn install() {
    // SAFETY: sysconf has no preconditions. Both actions are zeroed except for the fields that are set, and live for
    // good; the handler does only what a handler may: atomics and system calls.
    unsafe {
        PAGE_BYTES.store(usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096), SeqCst);
        let before: *mut libc::sigaction = Box::into_raw(Box::new(std::mem::zeroed()));
        libc::sigaction(libc::SIGBUS, std::ptr::null(), before);
        BEFORE.store(before, SeqCst);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        // Runs on the stack that a runtime with small stacks has set aside for signals.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the information about this signal, which has the address for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &RESOLVERS {
        let resolver = place.load(SeqCst);
        if resolver.is_null() {
            break;
        }
        // SAFETY: only `on_bus_error` writes there, a function of this type.
        let resolver = unsafe { std::mem::transmute::<*mut c_void, Resolver>(resolver) };
        if resolver(address) {
            return;
        }
    }
    // SAFETY: set before the handler was, and never changed or freed.
    let before = unsafe { &*BEFORE.load(SeqCst) };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The access is repeated, and the signal ends the process.
            // SAFETY: as in `install`; the default action needs no handler.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the flag says that it is a function of this type, and the arguments are those of the kernel.
            unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, info, context) }
        }
        handler => {
            // SAFETY: without the flag it is a function of this type.
            unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal) }
        }
    }
}

/// Maps a page of zeros over the one at `address`, which the file no longer has; for a [`Resolver`]. False when the
/// system has none.
///
/// # Safety
/// The page must belong to a shared mapping that nothing unmaps meanwhile, and of which any content is valid.
pub unsafe fn map_zeros(address: usize, access: c_int) -> bool {
    let page_bytes = PAGE_BYTES.load(SeqCst);
    let page = address & !(page_bytes - 1);
    // SAFETY: as the caller promises; other processes see nothing of it. errno is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let mapped = libc::mmap(page as *mut c_void, page_bytes, access, flags, -1, 0);
        *libc::__errno_location() = errno;
        mapped != libc::MAP_FAILED
    }
}

/// A mapping whose loss is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Watched(Option<usize>);

impl Watched {
    /// Watches the mapping at `begin`, which is never unmapped.
    pub fn mapping(begin: usize, bytes: usize) -> Watched {
        on_bus_error(resolve);
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        let free = MAPPINGS.iter().position(|mapping| mapping.begin.load(SeqCst) == 0);
        if let Some(place) = free {
            MAPPINGS[place].end.store(begin + bytes, SeqCst);
            MAPPINGS[place].begin.store(begin, SeqCst);
        }
        Watched(free)
    }

    /// Whether an access found a page of it gone.
    pub fn is_lost(self) -> bool {
        self.0.is_some_and(|place| MAPPINGS[place].is_lost.load(SeqCst))
    }

    /// Called when all of it was mapped again.
    pub fn found(self) {
        if let Some(place) = self.0 {
            MAPPINGS[place].is_lost.store(false, SeqCst);
        }
    }
}

/// The [`Resolver`] of the watched mappings.
fn resolve(address: usize) -> bool {
    let of = |mapping: &&Mapping| {
        let begin = mapping.begin.load(SeqCst);
        begin != 0 && (begin..mapping.end.load(SeqCst)).contains(&address)
    };
    let Some(mapping) = MAPPINGS.iter().find(of) else { return false };
    mapping.is_lost.store(true, SeqCst);
    // SAFETY: the mapping is never unmapped, and consists of atomics, for which any content is valid. What the file no
    // longer has no other process sees either.
    unsafe { map_zeros(address, libc::PROT_READ | libc::PROT_WRITE) }
}
