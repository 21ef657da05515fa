//! Options of `standfast net`.

mod client;
mod target;
mod values;

use crate::access::Network;
use crate::log_history::{self, LogHistory};
use crate::{NetError, Result};
use clap::{Args, Subcommand};
pub use client::ClientArgs;
use std::path::PathBuf;
use std::time::Duration;
use target::TargetArgs;
pub use target::key;
use values::{Host, amount, buffer, host, pause, percent, positive_seconds, rate, write_size};

const ADVISE_EXAMPLES: &str = "\
Examples:
  standfast net advise beta --peak-redo 20MiB/s --redo-write 8k
  standfast net advise beta --peak-redo 2MiB/s --max-traffic 500mb --json
  standfast net advise beta --peak-redo 20MiB/s --both --html beta.html

Exit codes: 0 every transport mode passes or warns, 1 failed, 2 usage, 3 a mode
fails, 4 refused, 130 interrupted.";

const SERVER_EXAMPLES: &str = "\
Examples:
  standfast net server --bind 10.1.0.7 --file /var/lib/standfast/test.tmp
  (umask 077; head -c 32 /dev/urandom | base64 > test.psk)
  standfast net server --allow 10.1.0.0/16 --psk-file test.psk

Exit codes: 0 ended by Ctrl-C, 1 failed, 2 usage, 4 the file cannot be used.";

const DISK_EXAMPLES: &str = "\
Examples:
  standfast net disk --dir /var/lib/standfast
  standfast net disk --dir /disk1/log --second-dir /disk2/log --length 8k --duration 10s

Exit codes: 0 ok, 1 failed, 2 usage, 4 no file can be made there, 130 interrupted.";

const SWEEP_EXAMPLES: &str = "\
Examples:
  standfast net sweep beta
  standfast net sweep beta --both --max-window 16m --json
  standfast net sweep beta --html sweep.html

Exit codes: 0 ok, 1 failed, 2 usage, 4 refused, 130 interrupted.";

const DIFF_EXAMPLES: &str = "\
Examples:
  standfast net client beta --length 8k --duration 30s --output before.json
  standfast net diff before.json after.json
  standfast net diff before.json after.json --tolerance 5 --json

Exit codes: 0 as good, 2 usage, 3 worse by more than the tolerance.";

/// Measures the way to another host, and the disks at both ends; no instance is needed.
#[derive(Debug, Subcommand)]
pub enum NetCommand {
    /// Serve tests of other hosts, until it is interrupted
    #[command(after_help = SERVER_EXAMPLES)]
    Server(ServerArgs),
    /// Carry out one test
    #[command(after_help = client::EXAMPLES)]
    Client(Box<ClientArgs>),
    /// Measure durable writes of a disk of this host, one and two log members
    #[command(after_help = DISK_EXAMPLES)]
    Disk(DiskArgs),
    /// Find the best socket buffers and number of connections
    #[command(after_help = SWEEP_EXAMPLES)]
    Sweep(SweepArgs),
    /// Say which transport modes the link carries, what limits it, and what to set; changes nothing
    #[command(after_help = ADVISE_EXAMPLES)]
    Advise(AdviseArgs),
    /// Compare two results of `net client --json`; exits 3 when the second one is worse
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
}

/// `net server`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Address of this host to listen on, or ADDRESS:PORT; default: all
    #[arg(long, value_parser = host, value_name = "ADDRESS", allow_hyphen_values = true)]
    pub bind: Option<Host>,
    /// Port
    #[arg(long, default_value_t = 7460, value_parser = clap::value_parser!(u16).range(1..), allow_hyphen_values = true)]
    pub port: u16,
    /// File for tests that write: made with 64 MiB, removed at the end; a file of another program is left alone
    #[arg(long, default_value = crate::plan::DEFAULT_FILE)]
    pub file: PathBuf,
    /// Socket buffer; 0: what the client asks for, or the system's choice
    #[arg(long, default_value = "0", value_parser = buffer, value_name = "SIZE", allow_hyphen_values = true)]
    pub window: u32,
    /// Most connections of tests at the same time
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..), allow_hyphen_values = true)]
    pub max_connections: u16,
    /// Serve only clients of this network or address; may be given several times [default: all]
    #[arg(long, value_name = "CIDR", allow_hyphen_values = true)]
    pub allow: Vec<Network>,
    /// Serve only clients that have the secret in this file, of at least 16 bytes
    #[arg(long, value_name = "FILE")]
    pub psk_file: Option<PathBuf>,
}

/// `net disk`.
#[derive(Debug, Args)]
pub struct DiskArgs {
    /// Directory on the disk to be measured; a file of 64 MiB a member is made there and removed
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Directory of a second member, on another disk; default: the same
    #[arg(long)]
    pub second_dir: Option<PathBuf>,
    /// Bytes of a write; may be given several times [default: 4k 8k 64k 1m]
    #[arg(long, value_parser = write_size, value_name = "SIZE", allow_hyphen_values = true)]
    pub length: Vec<u32>,
    /// Time for each size and number of members
    #[arg(long, default_value = "2s", value_parser = positive_seconds, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Duration,
    /// Pause after each write, as between commits: a disk that rests meanwhile answers later than a busy one
    #[arg(long, default_value = "0", value_parser = pause, value_name = "TIME", allow_hyphen_values = true)]
    pub delay: Duration,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `net sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Time for each setting
    #[arg(long, default_value = "5s", value_parser = positive_seconds, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Duration,
    /// Largest socket buffer that is tried
    #[arg(long, default_value = "64m", value_parser = buffer, value_name = "SIZE", allow_hyphen_values = true)]
    pub max_window: u32,
    /// Most connections that are tried
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N", allow_hyphen_values = true)]
    pub max_streams: u16,
    /// Also the other direction, which redo takes when the roles have changed
    #[arg(long)]
    pub both: bool,
    /// Also write a report to this file, one HTML page with plots; replaces only an earlier report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `net advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Redo that the primary makes at its peak
    #[arg(long, value_parser = rate, value_name = "RATE", required_unless_present = "log_history", allow_hyphen_values = true)]
    peak_redo: Option<f64>,
    /// Table of archived logs with their sizes and times, as a query prints it: the peak is that of the fastest one
    #[arg(long, value_name = "FILE", conflicts_with = "peak_redo")]
    log_history: Option<PathBuf>,
    /// Average size of a redo write [default: 8k]
    #[arg(long, value_parser = write_size, value_name = "SIZE", allow_hyphen_values = true)]
    redo_write: Option<u32>,
    /// Statistic `redo size` of an interval, bytes; with --redo-writes it gives the average redo write
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "BYTES",
        requires = "redo_writes",
        conflicts_with = "redo_write"
    )]
    redo_bytes: Option<u64>,
    /// Statistic `redo writes` of the same interval
    #[arg(long, value_name = "N", requires = "redo_bytes", value_parser = clap::value_parser!(u64).range(1..), allow_hyphen_values = true)]
    redo_writes: Option<u64>,
    /// Time of each of the tests
    #[arg(long, default_value = "5s", value_parser = positive_seconds, value_name = "TIME", allow_hyphen_values = true)]
    pub duration: Duration,
    /// No further test begins, and a running one ends, when all together have sent about so much
    #[arg(long, default_value = "20g", value_parser = amount, value_name = "SIZE", allow_hyphen_values = true)]
    pub max_traffic: u64,
    /// Also the other direction, which redo takes when the roles have changed
    #[arg(long)]
    pub both: bool,
    /// File for the writes of this host, with --both: made with 64 MiB, removed at the end
    #[arg(long, default_value = crate::plan::DEFAULT_FILE)]
    pub file: PathBuf,
    /// Also write a report to this file, one HTML page with plots; replaces only an earlier report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

impl AdviseArgs {
    /// Peak of the redo, bytes per second, and what the log history says when it comes from there.
    pub fn peak(&self) -> Result<(f64, Option<LogHistory>)> {
        match (self.peak_redo, &self.log_history) {
            (Some(peak), _) => Ok((peak, None)),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    let allowed = format!("a file that can be read ({error})");
                    NetError::option("--log-history", &path.display().to_string(), &allowed)
                })?;
                let history = log_history::read(&text)?;
                Ok((history.peak.rate(), Some(history)))
            }
            (None, None) => Err(NetError::Usage("give --peak-redo or --log-history".into())),
        }
    }

    /// Returns the bytes of an average redo write: 8 KiB unless the arguments say otherwise.
    pub fn redo_write(&self) -> Result<u32> {
        let Some((bytes, writes)) = self.redo_bytes.zip(self.redo_writes) else {
            return Ok(self.redo_write.unwrap_or(8 << 10));
        };
        write_size(&(bytes / writes).to_string()).map_err(|forms| {
            NetError::Usage(format!(
                "--redo-bytes / --redo-writes is {} bytes a write; {forms}",
                bytes / writes
            ))
        })
    }
}

/// `net diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The result to compare with
    pub before: PathBuf,
    /// The result that may be worse
    pub after: PathBuf,
    /// Differences up to so many percent are noise
    #[arg(long, default_value_t = 10.0, value_parser = percent, allow_hyphen_values = true)]
    pub tolerance: f64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
