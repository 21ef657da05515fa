//! The VFS shim that runs inside applications.
//!
//! It stands between the application's SQLite and its operating-system layer, and acts only on databases with a marker
//! file beside them. On the commit path it does four things:
//!
//! 1. queues writers for the write lock ([`turn`], [`shm`]);
//! 2. notifies the instance of new frames after the write lock is released ([`shm`]);
//! 3. waits in the second phase of the commit until the frames are durable ([`commit`]);
//! 4. prevents every process but the instance from checkpointing, resetting or deleting the WAL ([`shm`], [`file`],
//!    [`pragma`]).
//!
//! It also answers queries: [`sql`] about one database, [`views`] about the instance and its standbys.
//!
//! It never ships data: the instance reads the WAL itself. An application that dies at any instruction loses nothing
//! but its own answer.
//!
//! Nothing here links against SQLite; [`host`] finds SQLite's functions.

mod bindings;
mod checksums;
mod commit;
mod connection;
mod database;
mod file;
mod freshness;
mod host;
mod instance;
mod main_file;
mod new_connection;
mod pragma;
mod report;
mod shim_file;
mod shm;
mod sql;
mod super_journal;
mod turn;
mod vfs;
mod views;
mod whereabouts;
mod writers_lock;

pub use bindings::Sqlite3;
pub use host::{ExtensionInit, Host, OLDEST_HOST};

use bindings::code;
use new_connection::{offer, on_new_connection};
use report::shield;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering::SeqCst;

/// Registers the VFS and the SQL functions in the host. Registering again is harmless. Returns false when another copy
/// of this library already serves the host and does everything.
///
/// The VFS becomes the default one unless the environment has `STANDFAST_DEFAULT_VFS=0`; then `vfs=standfast` in a URI
/// file name selects it.
///
/// # Errors
/// A message for the user.
pub fn install(host: Host) -> Result<bool, String> {
    let host = host::settle(host)?;
    instance::watch_forks();
    let default = !std::env::var("STANDFAST_DEFAULT_VFS").is_ok_and(|value| value == "0");
    let ours = vfs::register(host, default)?;
    if ours {
        host::SERVES.store(host.vfs_register as usize, SeqCst);
        // SAFETY: a function of the host; the initialiser lives as long as the library, which is not unloaded.
        unsafe { (host.auto_extension)(on_new_connection) };
    }
    Ok(ours)
}

/// The entry point of the loadable extension.
///
/// # Safety
/// Must be called by SQLite as an extension's initialiser, or with the same arguments.
pub unsafe fn initialise_extension(
    connection: *mut Sqlite3,
    message: *mut *mut c_char,
    api: *const c_void,
) -> c_int {
    shield(|| {
        // SAFETY: SQLite passes its table of functions.
        let found = unsafe { Host::from_api(api) };
        let result = match found {
            Ok(host) => install(host),
            Err(missing) => Err(format!("this SQLite does not offer {missing}")),
        };
        match (result, found) {
            (Ok(ours), Ok(host)) => {
                if ours {
                    // SAFETY: the connection that loads the extension; on later ones `on_new_connection` registers the
                    // functions.
                    unsafe { offer(&host, connection) };
                }
                // SAFETY: as above.
                unsafe { sql::warn_if_unprotected(&host, connection) };
                code::OK_LOAD_PERMANENTLY
            }
            (Err(text), Ok(host)) if !message.is_null() => {
                // SAFETY: the place for a message, which SQLite frees.
                unsafe { *message = host::sqlite_string(&host, &text) };
                code::ERROR
            }
            _ => code::ERROR,
        }
    })
}
