//! The machine and the versions with which results were measured.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Context;
use crate::process::run;

/// Conditions of a measurement, written beside its results in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// Seconds since 1970 when the measurements began.
    pub began_unix_s: u64,
    pub kernel: String,
    pub processor: String,
    pub cores: usize,
    /// Memory of the machine in bytes.
    pub memory_bytes: u64,
    /// Type of the file system under test, as in /proc/mounts.
    pub file_system: String,
    /// Load average over a minute at the start: other work on the machine.
    pub load: String,
    /// SQLite compiled into the application process.
    pub sqlite: String,
    /// `standfast --version`; None when the program is missing.
    pub standfast: Option<String>,
    /// `litestream version`; None when the program is missing.
    pub litestream: Option<String>,
    /// `iperf3 --version`; None when the program is missing.
    pub iperf3: Option<String>,
    /// `sockperf --version`; None when the program is missing.
    pub sockperf: Option<String>,
    /// `qperf --version`; None when the program is missing.
    pub qperf: Option<String>,
    /// `postgres --version`; None when the program is missing.
    pub postgres: Option<String>,
    /// Seconds per run that count, without the warm-up.
    pub seconds: f64,
    /// Seconds of warm-up before each run.
    pub warmup_seconds: f64,
}

impl Conditions {
    pub fn read(context: &Context) -> Conditions {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let version = |program: Option<&Path>, argument: &str| {
            let text = run(Command::new(program?).arg(argument)).ok()?;
            Some(text.lines().next()?.trim().to_owned())
        };
        let programs = &context.programs;
        let postgres = programs.postgres.as_ref().map(|directory| directory.join("postgres"));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Conditions {
            began_unix_s: now.map_or(0, |since| since.as_secs()),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: field(&file("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: field(&file("/proc/meminfo"), "MemTotal")
                .and_then(|text| kibibytes(&text))
                .unwrap_or(0),
            file_system: file_system_of(&file("/proc/mounts"), &context.base).unwrap_or_default(),
            load: file("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            sqlite: rusqlite::version().to_owned(),
            standfast: version(programs.standfast.as_deref(), "--version"),
            litestream: version(programs.litestream.as_deref(), "version"),
            iperf3: version(programs.iperf3.as_deref(), "--version"),
            sockperf: version(programs.sockperf.as_deref(), "--version"),
            qperf: version(programs.qperf.as_deref(), "--version"),
            postgres: version(postgres.as_deref(), "--version"),
            seconds: context.measure.as_secs_f64(),
            warmup_seconds: context.warmup.as_secs_f64(),
        }
    }

    pub fn line(&self) -> String {
        format!(
            "{} cores ({}), Linux {}, {}, load {}; SQLite {}; {:.1} s a run",
            self.cores, self.processor, self.kernel, self.file_system, self.load, self.sqlite, self.seconds
        )
    }
}

/// Value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn kibibytes(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// Returns the type of the mount with the longest path that holds `path`; of mounts with equal paths, the last in the
/// file covers the others.
fn file_system_of(mounts: &str, path: &Path) -> Option<String> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let lines = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let holding = lines.filter(|(at, _)| path.starts_with(at));
    holding.max_by_key(|(at, _)| at.len()).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_proc_are_parsed_correctly() {
        let info = "processor\t: 0\nmodel name\t: EPYC 9\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(field(info, "model name").as_deref(), Some("EPYC 9"));
        assert_eq!(kibibytes("24 kB"), Some(24 << 10));
        let mounts =
            "/dev/a / ext4 rw 0 0\ntmpfs /nonexistent/tmp tmpfs rw 0 0\n/dev/b /nonexistent xfs rw 0 0\n";
        assert_eq!(file_system_of(mounts, Path::new("/nonexistent/tmp/x")).as_deref(), Some("tmpfs"));
        assert_eq!(file_system_of(mounts, Path::new("/nonexistent/tmpx")).as_deref(), Some("xfs"));
        assert_eq!(file_system_of(mounts, Path::new("/nowhere")).as_deref(), Some("ext4"));
    }
}
