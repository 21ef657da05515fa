//! How the programs of a test are started: on a processor of their own, with priority over other work of the machine.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::error::During;
use crate::process::run;

pub(in super::super) struct Start {
    /// The first and the last processor that this process may use; equal when there is only one.
    pub(super) cpus: (usize, usize),
    /// Command prefix for a program that waits more than it works. On a busy machine such a program wakes milliseconds
    /// late, which would count as latency of the link.
    first: Vec<OsString>,
}

impl Start {
    pub(in super::super) fn find() -> Result<Start> {
        let status = "/proc/self/status";
        let text = std::fs::read_to_string(status).during(|| format!("read {status}"))?;
        let words = ["chrt", "--rr", "1"];
        // Without the privilege or the tool, both sides of a comparison run without it.
        let allowed = run(Command::new(words[0]).args(&words[1..]).arg("true")).is_ok();
        let first = if allowed { words.map(OsString::from).to_vec() } else { Vec::new() };
        Ok(Start { cpus: allowed_cpus(&text).unwrap_or((0, 0)), first })
    }

    /// The command line of `program`, which waits more than it works, with the prefix.
    pub(super) fn first(&self, program: &Path) -> Vec<OsString> {
        let mut words = self.first.clone();
        words.push(program.into());
        words
    }

    /// Pins the command `words` to one processor.
    pub(super) fn pinned(&self, cpu: usize, words: Vec<OsString>) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).args(words);
        command
    }
}

/// First and last number of `Cpus_allowed_list`, such as `0-3,8`.
fn allowed_cpus(status: &str) -> Option<(usize, usize)> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut numbers = list.split([',', '-']).map(|number| number.trim().parse().ok());
    let first = numbers.next()??;
    Some((first, numbers.next_back().unwrap_or(Some(first))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_processor_are_taken() {
        let of = |list: &str| allowed_cpus(&format!("Name:\tx\nCpus_allowed_list:\t{list}\n"));
        assert_eq!(of("0-1"), Some((0, 1)));
        assert_eq!(of("2-3,8,10-11"), Some((2, 11)));
        assert_eq!(of("5"), Some((5, 5)));
        assert_eq!(of(""), None);
        assert_eq!(allowed_cpus("Name:\tx\n"), None);
    }
}
