//! `standfast destination`: the attributes of archive destinations on the command line.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use standfast_environment::config::settings::{Compression, DestinationConfig, OnTimeout, TransportMode};

const SET_EXAMPLES: &str = "\
Attributes, in the notation of LOG_ARCHIVE_DEST_n (times in seconds, DELAY in minutes):
  SERVICE=HOST:PORT | LOCATION=DIRECTORY    first; DB_UNIQUE_NAME=NAME is required with SERVICE
  SYNC | ASYNC, AFFIRM | NOAFFIRM           SYNC AFFIRM; ASYNC for the numbers 11 to 31
  NET_TIMEOUT=30  REOPEN=1  MAX_FAILURE=0   0.1 to 1200; 0 = tried forever, 1 in a group
  DELAY[=30]  COMPRESSION=LZ4|ZSTD|ENABLE|DISABLE
  VALID_FOR=(ONLINE_LOGFILE|STANDBY_LOGFILE|ALL_LOGFILES,PRIMARY_ROLE|STANDBY_ROLE|ALL_ROLES)
  GROUP=1..8  PRIORITY=1..8  ALTERNATE=NAME  MANDATORY | OPTIONAL  STATE=ENABLE|DEFER|ALTERNATE
  MAX_CONNECTIONS=1..20  SDU=BYTES  SEND_BUF_SIZE=BYTES  RECV_BUF_SIZE=BYTES

Examples:
  standfast destination set -D /srv/sf 2 'SERVICE=10.0.0.2:7411 SYNC AFFIRM NET_TIMEOUT=10 DB_UNIQUE_NAME=oslo'
  standfast destination set -D /srv/sf 3 'SERVICE=far:7411 ASYNC COMPRESSION=ZSTD DB_UNIQUE_NAME=perth'
  standfast destination set -D /srv/sf 4 'LOCATION=/mnt/nas/archive MANDATORY'

Takes effect at once and is written to standfast.toml. What is not given has its default.
Exit codes: 0 ok, 2 an attribute is wrong, 3 refused as things stand, 4 the instance does not run.";

#[derive(Debug, Subcommand)]
pub enum DestinationCommand {
    /// Add a standby, or change the one with this name.
    #[command(
        after_help = "Examples:\n  standfast destination add -D /srv/sf oslo 10.0.0.2:7411 --mode sync-affirm --on-timeout stall\n  standfast destination add -D /srv/sf nearby 127.0.0.1:7451 --mode async --compression lz4\n\nConnects first: an instance that cannot be reached, is another one or takes no redo is not added (exit code 3).\nTakes effect at once and is written to standfast.toml. Commits wait for a synchronous destination from its first\nsynchronisation. `destination set` knows all attributes and does not connect first."
    )]
    Add {
        #[command(flatten)]
        destination: DestinationArgs,
        /// Configure it without connecting to it first. Commits wait for it from its first synchronisation.
        #[arg(long)]
        no_wait: bool,
    },
    /// Set all attributes of a destination at once, in the notation of LOG_ARCHIVE_DEST_n.
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// Its number, 1 to 31.
        #[arg(value_name = "N")]
        id: u8,
        /// The attributes; an empty text removes the destination.
        attributes: String,
    },
    /// Use a destination, or try one again that was given up (LOG_ARCHIVE_DEST_STATE=ENABLE).
    Enable {
        /// Its name.
        name: String,
    },
    /// Keep a destination configured, but out of use (LOG_ARCHIVE_DEST_STATE=DEFER).
    Defer {
        /// Its name.
        name: String,
    },
    /// Print the destinations, as `set` takes them.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a destination.
    Remove {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, ClapArgs)]
pub struct DestinationArgs {
    /// Name of the standby instance.
    name: String,
    /// Its address, HOST:PORT.
    address: String,
    /// What a commit waits for.
    #[arg(long, value_enum, default_value = "sync-affirm")]
    mode: ModeArg,
    /// What a missing acknowledgement leads to; default: what the protection mode says.
    #[arg(long, value_enum)]
    on_timeout: Option<OnTimeoutArg>,
    /// How long a commit waits for an acknowledgement, milliseconds.
    #[arg(long, default_value_t = 30_000)]
    net_timeout_ms: u64,
    /// Longest pause between attempts to connect, milliseconds.
    #[arg(long, default_value_t = 1_000)]
    reopen_ms: u64,
    /// How redo is packed on its way.
    #[arg(long, value_enum, default_value = "none")]
    compression: CompressionArg,
    /// Connections that carry one archived log when the standby lacks it, 1 to 20.
    #[arg(long, default_value_t = 1)]
    max_connections: u8,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Redo is in the standby's log on disk.
    SyncAffirm,
    /// Redo is in the standby's memory.
    Fastsync,
    /// Nothing.
    Async,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnTimeoutArg {
    /// Commits continue without the standby until it has caught up.
    Degrade,
    /// Commits wait.
    Stall,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompressionArg {
    /// Not at all.
    None,
    /// Little work, about half the bytes.
    Lz4,
    /// More work, fewer bytes.
    Zstd,
}

impl From<DestinationArgs> for DestinationConfig {
    fn from(args: DestinationArgs) -> DestinationConfig {
        DestinationConfig {
            mode: Some(match args.mode {
                ModeArg::SyncAffirm => TransportMode::SyncAffirm,
                ModeArg::Fastsync => TransportMode::Fastsync,
                ModeArg::Async => TransportMode::Async,
            }),
            on_timeout: args.on_timeout.map(|on_timeout| match on_timeout {
                OnTimeoutArg::Degrade => OnTimeout::Degrade,
                OnTimeoutArg::Stall => OnTimeout::Stall,
            }),
            net_timeout_ms: args.net_timeout_ms,
            reopen_ms: args.reopen_ms,
            compression: match args.compression {
                CompressionArg::None => Compression::None,
                CompressionArg::Lz4 => Compression::Lz4,
                CompressionArg::Zstd => Compression::Zstd,
            },
            max_connections: args.max_connections,
            ..DestinationConfig::new(args.name, args.address)
        }
    }
}
