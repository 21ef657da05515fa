//! Processor time, context switches and memory of processes, read from /proc.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Processes whose usage is added up under one name, such as `application`, `instance`, `standby`.
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    pub name: &'static str,
    pub pids: Vec<u32>,
    /// Whether the children of these processes are counted too (PostgreSQL forks one per connection).
    pub with_children: bool,
}

/// Cumulative usage of a group of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Time on a processor in microseconds.
    pub cpu_us: f64,
    pub switches: u64,
}

/// Usage of one group per commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupUsage {
    pub name: String,
    /// Processor time per commit in microseconds.
    pub cpu_us_per_commit: f64,
    pub switches_per_commit: f64,
}

impl ProcessGroup {
    /// Reads the usage of the group so far. A thread that has ended no longer counts, so call this while all are
    /// running.
    pub fn usage(&self) -> Usage {
        let mut pids = self.pids.clone();
        if self.with_children {
            pids.extend(children_of(&self.pids));
        }
        pids.iter().map(|pid| usage_of(*pid)).fold(Usage::default(), |sum, one| Usage {
            cpu_us: sum.cpu_us + one.cpu_us,
            switches: sum.switches + one.switches,
        })
    }

    /// Usage between two readings, per commit.
    pub fn per_commit(&self, before: Usage, after: Usage, commits: u64) -> GroupUsage {
        let commits = commits.max(1) as f64;
        GroupUsage {
            name: self.name.to_owned(),
            cpu_us_per_commit: (after.cpu_us - before.cpu_us) / commits,
            switches_per_commit: after.switches.saturating_sub(before.switches) as f64 / commits,
        }
    }
}

fn usage_of(pid: u32) -> Usage {
    let mut usage = Usage::default();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        usage.cpu_us += cpu_ns(&read("schedstat")) as f64 / 1e3;
        usage.switches += switches(&read("status"));
    }
    usage
}

fn children_of(parents: &[u32]) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            parent_of(&stat).is_some_and(|parent| parents.contains(&parent))
        })
        .collect()
}

/// Returns the first field of `schedstat`: nanoseconds on a processor.
fn cpu_ns(schedstat: &str) -> u64 {
    schedstat.split_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn switches(status: &str) -> u64 {
    let counters = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    counters.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

/// Returns the fourth field of `stat`. The second field, the name in parentheses, may itself hold spaces and
/// parentheses.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// Resident memory of a process in bytes; None when the process is gone.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    resident(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Whether `path` lies on a file system in memory, where a sync costs nothing.
pub fn is_in_memory(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(text) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut info = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: text is a NUL-terminated path and info has room for the result.
    if unsafe { libc::statfs(text.as_ptr(), info.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: statfs succeeded and filled info.
    let kind = unsafe { info.assume_init() }.f_type;
    kind == libc::TMPFS_MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tx\nVmRSS:\t    2048 kB\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n";

    #[test]
    fn files_in_proc_are_parsed_correctly() {
        assert_eq!(cpu_ns("123456 789 10\n"), 123_456);
        assert_eq!(switches(STATUS), 157);
        assert_eq!(resident(STATUS), Some(2 << 20));
        assert_eq!(parent_of("12 (a ) b) S 34 12 12 0"), Some(34));
        assert_eq!((cpu_ns(""), switches(""), resident(""), parent_of("")), (0, 0, None, None));
    }

    #[test]
    fn own_cpu_use_grows_with_work_and_is_counted_per_commit() {
        let group = ProcessGroup { name: "self", pids: vec![std::process::id()], with_children: false };
        let before = group.usage();
        let mut sum = 0u64;
        while group.usage().cpu_us < before.cpu_us + 2000.0 {
            sum = std::hint::black_box(sum + 1);
        }
        let used = group.per_commit(before, group.usage(), 10);
        assert!(used.cpu_us_per_commit >= 200.0, "{used:?}");
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
    }

    #[test]
    fn children_are_found() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(children_of(&[std::process::id()]).contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
