//! How old the data may be that a connection reads at a standby: `PRAGMA standfast_max_data_delay` and
//! `standfast_sync_with_primary()`.
//!
//! A read transaction is delayed before it takes its read lock: SQLite compares the wal-index with its copy afterwards, so
//! the snapshot is at least as current as what was found out before.

use crate::bindings::code;
use crate::main_file::MainFile;
use crate::report::{Cause, report};
use standfast_session::{DatabaseState, boot_ns};
use std::ffi::c_int;
use std::time::Duration;

/// How long the begin of a read transaction waits for data that are current enough: the standby has to ask its source, and
/// apply takes what arrives in groups.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Why the data are not known to be current enough.
pub(crate) enum Stale {
    /// The database at the standby is behind; its age, if known.
    Behind(Option<Duration>),
    /// Nothing says how current the data are.
    Unknown(String),
}

impl MainFile {
    /// Checks that the data are not older than the connection allows; to be called when a read transaction begins.
    ///
    /// # Errors
    /// SQLITE_PROTOCOL, which SQLite itself uses when a read transaction cannot begin; the reason is reported.
    pub(crate) fn await_fresh_data(&self) -> Result<(), c_int> {
        let Some(limit) = self.max_data_delay() else { return Ok(()) };
        let begun = boot_ns();
        self.await_current(begun.saturating_sub(nanoseconds(limit)), WAIT_MAX, limit / 2).map_err(|stale| {
            let path = &self.database.path;
            let limit = limit.as_secs_f64();
            let text = format!(
                "a read of {path} failed, because standfast_max_data_delay is {limit} s: {}",
                self.explained(&stale)
            );
            report(path, Cause::Stale, code::PROTOCOL, &text);
            code::PROTOCOL
        })
    }

    /// Waits until the database holds all that the primary had acknowledged when this was called, for `timeout`.
    ///
    /// # Errors
    /// Why it is not known to.
    pub(crate) fn sync_with_primary(&self, timeout: Duration) -> Result<(), String> {
        self.await_current(boot_ns(), timeout, Duration::ZERO).map_err(|stale| {
            format!(
                "standfast_sync_with_primary: {} does not hold all that was committed, as far as is known: {}",
                self.database.path,
                self.explained(&stale)
            )
        })
    }

    /// Waits until the data are those of `wanted_ns` or later, for `timeout`. Asks early for newer ones, without waiting,
    /// when they are older than `usual`.
    fn await_current(&self, wanted_ns: u64, timeout: Duration, usual: Duration) -> Result<(), Stale> {
        let unknown = |why: &str| Err(Stale::Unknown(why.into()));
        let marker = self.database.find_marker().map_err(Stale::Unknown)?;
        let Some((_, segment)) = self.database.segment() else {
            return unknown("its instance has no shared memory here that can be used");
        };
        match segment.state(marker.database) {
            DatabaseState::Standby => {}
            DatabaseState::Open if segment.running() && self.recently_alive() => return Ok(()),
            DatabaseState::Fenced => return unknown("another instance is the primary now"),
            _ => return unknown("its instance does not serve it"),
        }
        if !segment.shares_time() {
            return unknown("this process is in another time namespace than the instance");
        }
        let begun = boot_ns();
        match segment.current_as_of(marker.database) {
            Some(as_of_ns) if as_of_ns >= wanted_ns => {
                if begun.saturating_sub(as_of_ns) > nanoseconds(usual) {
                    segment.ask_how_current();
                }
            }
            _ if !segment.running() || !crate::instance::alive(marker) => {
                return unknown("the standby does not run");
            }
            _ => {
                let until_ns = begun.saturating_add(nanoseconds(timeout));
                if !segment.await_current(marker.database, wanted_ns, until_ns) {
                    return Err(Stale::Behind(self.data_delay()));
                }
            }
        }
        // Last: what was published is of this file only if the number of the database is still its own.
        if self.database.is_replaced() || !self.database.is_still_protected() {
            return unknown(
                "another file has been put in its place, or it is no longer protected: close and reopen it",
            );
        }
        Ok(())
    }

    /// How old the data are at a standby, as far as was found out.
    pub(crate) fn data_delay(&self) -> Option<Duration> {
        let (marker, segment) = self.database.segment()?;
        if segment.state(marker.database) != DatabaseState::Standby {
            return None;
        }
        let as_of_ns = segment.current_as_of(marker.database)?;
        Some(Duration::from_nanos(boot_ns().saturating_sub(as_of_ns)))
    }

    fn explained(&self, stale: &Stale) -> String {
        let directory = self.database.marker().map(|marker| marker.directory.display().to_string());
        let directory = directory.as_deref().unwrap_or("DIRECTORY");
        match stale {
            Stale::Behind(age) => {
                let age = match age {
                    Some(age) => format!("its data are {:.1} s old", age.as_secs_f64()),
                    None => "the standby has not heard from the primary how current they are".into(),
                };
                format!(
                    "{age}; `standfast status -D {directory}` shows whether the standby is connected and applies"
                )
            }
            Stale::Unknown(why) => format!("{why}; see `standfast status -D {directory}`"),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
