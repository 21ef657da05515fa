//! File descriptors: a process may have so many, and a redo log that cannot be switched for lack of one stops all commits.
//! What needs many is refused while there are still enough for the rest.

use crate::error::InstanceError;

/// What a protected database has open when all of its files are in use: connection, log and wal-index, the log for capture, for
/// syncing and for handing it to the disk early. Seven while it rests.
const OF_A_DATABASE: u64 = 11;
/// What a database has open while a failover opens it: that of a primary, and the connection that keeps its wal-index.
const IN_A_FAILOVER: u64 = 10;
/// What is kept for the redo log, archives, destinations, and whoever asks the instance something.
const RESERVE: u64 = 96;

/// Descriptors of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// How many it may have.
    pub limit: u64,
    /// How many it has.
    pub open: u64,
}

impl Descriptors {
    /// As of now; `None` when the kernel does not say.
    pub fn now() -> Option<Descriptors> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid structure for the call.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
            return None;
        }
        let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Some(Descriptors { limit: limit.rlim_cur, open })
    }

    /// Whether there is room for one database more than the `databases` that are protected: by what is open, and by what will be
    /// once all of them are in use. Pure.
    pub fn suffice_beside(&self, databases: usize) -> bool {
        let in_use =
            (databases as u64).saturating_add(1).saturating_mul(OF_A_DATABASE).saturating_add(RESERVE);
        in_use.max(self.open.saturating_add(OF_A_DATABASE + RESERVE)) <= self.limit
    }
}

/// Makes sure that one database more leaves enough for the rest of the instance.
///
/// # Errors
/// `Refused` with the limit and how to raise it. What the kernel does not say is no reason to refuse.
pub fn check_room(databases: usize) -> Result<(), InstanceError> {
    match Descriptors::now() {
        Some(now) if !now.suffice_beside(databases) => Err(InstanceError::refused(
            format!(
                "the limit of open files, {}, leaves no room for another database beside {databases}: {} are open, a database \
                 in use has {OF_A_DATABASE}, and {RESERVE} are kept for the redo log and others",
                now.limit, now.open
            ),
            "raise the hard limit (`LimitNOFILE=65536` in the unit of systemd, `ulimit -Hn 65536` before the start) and restart the instance",
        )),
        _ => Ok(()),
    }
}

/// Makes sure that a standby with so many databases can have them open as a primary: for lack of descriptors in the middle of a
/// failover the instance would end in no role.
///
/// # Errors
/// `Refused` with the limit and how to raise it.
pub fn check_failover(databases: usize) -> Result<(), InstanceError> {
    match Descriptors::now() {
        Some(now) if now.limit < needed_by_primary(databases) => Err(InstanceError::refused(
            format!(
                "the limit of open files, {}, is too low for {databases} databases of a primary, which need about {}: nothing \
                 has been changed",
                now.limit,
                needed_by_primary(databases)
            ),
            "raise the hard limit (`LimitNOFILE=65536` in the unit of systemd, `ulimit -Hn 65536` before the start), restart the instance, then run `standfast failover` again",
        )),
        _ => Ok(()),
    }
}

/// What a failover needs at least; that it needs no more is not known. Pure.
fn needed_by_primary(databases: usize) -> u64 {
    (databases as u64).saturating_mul(IN_A_FAILOVER).saturating_add(RESERVE / 2)
}

/// Raises the limit of this process as far as a thousand databases need and the system lets it.
pub(crate) fn raise_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: valid structures for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(65_536);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_taken_while_the_rest_of_the_instance_keeps_its_descriptors() {
        let at = |open| Descriptors { limit: 1024, open };
        let most = (1024 - RESERVE) / OF_A_DATABASE;
        assert!(at(14).suffice_beside(most as usize - 1));
        assert!(!at(14).suffice_beside(most as usize), "all of them will be in use");
        assert!(!at(1024 - RESERVE).suffice_beside(0), "something else has them");
        assert!(needed_by_primary(98) > 1024 && needed_by_primary(most as usize) <= 1024);
        assert!(Descriptors::now().unwrap().open > 2);
    }
}
