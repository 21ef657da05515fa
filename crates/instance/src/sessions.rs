//! Burying sessions whose process has died (PMON): their hints would hold up the living.

use standfast_session::Segment;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// New sessions are noticed this often; deaths of known ones at once.
const ROUND_MS: i32 = 1_000;

/// Watches the processes behind all sessions.
pub struct SessionWatch {
    segment: Segment,
    /// By process: a descriptor that becomes readable when it dies.
    processes: HashMap<u32, OwnedFd>,
}

impl SessionWatch {
    /// Over the sessions of `segment`.
    pub fn new(segment: Segment) -> SessionWatch {
        SessionWatch { segment, processes: HashMap::new() }
    }

    /// Runs until `stop`.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            self.round(ROUND_MS.min(200));
        }
    }

    /// Learns of new processes, then waits up to `timeout_ms` for one of them to die.
    pub fn round(&mut self, timeout_ms: i32) {
        let sessions: Vec<_> = self.segment.sessions().collect();
        self.processes.retain(|pid, _| sessions.iter().any(|(_, other, _)| other == pid));
        for (slot, pid, started) in &sessions {
            if !self.processes.contains_key(pid) {
                match open_process(*pid)
                    .filter(|_| start_time(*pid).is_none_or(|time| time == *started || *started == 0))
                {
                    Some(descriptor) => {
                        self.processes.insert(*pid, descriptor);
                    }
                    None => self.segment.bury(*slot),
                }
            }
        }
        for pid in self.wait_for_deaths(timeout_ms) {
            self.processes.remove(&pid);
            for (slot, _, _) in sessions.iter().filter(|(_, other, _)| *other == pid) {
                self.segment.bury(*slot);
            }
        }
    }

    fn wait_for_deaths(&self, timeout_ms: i32) -> Vec<u32> {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        let mut polls: Vec<libc::pollfd> = pids
            .iter()
            .map(|pid| libc::pollfd { fd: self.processes[pid].as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        // SAFETY: the array has the length given and lives during the call.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout_ms) };
        if ready <= 0 {
            return Vec::new();
        }
        pids.into_iter().zip(polls).filter(|(_, poll)| poll.revents != 0).map(|(pid, _)| pid).collect()
    }
}

fn open_process(pid: u32) -> Option<OwnedFd> {
    // SAFETY: plain system call; a non-negative result is a new descriptor that nobody else owns.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor as i32))
    }
}

/// Start time of a process in clock ticks since boot: field 22 of its stat file.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let behind_name = stat.rsplit_once(')')?.1;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_session::Session;
    use std::process::{Command, Stdio};

    #[test]
    fn sessions_of_a_killed_process_are_buried_and_others_live() {
        let path = std::path::PathBuf::from(format!("/dev/shm/standfast-test-pmon-{}", std::process::id()));
        let (segment, _) = Segment::create(&path, [4; 16], 0o600).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        let mine = start_time(std::process::id()).unwrap();
        Session::attach(segment, 1, child.id(), started).unwrap();
        Session::attach(segment, 1, std::process::id(), mine).unwrap();
        Session::attach(segment, 1, std::process::id(), mine + 1_000_000).unwrap();
        let mut watch = SessionWatch::new(segment);
        watch.round(0);
        child.kill().unwrap();
        while segment.sessions().any(|(_, pid, _)| pid == child.id()) {
            watch.round(1_000);
        }
        child.wait().unwrap();
        assert!(segment.sessions().any(|(_, pid, _)| pid == std::process::id()));
        Segment::remove(&path);
    }
}
