//! Settings of an invocation: directories, programs and the length of runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::driver::WorkerCommand;
use crate::{BenchError, Result};

/// Settings of all measurements of one invocation.
#[derive(Clone, Debug)]
pub struct Context {
    /// Parent of the scratch directories; must be on the disk to be measured.
    pub base: PathBuf,
    pub worker: WorkerCommand,
    /// Time per run that counts, without the warm-up.
    pub measure: Duration,
    /// Time of each run before measuring, in which caches fill.
    pub warmup: Duration,
    pub programs: Programs,
}

/// Programs of Standfast and of rivals; a system whose program is missing is skipped.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    pub standfast: Option<PathBuf>,
    pub extension: Option<PathBuf>,
    /// Directory with `standfast` and `libstandfast.so` built without instruments.
    pub uninstrumented: Option<PathBuf>,
    /// The browser test of the dashboard, `tests/browser/run`.
    pub browser_test: Option<PathBuf>,
    pub campaign: Option<PathBuf>,
    pub litestream: Option<PathBuf>,
    pub iperf3: Option<PathBuf>,
    pub sockperf: Option<PathBuf>,
    pub qperf: Option<PathBuf>,
    /// The directory with `initdb`, `postgres`, `pg_basebackup`, `pgbench`.
    pub postgres: Option<PathBuf>,
}

impl Programs {
    /// Looks for Standfast's programs beside the running program, for those without instruments in
    /// `target/uninstrumented`, and for rivals in `target/rivals`, on PATH and where Debian installs them. The
    /// variables STANDFAST_BIN, STANDFAST_EXTENSION, STANDFAST_UNINSTRUMENTED, STANDFAST_BROWSER_TEST,
    /// STANDFAST_CAMPAIGN, LITESTREAM, IPERF3, SOCKPERF, QPERF and PG_BINDIR override these places.
    pub fn find() -> Programs {
        let here = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
        let beside = |name: &str| here.as_ref().map(|here| here.join(name)).filter(|path| path.exists());
        let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        Programs {
            standfast: named("STANDFAST_BIN").or_else(|| beside("standfast")),
            extension: named("STANDFAST_EXTENSION").or_else(|| beside("libstandfast.so")),
            uninstrumented: named("STANDFAST_UNINSTRUMENTED").or_else(|| beside("../uninstrumented/release")),
            browser_test: named("STANDFAST_BROWSER_TEST"),
            campaign: named("STANDFAST_CAMPAIGN").or_else(|| beside("standfast-campaign")),
            litestream: named("LITESTREAM")
                .or_else(|| beside("../rivals/litestream"))
                .or_else(|| on_path("litestream")),
            iperf3: named("IPERF3").or_else(|| on_path("iperf3")),
            sockperf: named("SOCKPERF").or_else(|| on_path("sockperf")),
            qperf: named("QPERF").or_else(|| on_path("qperf")),
            postgres: named("PG_BINDIR").or_else(postgres_of_debian),
        }
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(name))
        .find(|path| path.exists())
}

/// Prefers version 15, so that figures stay comparable; else takes the newest.
fn postgres_of_debian() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut numbered: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    numbered.sort();
    numbered.iter().find(|(version, _)| *version == 15).or(numbered.last()).map(|(_, path)| path.clone())
}

/// Returns the program, or the reason to skip the system that needs it.
pub(crate) fn need<'p>(program: &'p Option<PathBuf>, remedy: &str) -> Result<&'p Path> {
    match program {
        Some(path) if path.exists() => Ok(path),
        Some(path) => Err(BenchError::Unavailable(format!("{} does not exist: {remedy}", path.display()))),
        None => Err(BenchError::Unavailable(remedy.to_owned())),
    }
}
