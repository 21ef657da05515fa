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

/// Interval at which a wait looks whether the instance still is a standby.
const STATE_LOOK: Duration = Duration::from_millis(250);
/// An attempt to begin a read transaction that is repeated later than this is another one.
const ATTEMPT_NS: u64 = 2_000_000_000;

/// Why the data are not known to be current enough.
pub(crate) enum Stale {
    /// The database at the standby is behind; its age, if known.
    Behind(Option<Duration>),
    /// Nothing says how current the data are.
    Unknown(String),
}

impl MainFile {
    /// Checks that the data are not older than the connection allows; to be called when a read transaction begins, before it
    /// takes its read lock.
    ///
    /// # Errors
    /// SQLITE_PROTOCOL, which SQLite itself uses when a read transaction cannot begin; the reason is reported. SQLITE_BUSY
    /// when more was committed while this waited: SQLite reads the header of the wal-index again, and tries again.
    pub(crate) fn await_fresh_data(&self) -> Result<(), c_int> {
        let Some(limit) = self.max_data_delay() else { return Ok(()) };
        let now = boot_ns();
        // SQLite repeats an attempt that was told BUSY at once. Data that were current enough then still are.
        let begun = self.fresh_begun.take().filter(|begun| now.saturating_sub(*begun) < ATTEMPT_NS);
        let begun = begun.unwrap_or(now);
        let seen = self.log_point();
        let wait = || {
            self.may_be_limited()?;
            let until_ns = begun.saturating_add(nanoseconds(WAIT_MAX));
            self.await_current(begun.saturating_sub(nanoseconds(limit)), until_ns, limit / 2)
        };
        wait().map_err(|stale| {
            let path = &self.database.path;
            let limit = limit.as_secs_f64();
            let text = format!(
                "a read of {path} failed, because standfast_max_data_delay is {limit} s: {}",
                self.explained(&stale)
            );
            report(path, Cause::Stale, code::PROTOCOL, &text);
            code::PROTOCOL
        })?;
        if self.log_point() != seen {
            self.fresh_begun.set(Some(begun));
            return Err(code::BUSY);
        }
        Ok(())
    }

    fn may_be_limited(&self) -> Result<(), Stale> {
        let why = match () {
            () if self.is_shared() => "other connections use the same cache, and read what it holds",
            () if self.opens_snapshot.get() => "sqlite3_snapshot_open asks for an earlier state",
            () => return Ok(()),
        };
        Err(Stale::Unknown(why.into()))
    }

    /// Waits until the database holds all that the primary had acknowledged when this was called, for `timeout`.
    ///
    /// # Errors
    /// Why it is not known to.
    pub(crate) fn sync_with_primary(&self, timeout: Duration) -> Result<(), String> {
        let begun = boot_ns();
        let waited = match (self.is_immutable, self.read_locks.get()) {
            (true, _) => Err(Stale::Unknown("it was opened as immutable".into())),
            (_, 0) => self.await_current(begun, begun.saturating_add(nanoseconds(timeout)), Duration::ZERO),
            (..) => Err(Stale::Unknown("a read transaction is open, which shows an earlier state".into())),
        };
        waited.map_err(|stale| {
            format!(
                "standfast_sync_with_primary: {} does not hold all that was committed, as far as is known: {}",
                self.database.path,
                self.explained(&stale)
            )
        })
    }

    /// Waits until the data are those of `wanted_ns` or later, until `until_ns`. Asks early for newer ones, without waiting,
    /// when they are older than `usual`.
    fn await_current(&self, wanted_ns: u64, until_ns: u64, usual: Duration) -> Result<(), Stale> {
        let unknown = |why: &str| Err(Stale::Unknown(why.into()));
        let marker = self.database.find_marker().map_err(Stale::Unknown)?;
        loop {
            let Some(segment) = self.segment() else {
                return unknown("its instance has no shared memory here that can be used");
            };
            match segment.state(marker.database) {
                DatabaseState::Standby => {}
                DatabaseState::Open if segment.is_unconfirmed() => {
                    return unknown("its instance does not know whether another one is the primary now");
                }
                DatabaseState::Open if segment.running() && self.recently_alive() => break,
                DatabaseState::Fenced => return unknown("another instance is the primary now"),
                _ => return unknown("its instance does not serve it"),
            }
            if !segment.shares_clock() {
                return unknown(
                    "this process has another clock than the instance (a time namespace, or a restart of the machine)",
                );
            }
            let now = boot_ns();
            match segment.current_as_of(marker.database) {
                Some(as_of_ns) if as_of_ns >= wanted_ns => {
                    if now.saturating_sub(as_of_ns) > nanoseconds(usual) {
                        segment.ask_how_current();
                    }
                    break;
                }
                _ if !segment.running() || !self.is_alive_now() => {
                    return unknown("the standby does not run");
                }
                _ if now >= until_ns => return Err(Stale::Behind(self.data_delay())),
                // The state may change meanwhile.
                _ => {
                    let until_ns = until_ns.min(now.saturating_add(nanoseconds(STATE_LOOK)));
                    segment.await_current(marker.database, wanted_ns, until_ns);
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
        let (marker, segment) = (self.database.marker()?, self.segment()?);
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
