//! The limit of file descriptors. A redo log that cannot be switched for lack of a descriptor stops all commits, so a
//! request that needs many is refused while enough are left for the rest.

use crate::config::error::InstanceError;

/// Descriptors of a protected database when all of its files are in use: connection, WAL and wal-index, the WAL for
/// capture, for syncing and for handing it to the disk early. Seven while it is idle.
const OF_A_DATABASE: u64 = 11;
/// Descriptors of a database while a failover opens it: those at a primary, and the connection that keeps its
/// wal-index.
const IN_A_FAILOVER: u64 = 10;
/// Descriptors reserved for the redo log, archives, destinations and clients of the instance.
const RESERVE: u64 = 96;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    pub limit: u64,
    pub open: u64,
}

impl Descriptors {
    /// Reads both numbers; `None` when the kernel does not give them.
    pub fn now() -> Option<Descriptors> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a valid structure for the call.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
            return None;
        }
        let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        Some(Descriptors { limit: limit.rlim_cur, open })
    }

    /// Whether there is room for one more database beside `databases` protected ones: by what is open, and by what will
    /// be open once all of them are in use. Pure.
    pub fn suffice_beside(&self, databases: usize) -> bool {
        let in_use =
            (databases as u64).saturating_add(1).saturating_mul(OF_A_DATABASE).saturating_add(RESERVE);
        in_use.max(self.open.saturating_add(OF_A_DATABASE + RESERVE)) <= self.limit
    }
}

/// Checks that one more database leaves enough for the rest of the instance.
///
/// # Errors
/// `Refused` with the limit and how to raise it. Unknown numbers are no reason to refuse.
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

/// Checks that a standby with this many databases can have them open as a primary: without descriptors in the middle of
/// a failover the instance would end in no role.
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

/// Returns what a failover needs at least; it may need more. Pure.
fn needed_by_primary(databases: usize) -> u64 {
    (databases as u64).saturating_mul(IN_A_FAILOVER).saturating_add(RESERVE / 2)
}

/// Raises the limit of this process as far as a thousand databases need and the system allows.
pub fn raise_limit() {
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
    fn database_is_accepted_if_enough_descriptors_remain() {
        let at = |open| Descriptors { limit: 1024, open };
        let most = (1024 - RESERVE) / OF_A_DATABASE;
        assert!(at(14).suffice_beside(most as usize - 1));
        assert!(!at(14).suffice_beside(most as usize), "all of them will be in use");
        assert!(!at(1024 - RESERVE).suffice_beside(0), "something else has them");
        assert!(needed_by_primary(98) > 1024 && needed_by_primary(most as usize) <= 1024);
        assert!(Descriptors::now().unwrap().open > 2);
    }
}
