//! The command line.

use crate::database::DatabaseCommand;
use crate::destination_args::DestinationCommand;
use crate::live::{CheckArgs, TopArgs};
use crate::reports::{DiagnoseArgs, ReportArgs, SnapshotCommand};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use standfast_environment::ProtectionMode;
use standfast_environment::Rights;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  standfast init -D /srv/sf --name paris --listen 127.0.0.1:7450
  standfast start -D /srv/sf &
  standfast protect -D /srv/sf /srv/app/orders.db
  standfast standby token -D /srv/sf --name oslo > token
  standfast standby create -D /srv/sf-b --from 127.0.0.1:7450 --name oslo --listen 127.0.0.1:7451 --token-file token
  standfast start -D /srv/sf-b &
  standfast destination add -D /srv/sf oslo 127.0.0.1:7451
  standfast status -D /srv/sf
  standfast failover -D /srv/sf-b

Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 refused as things stand,
4 the instance does not run, 5 it runs already.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  standfast completions bash > /etc/bash_completion.d/standfast
  standfast completions zsh > /usr/local/share/zsh/site-functions/_standfast";

const MAN_EXAMPLES: &str = "\
Examples:
  standfast man | man -l -
  standfast man --output /usr/local/share/man/man1";

/// Redo shipping and standby databases for SQLite: a COMMIT that returned is on two machines.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Args {
    /// Instance directory.
    #[arg(
        short = 'D',
        long = "directory",
        env = "STANDFAST_DIR",
        global = true,
        default_value = ".",
        value_name = "DIR"
    )]
    pub directory: PathBuf,
    #[command(subcommand)]
    pub command: Command,
}

/// The command line. Commands that need no instance take its directory, as all do, but do not offer it.
pub fn command() -> clap::Command {
    let without = ["net", "wan", "bench", "doctor", "completions", "man"];
    without.into_iter().fold(Args::command(), |command, name| {
        let of_all = command.get_arguments().find(|argument| argument.get_id() == "directory").cloned();
        command.mut_subcommand(name, |part| part.args(of_all.map(|directory| directory.hide(true))))
    })
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a new primary instance.
    #[command(
        after_help = "Examples:\n  standfast init -D /srv/sf --name paris --listen 127.0.0.1:7450\n  standfast init -D /srv/sf --name paris --listen 10.0.0.1:7411\n\nConnections are encrypted (TLS 1.3), on loopback too; --insecure at both ends leaves them plain."
    )]
    Init {
        /// Name of the instance, as standbys and messages know it.
        #[arg(long)]
        name: Option<String>,
        /// Address to receive on, HOST:PORT.
        #[arg(long)]
        listen: Option<String>,
        /// Plain TCP instead of TLS, at both ends: for ports that no other user or host can reach.
        #[arg(long)]
        insecure: bool,
        /// Of older releases; says nothing any more.
        #[arg(long, value_enum, hide = true, conflicts_with = "insecure")]
        tls: Option<TlsArg>,
        /// Bytes of each redo log file.
        #[arg(long)]
        group_bytes: Option<u64>,
        /// Directories of the redo log's members, relative to the instance directory; each group has a file in every
        /// one, so put them on different devices.
        #[arg(long, value_delimiter = ',', value_name = "DIR,...")]
        members: Vec<PathBuf>,
    },
    /// Run the instance in the foreground until SIGTERM or `standfast stop`.
    Start {
        /// Open a primary whose online redo log is damaged without the redo from this position on, which the refusal to
        /// start names. Only when no standby has it: what the databases hold counts then.
        #[arg(long, value_name = "SCN")]
        until_scn: Option<u64>,
        /// The directory is a copy, or was restored, and the original will never be started again.
        #[arg(long)]
        adopt: bool,
        /// As root also in the directory of another user, who can then make it write anywhere.
        #[arg(long)]
        allow_root: bool,
    },
    /// Shut the running instance down cleanly.
    Stop,
    /// Protect a database, or all databases in a directory.
    #[command(
        after_help = "Examples:\n  standfast protect -D /srv/sf /srv/app/orders.db\n  standfast protect -D /srv/sf /srv/app          # every database in it\n\nThe application need not be stopped, but connections that are open already do not wait for the standby: open them\nanew.\nExit codes: 0 ok, 3 refused, with cause and remedy, 4 the instance does not run."
    )]
    Protect {
        /// Database file or directory.
        path: PathBuf,
        /// Its file name on standbys; default: the same.
        #[arg(long)]
        name: Option<String>,
    },
    /// End the protection of a database.
    #[command(
        after_help = "Examples:\n  standfast unprotect -D /srv/sf orders.db\n  standfast unprotect -D /srv/sf /srv/app        # new databases in it are no longer looked for\n\nStandbys keep their copy as it is. Exit codes: 0 ok, 3 not protected here, 4 the instance does not run."
    )]
    Unprotect {
        /// Its file or name.
        name: String,
    },
    /// Databases whose file and redo differ, and files that were kept.
    Database {
        #[command(subcommand)]
        command: DatabaseCommand,
    },
    /// Standby instances.
    Standby {
        #[command(subcommand)]
        command: StandbyCommand,
    },
    /// Where redo is shipped.
    Destination {
        #[command(subcommand)]
        command: DestinationCommand,
    },
    /// Show or change the protection mode of a primary.
    #[command(
        after_help = "Examples:\n  standfast protection-mode -D /srv/sf\n  standfast protection-mode -D /srv/sf maximum-protection\n\nmaximum-performance: nothing is promised beyond this machine. maximum-availability: commits wait for every\nsynchronous standby that keeps up, and continue, loudly, when none does. maximum-protection: no commit returns that is\nnot on disk at a second machine; when the last such standby is lost, the primary stalls, then stops.\nTakes effect at once. The level is what commits get now; RESYNCHRONIZATION: no standby is synchronised.\nExit codes: 0 ok, 3 refused (no standby can carry the mode), 4 the instance does not run."
    )]
    ProtectionMode {
        /// The new mode; without it the mode and the level are printed.
        #[arg(value_enum)]
        mode: Option<ProtectionModeArg>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the state; exits 1 when the instance has failed.
    #[command(
        after_help = "Examples:\n  standfast status -D /srv/sf\n  standfast status -D /srv/sf --json | jq .destinations[0].transport_lag_bytes\n  standfast status -D /srv/sf --check --warn-transport-lag 5s\n\nExit codes: 0 ok, 1 the instance has failed, 4 it does not run.\nWith --check, as monitoring plugins: 0 ok, 1 warning, 2 critical (also: it does not run), 3 unknown."
    )]
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        check: CheckArgs,
    },
    /// Print everything that can be observed, as JSON: wait events, statistics, the parts of commits, the state.
    ///
    /// What views, reports and the dashboard are made of. Counts grow from the start of the instance on; the difference of
    /// two observations is what happened in between.
    #[command(
        after_help = "Examples:\n  standfast observe -D /srv/sf | jq '.sample.parts[] | {part, mean_us: (.time_ns / (.count + 1e-9) / 1000)}'\n  standfast observe -D /srv/sf --standbys | jq '.standbys[] | {name, error}'\n\nExit codes: 0 ok, 4 the instance does not run."
    )]
    Observe {
        /// With what was noted over time: metrics, active sessions, lags.
        #[arg(long)]
        history: bool,
        /// Ask the standbys, too.
        #[arg(long)]
        standbys: bool,
    },
    /// Live view in the terminal (quit with q).
    #[command(
        after_help = "Examples:\n  standfast top -D /srv/sf\n  standfast top -D /srv/sf --once | head -3\n\nKeys: 1 to 7 a part, 0 all, / filter, p pause, ? help, q quit. NO_COLOR is heeded.\nExit codes: 0 ok, 1 no terminal, 4 the instance does not run."
    )]
    Top(TopArgs),
    /// Hand the role of primary to a standby, and become its standby: nothing is lost and nothing is copied.
    ///
    /// Run it at the primary. Write transactions that run may end; new ones wait here, and are refused once this instance is a
    /// standby. If a step fails, this instance is the primary as before, or again.
    #[command(
        after_help = "Examples:\n  standfast switchover -D /srv/sf oslo\n  standfast switchover -D /srv/sf oslo --drain 60\n\nExit codes: 0 the standby is the primary and this instance its standby, 1 it is not known whether the standby has taken over\n(the text says what to do), 3 refused or undone: this instance is the primary, 4 the instance does not run."
    )]
    Switchover {
        /// Name of the destination that is to become the primary.
        to: String,
        /// How long write transactions that run may take to end, seconds; without it as configured, see `[role_change]`.
        #[arg(long, value_name = "SECONDS")]
        drain: Option<u64>,
        /// Print the result as JSON: the new primary, where its incarnation begins, and how long writers waited.
        #[arg(long)]
        json: bool,
    },
    /// Make this standby the primary, with everything it has received.
    ///
    /// A standby behind a far sync or another standby first fetches the redo that its source still has, and reports when
    /// it cannot know whether that is everything. Apply is tried again first for databases where it had stopped; the
    /// failover is refused if it would have to exclude one, and while the primary is heard: `standfast switchover` is for
    /// that.
    #[command(
        after_help = "Examples:\n  standfast failover -D /srv/sf-b\n  standfast failover -D /srv/sf-b --wait 0     # at once, with what is here\n  standfast failover -D /srv/sf-b --immediate  # without the databases that cannot be brought up to date\n\nMake sure that the old primary is gone first. Exit codes: 0 this is the primary now, with everything that was acknowledged\n(of a primary that ships asynchronously: with everything that was received), 3 it is no standby, the primary is alive, or a\ndatabase would be left offline, 4 the instance does not run, 6 this is the primary now, and it names what is missing or not known to be here: databases\nthat stay offline, pages that differ, a standby that was behind, or that had not heard from the primary for longer than\ncommits wait for it."
    )]
    Failover {
        /// How long to wait for what the source of this standby still has, seconds.
        #[arg(long, default_value_t = 30, value_name = "SECONDS")]
        wait: u64,
        /// Take over even if databases have to be excluded; the redo that they lack is kept if it is here.
        #[arg(long)]
        immediate: bool,
        /// Take over even if the primary is alive: what it acknowledges meanwhile is lost.
        #[arg(long)]
        force: bool,
        /// Print what was found as JSON: where the new incarnation begins, what may be missing, and each excluded
        /// database.
        #[arg(long)]
        json: bool,
    },
    /// The configuration of all members and changes of role, in the commands of DGMGRL.
    #[command(after_help = crate::dg::EXAMPLES)]
    Dg(crate::dg::DgArgs),
    /// The observer of fast-start failover: a small program on a third host.
    Observer {
        #[command(subcommand)]
        command: ObserverCommand,
    },
    /// Start or stop applying redo to this standby.
    Apply {
        #[command(subcommand)]
        command: ApplyCommand,
    },
    /// Make a standby a snapshot standby, whose databases can be written to, or a physical standby again.
    Convert {
        #[command(subcommand)]
        command: crate::convert::ConvertCommand,
    },
    /// Register archived logs that were copied by hand.
    Register {
        #[command(subcommand)]
        command: RegisterCommand,
    },
    /// Begin a new redo log.
    SwitchLogfile,
    /// Move everything into the databases and the start of recovery to the end of the redo.
    Checkpoint,
    /// Compare the databases of the standbys with those of this primary, page by page, while commits continue.
    ///
    /// Each page is compared as of one SCN: its checksum goes to the standbys in the redo. Damage to a page that no
    /// transaction touches is found this way before a failover serves it. Status, alert log and metrics name what differs
    /// until it is equal again. [verify] of the configuration does the same on a schedule.
    #[command(after_help = crate::verify::EXAMPLES)]
    Verify(crate::verify::VerifyArgs),
    /// Run a program once and say which SQLite it loads, and whether what it opens is protected.
    #[command(after_help = crate::doctor::EXAMPLES)]
    Doctor(crate::doctor::DoctorArgs),
    /// Redo logs.
    Log {
        #[command(subcommand)]
        command: LogCommand,
    },
    /// Query the V$ views of the running instance and its standbys.
    #[command(after_help = crate::sql::EXAMPLES)]
    Sql(crate::sql::SqlArgs),
    /// Take a snapshot of what the instance counts, for reports, and print its number.
    #[command(after_help = crate::reports::SNAPSHOT_EXAMPLES)]
    Snapshot {
        #[command(subcommand)]
        command: Option<SnapshotCommand>,
    },
    /// Report what happened between two snapshots; the instance need not run.
    #[command(after_help = crate::reports::REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Find problems and suggest fixes, root cause first.
    #[command(after_help = crate::reports::DIAGNOSE_EXAMPLES)]
    Diagnose(DiagnoseArgs),
    /// Certificates of this instance.
    Cert {
        #[command(subcommand)]
        command: CertCommand,
    },
    /// Run a program while the instance is the primary: start it when it becomes that, end it when it is that no longer.
    #[command(after_help = crate::exec::EXAMPLES)]
    Exec(crate::exec::ExecArgs),
    /// Make a primary that another one has replaced a standby of it, without a full copy.
    ///
    /// Run it on the host of the old primary, which must be stopped. Only pages that differ are fetched from the new primary.
    /// A standby that needs redo which exists no more is brought up to date in the same way.
    #[command(after_help = crate::reinstate::EXAMPLES)]
    Reinstate(crate::reinstate::ReinstateArgs),
    /// Let a primary continue that was fenced because another one had taken over.
    Fence {
        #[command(subcommand)]
        command: FenceCommand,
    },
    /// Print the configuration.
    Config {
        /// The defaults instead of the settings in force.
        #[arg(long)]
        defaults: bool,
    },
    /// Measure this machine.
    Bench {
        #[command(subcommand)]
        command: standfast_bench::command::BenchCommand,
    },
    /// Measure the way to another host and the disks at both ends.
    Net {
        #[command(subcommand)]
        command: standfast_net::command::NetCommand,
    },
    /// Print completions for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Directory for a page of each command; default: the page of the whole to stdout.
        #[arg(long)]
        output: Option<PathBuf>,
    },
    /// A WAN in a box: hosts on this machine with emulated links between them (root only).
    Wan {
        #[command(subcommand)]
        command: standfast_wan::command::WanCommand,
    },
    /// Test the way to another host and onto its disk, with the classic options (-server, -port=N, -mode=...).
    #[command(disable_help_flag = true)]
    Tcptest {
        /// Options with one dash; -help lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        words: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum FenceCommand {
    /// Lift the fence of an instance that is stopped: the other one became primary by mistake.
    #[command(
        after_help = "Examples:\n  standfast fence lift -D /srv/sf\n  standfast fence lift -D /srv/sf --yes\n\nWithout --yes it only prints what it would do. It asks the destinations first, and is refused while one of them is open as\nprimary. Reports about the abandoned incarnation are not trusted here afterwards. Standbys that\nfollow it have to be made again. The alert log records it.\n\nExit codes: 0 lifted, 1 not lifted (no --yes), 3 refused."
    )]
    Lift {
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
}

/// What a host may do, if it is not everything.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
pub struct UseArgs {
    /// It only receives: it never becomes primary, and the others never take redo from it.
    #[arg(long)]
    pub never_primary: bool,
    /// It is a far sync: it receives and forwards redo, copies no databases and never becomes primary.
    #[arg(long)]
    pub far_sync: bool,
    /// It only reads the state.
    #[arg(long)]
    pub status_only: bool,
}

impl UseArgs {
    pub fn rights(self) -> Rights {
        match self {
            UseArgs { never_primary: true, .. } => Rights::never_primary(),
            UseArgs { far_sync: true, .. } => Rights::far_sync(),
            UseArgs { status_only: true, .. } => Rights::status_only(),
            _ => Rights::all(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum CertCommand {
    /// Show the certificate, the authorities it trusts, and the hosts that are listed here.
    #[command(
        after_help = "Examples:\n  standfast cert show -D /srv/sf\n  standfast cert show -D /srv/sf --json | jq .certificate.days_left\n\nExit codes: 0 ok, 3 this instance has no certificate."
    )]
    Show {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a new key and get a new certificate; the instance may run.
    #[command(
        visible_alias = "rotate",
        after_help = "Examples:\n  standfast cert renew -D /srv/sf\n  standfast cert renew -D /srv/sf-b --from 10.0.0.1:7411\n  standfast cert renew -D /srv/sf-b --from 10.0.0.2:7411 --issuer oslo\n\nA running instance does this by itself when two thirds of the life of its certificate are over. New connections use the new one, open ones continue. Exit codes: 0 ok, 3 refused, with cause and remedy."
    )]
    Renew {
        /// Instance that gives certificates, HOST:PORT; default: this one, or the known issuer.
        #[arg(long)]
        from: Option<String>,
        /// Name of that instance; default: the known issuer. Another instance that answers there is not asked.
        #[arg(long, value_name = "NAME")]
        issuer: Option<String>,
    },
    /// Get the first certificate of an instance, with a token of the primary.
    #[command(
        after_help = "Examples:\n  standfast cert join -D /srv/sf-b --from 10.0.0.1:7411 --token-file token\n  ssh paris standfast standby token -D /srv/sf --name oslo | standfast cert join -D /srv/sf-b --from 10.0.0.1:7411 --token-file -\n\nExit codes: 0 ok, 2 not a token, 3 refused."
    )]
    Join {
        /// Address of the instance that made the token, HOST:PORT.
        #[arg(long)]
        from: String,
        /// File with the token, - for standard input; default: the variable STANDFAST_TOKEN.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// Make a new authority for the family, and a certificate of it for this instance.
    #[command(
        after_help = "Examples:\n  standfast cert init -D /srv/sf\n\n`standfast init` has done this once. Again it is for an authority's key that is lost or known to others: certificates\nof the old authority are accepted here until its entry is removed from tls/ca.crt. Then renew those of the other instances, and at last this one's."
    )]
    Init,
    /// Put a host on the list by hand, as if it had joined here.
    #[command(
        after_help = "Examples:\n  standfast cert allow -D /srv/sf-c oslo\n  standfast cert allow -D /srv/sf reports --never-primary\n  standfast cert allow -D /srv/sf near --far-sync\n\nIts certificate must be of this family. Exit codes: 0 ok, 1 failed."
    )]
    Allow {
        /// Its name.
        name: String,
        #[command(flatten)]
        uses: UseArgs,
    },
    /// Take all rights from a host.
    #[command(
        after_help = "Examples:\n  standfast destination remove -D /srv/sf oslo\n  standfast cert revoke -D /srv/sf oslo\n\nIt stays listed with no right, whatever others say of it, until a new token or `standfast cert allow` gives it some. Streams and copies that it has open end. Standbys hear of it over the open stream, or when the primary connects to them next. Exit codes: 0 ok, 3 it has no rights, or is a destination."
    )]
    Revoke {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum StandbyCommand {
    /// Make a token with which a new host gets its certificate, once.
    #[command(
        after_help = "Examples:\n  standfast standby token -D /srv/sf --name oslo > token\n  standfast standby token -D /srv/sf --name reports --never-primary --ttl 15m\n  standfast standby token -D /srv/sf --name near --far-sync\n\nWithout an option it is for a standby that may take over. The token is a secret. Exit codes: 0 ok, 3 this instance gives no certificates, 4 it does not run."
    )]
    Token {
        /// Name of the new instance.
        #[arg(long)]
        name: String,
        /// For how long it is good: 90s, 15m, 1h, 2d.
        #[arg(long, default_value = "1h")]
        ttl: String,
        #[command(flatten)]
        uses: UseArgs,
    },
    /// Make a standby as a copy of a running primary, or a far sync.
    ///
    /// Its redo logs are sized by the rule: as large as the online logs of the primary, and one group more.
    #[command(
        after_help = "Examples:\n  standfast standby create -D /srv/sf-b --from 10.0.0.1:7411 --name oslo --listen 10.0.0.2:7411 --token-file token\n  standfast standby create -D /srv/sf-n --from 10.0.0.1:7411 --name near --listen 10.0.0.3:7411 --token-file token2 --far-sync\n\nThe new host needs a token of the primary (`standfast standby token`), unless both are insecure. The primary continues meanwhile. A standby that a far sync or another standby is to feed is made from the primary as well,\nafter the one that feeds it. Exit codes: 0 ok, 1 failed, 3 refused by the primary or by what is in the directory."
    )]
    Create {
        /// Address of the primary, HOST:PORT.
        #[arg(long)]
        from: String,
        /// Name of the new instance.
        #[arg(long)]
        name: Option<String>,
        /// Address to receive on, HOST:PORT.
        #[arg(long)]
        listen: Option<String>,
        /// Plain TCP instead of TLS, at both ends: for ports that no other user or host can reach.
        #[arg(long)]
        insecure: bool,
        /// Of older releases; says nothing any more.
        #[arg(long, value_enum, hide = true, conflicts_with = "insecure")]
        tls: Option<TlsArg>,
        /// File with a token of the primary, - for standard input; default: the variable STANDFAST_TOKEN.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// Directories of the redo log's members, relative to the instance directory; put them on different devices.
        #[arg(long, value_delimiter = ',', value_name = "DIR,...")]
        members: Vec<PathBuf>,
        /// Without databases: it takes redo synchronously near the primary and forwards it to its own destinations.
        #[arg(long)]
        far_sync: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum ObserverCommand {
    /// Make the directory of an observer, with a certificate of the family.
    #[command(
        after_help = "Examples:\n  standfast standby token -D /srv/sf --name tokyo --status-only > token     # at the primary\n  standfast observer create -D /srv/observer --from 10.0.0.1:7411 --name tokyo --listen 10.0.0.3:7413 --token-file token\n\nThe host should be neither that of the primary nor that of a standby. `standfast start`, `stop` and `status` work there.\nExit codes: 0 ok, 1 failed, 3 refused by the primary\nor by what is in the directory."
    )]
    Create {
        /// Address of the primary, HOST:PORT.
        #[arg(long)]
        from: String,
        /// Name of the observer.
        #[arg(long)]
        name: String,
        /// Address at which members reach it, HOST:PORT.
        #[arg(long)]
        listen: String,
        /// Plain TCP instead of TLS, at both ends: for ports that no other user or host can reach.
        #[arg(long)]
        insecure: bool,
        /// File with a token of the primary, - for standard input; default: the variable STANDFAST_TOKEN.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub enum ApplyCommand {
    /// Apply redo, until `stop` or a restart.
    #[command(
        after_help = "Examples:\n  standfast apply start -D /srv/sf-b\n  standfast apply start -D /srv/sf-b --no-delay\n\nExit codes: 0 ok, 3 it is no standby, 4 the instance does not run."
    )]
    Start {
        /// Apply at once also what a delay holds back, until apply is started again without this.
        #[arg(long)]
        no_delay: bool,
    },
    /// Receive redo and do not apply it, until `start` or a restart.
    #[command(
        after_help = "Examples:\n  standfast apply stop -D /srv/sf-b\n\nRedo is received, hardened and acknowledged as before. Exit codes: 0 ok, 3 it is no standby, 4 the instance does\nnot run."
    )]
    Stop,
}

#[derive(Debug, Subcommand)]
pub enum RegisterCommand {
    /// Take an archived log that was copied here, when its source cannot be reached or has it no more. It is checked from
    /// its first to its last block, copied to the archive directory, and applied. Logs are registered in order.
    ///
    /// Exit codes: 0 registered, 1 failed, 2 usage, 3 it is not the log that is missing (the message says which is),
    /// 4 the instance does not run.
    #[command(
        after_help = "Examples:\n  standfast register logfile -D /srv/sf /mnt/1_00000042_7f3a12bc90de4411.arc"
    )]
    Logfile {
        /// The file; it is left where it is.
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Log groups of the running instance: the online redo log of a primary, the standby redo log of a standby.
    Group {
        #[command(subcommand)]
        command: GroupCommand,
    },
    /// Members: directories in which every log group has a file.
    Member {
        #[command(subcommand)]
        command: MemberCommand,
    },
    /// Print redo records.
    #[command(
        after_help = "Examples:\n  standfast log dump -D /srv/sf --limit 20\n  standfast log dump /srv/sf/redo/online_1a.log --from 4096 --json"
    )]
    Dump {
        /// A log file; default: the logs of the instance.
        file: Option<PathBuf>,
        /// First position.
        #[arg(long)]
        from: Option<u64>,
        /// Records at most.
        #[arg(long, default_value_t = u64::MAX)]
        limit: u64,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

/// PROTECTION_MODE.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ProtectionModeArg {
    #[value(name = "maximum-performance")]
    Performance,
    #[value(name = "maximum-availability")]
    Availability,
    #[value(name = "maximum-protection")]
    Protection,
}

impl From<ProtectionModeArg> for ProtectionMode {
    fn from(mode: ProtectionModeArg) -> ProtectionMode {
        match mode {
            ProtectionModeArg::Performance => ProtectionMode::MaximumPerformance,
            ProtectionModeArg::Availability => ProtectionMode::MaximumAvailability,
            ProtectionModeArg::Protection => ProtectionMode::MaximumProtection,
        }
    }
}

/// Where connections were to be encrypted.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TlsArg {
    /// Beyond loopback.
    Auto,
    /// Everywhere.
    Required,
}

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Add a log group.
    #[command(
        after_help = "Examples:\n  standfast log group add -D /srv/sf\n  standfast log group add -D /srv/sf --bytes 268435456\n\nIt is used when its turn comes, at once if a log switch waits for a group. Exit codes: 0 ok, 3 refused, 4 the\ninstance does not run."
    )]
    Add {
        /// Bytes of each of its files; default: as the largest group.
        #[arg(long)]
        bytes: Option<u64>,
    },
    /// Drop a log group that is not needed any more.
    #[command(
        after_help = "Examples:\n  standfast log group drop -D /srv/sf 2\n\nThe current group, one that is not archived and one that recovery needs are refused: `standfast switch-logfile` and\n`standfast checkpoint` (at the primary) make a group droppable. Exit codes: 0 ok, 3 refused, 4 the instance does not run."
    )]
    Drop {
        /// Its number.
        group: usize,
    },
    /// Drop a log group and add one of another size, in one step.
    #[command(
        after_help = "Examples:\n  standfast log group resize -D /srv/sf 2 --bytes 268435456\n\nThe new group has another number. Enlarge the logs of standbys first. Exit codes: 0 ok, 3 refused as for drop,\n4 the instance does not run."
    )]
    Resize {
        /// Its number.
        group: usize,
        /// Bytes of each file of the new group.
        #[arg(long)]
        bytes: u64,
    },
    /// List the log groups and their members.
    #[command(after_help = "Examples:\n  standfast log group list -D /srv/sf --json")]
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// Add a member to every log group, or bring back one that was lost.
    #[command(
        after_help = "Examples:\n  standfast log member add -D /srv/sf /disk2/redo\n\nThe files are created and filled with what the other members hold; whatever was there is not trusted. Exit codes: 0 ok,\n1 a file cannot be made, 3 refused, 4 the instance does not run."
    )]
    Add {
        /// Its directory, absolute or relative to the instance directory.
        #[arg(value_name = "MEMBER_DIR")]
        place: PathBuf,
    },
    /// Drop a member of every log group, living or lost.
    #[command(
        after_help = "Examples:\n  standfast log member drop -D /srv/sf /disk2/redo\n\nExit codes: 0 ok, 3 a group would have no living member left, 4 the instance does not run."
    )]
    Drop {
        /// Its directory, as it was added.
        #[arg(value_name = "MEMBER_DIR")]
        place: PathBuf,
    },
}
