//! `standfast bench ...` and `standfast-bench ...`: the command line and what it does.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::conditions::Conditions;
use crate::context::Programs;
use crate::driver::WorkerCommand;
use crate::error::During;
use crate::figures::{FiguresConfig, Group, figures, write_json};
use crate::raw;
use crate::report;
use crate::stations::{ApplyBench, LogBench, Stations};
use crate::suite::{Missing, Suite};
use crate::systems::{Case, SystemKind};
use crate::workload::Layout;
use crate::{Context, Result, interrupt, redo_load, worker};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Commits: Standfast beside stock SQLite, Litestream and PostgreSQL, in turns
    Commit(CommitArgs),
    /// Apply of a backlog of small transactions on a standby
    Apply(ApplyArgs),
    /// The log writer alone, against plain durable writes of this disk
    Log(LogArgs),
    /// Limits of disk and loopback
    Raw(Common),
    /// The table of bars and aims; exit code 1 when a bar is missed
    Figures(FiguresArgs),
    /// An application process of the workload
    #[command(hide = true)]
    Worker,
    /// An application that makes redo at a given rate
    #[command(hide = true)]
    RedoLoad,
    /// The other end of the TCP ping-pong
    #[command(hide = true)]
    Echo,
}

/// Options of all measurements.
#[derive(Debug, Args)]
pub struct Common {
    /// Scratch directories are made here; must be on the disk to be measured
    #[arg(long, env = "STANDFAST_BENCH_DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Measured seconds of a run
    #[arg(long, default_value_t = 3.0, value_parser = positive)]
    seconds: f64,
    /// Seconds of each run before measuring, in which caches fill
    #[arg(long, default_value_t = 0.5, value_parser = not_negative)]
    warmup: f64,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Also write JSON to this file
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Options of `commit`.
#[derive(Debug, Args)]
pub struct CommitArgs {
    #[command(flatten)]
    common: Common,
    /// Numbers of clients
    #[arg(long, value_delimiter = ',', default_values_t = [1usize, 8, 40])]
    clients: Vec<usize>,
    /// Whether clients share a database
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [LayoutArg::One, LayoutArg::Each])]
    layouts: Vec<LayoutArg>,
    /// Systems to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        SystemKind::StockFull, SystemKind::StockNormal, SystemKind::Local, SystemKind::SyncAffirm,
        SystemKind::Fastsync, SystemKind::Async, SystemKind::Litestream, SystemKind::Postgres,
    ])]
    systems: Vec<SystemKind>,
    /// Runs of each system
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Options of `apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    common: Common,
    /// Transactions of the backlog
    #[arg(long, default_value_t = 1_000_000)]
    transactions: u64,
    /// Numbers of databases that they are spread over
    #[arg(long, value_delimiter = ',', default_values_t = [1usize, 40])]
    databases: Vec<usize>,
    /// Runs
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Options of `log`.
#[derive(Debug, Args)]
pub struct LogArgs {
    #[command(flatten)]
    common: Common,
    /// Threads that produce redo
    #[arg(long, default_value_t = 16)]
    producers: usize,
    /// Runs
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Options of `figures`.
#[derive(Debug, Args)]
pub struct FiguresArgs {
    #[command(flatten)]
    common: Common,
    /// Groups to measure; all when not given
    #[arg(long, value_enum, value_delimiter = ',')]
    group: Vec<Group>,
    /// Runs of a speed, cycles of `kill`, seeds of `power`, programs of `promise` with each SQLite
    #[arg(long)]
    count: Option<u64>,
}

/// What the clients share, on the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum LayoutArg {
    /// All clients write to one database
    One,
    /// Each client writes to a database of its own
    Each,
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    not_negative(text)
        .and_then(|number| if number > 0.0 { Ok(number) } else { Err("must be above 0".into()) })
}

fn not_negative(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..1e6).contains(&number) => Ok(number),
        _ => Err("a number of seconds is expected".into()),
    }
}

impl Common {
    fn context(&self, worker: &WorkerCommand) -> Context {
        Context {
            base: self.dir.clone(),
            worker: worker.clone(),
            measure: Duration::from_secs_f64(self.seconds),
            warmup: Duration::from_secs_f64(self.warmup),
            programs: Programs::find(),
        }
    }

    /// Prints the document, or the table, and writes the file that was asked for.
    fn show(&self, document: &impl Serialize, table: &str) -> Result<()> {
        if let Some(path) = &self.out {
            write_json(path, document)?;
        }
        if !self.json {
            print!("{table}");
            return Ok(());
        }
        let text = serde_json::to_string_pretty(document);
        let text = text.map_err(std::io::Error::from).during(|| "write the results".into())?;
        println!("{text}");
        Ok(())
    }
}

#[derive(Serialize)]
struct Document<T> {
    conditions: Conditions,
    results: T,
}

/// The way this program starts itself as an application process: `arguments` come before `worker`.
pub fn this_program(arguments: &[&str]) -> Result<WorkerCommand> {
    let program = std::env::current_exe().during(|| "find the running program".into())?;
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    Ok(WorkerCommand { program, arguments, wrapped: false })
}

impl BenchCommand {
    /// Runs the command; false when something was measured and found wanting. Call it before starting threads.
    pub fn run(&self, worker: &WorkerCommand) -> Result<bool> {
        match self {
            BenchCommand::Worker => return worker::main().map(|()| true),
            BenchCommand::RedoLoad => return redo_load::main().map(|()| true),
            BenchCommand::Echo => return worker::echo(raw::MESSAGE).map(|()| true),
            _ => interrupt::install(),
        }
        match self {
            BenchCommand::Commit(args) => args.run(worker),
            BenchCommand::Apply(args) => args.run(worker),
            BenchCommand::Log(args) => args.run(worker),
            BenchCommand::Raw(common) => {
                let context = common.context(worker);
                let conditions = Conditions::read(&context);
                let results = raw::measure(&context, context.measure)?;
                common.show(&Document { conditions, results }, &report::limits(&results))?;
                Ok(true)
            }
            BenchCommand::Figures(args) => args.run(worker),
            BenchCommand::Worker | BenchCommand::RedoLoad | BenchCommand::Echo => Ok(true),
        }
    }
}

impl CommitArgs {
    fn run(&self, worker: &WorkerCommand) -> Result<bool> {
        let context = self.common.context(worker);
        let conditions = Conditions::read(&context);
        eprintln!("{}", conditions.line());
        let mut suite = Suite::default();
        let (mut all, mut tables) = (Vec::new(), String::new());
        for layout in &self.layouts {
            let layout = match layout {
                LayoutArg::One => Layout::OneDatabase,
                LayoutArg::Each => Layout::DatabasePerClient,
            };
            for &clients in self.clients.iter().filter(|clients| **clients > 0) {
                let series = suite.measure(&context, Case { clients, layout }, &self.systems, self.rounds)?;
                let plural = if clients == 1 { "" } else { "s" };
                tables.push_str(&format!("\n{clients} client{plural}, {}\n", layout.label()));
                tables.push_str(&report::table(&series));
                all.extend(series);
            }
        }
        let failed = all.iter().any(|series| matches!(series.missing, Some(Missing::Failed(_))));
        self.common.show(&Document { conditions, results: all }, &tables)?;
        Ok(!failed)
    }
}

impl ApplyArgs {
    fn run(&self, worker: &WorkerCommand) -> Result<bool> {
        let stations = Stations::real();
        let context = self.common.context(worker);
        let conditions = Conditions::read(&context);
        let (mut results, mut table) = (Vec::new(), String::new());
        for &databases in &self.databases {
            let bench = ApplyBench { transactions: self.transactions, databases, rounds: self.rounds };
            let result = bench.run(&context, &*stations.apply)?;
            table.push_str(&report::apply(&result));
            results.push(result);
        }
        self.common.show(&Document { conditions, results }, &table)?;
        Ok(true)
    }
}

impl LogArgs {
    fn run(&self, worker: &WorkerCommand) -> Result<bool> {
        let stations = Stations::real();
        let context = self.common.context(worker);
        let conditions = Conditions::read(&context);
        let bench = LogBench { producers: self.producers, time: context.measure, rounds: self.rounds };
        let results = bench.run(&context, &*stations.log)?;
        let table = report::log(&results);
        self.common.show(&Document { conditions, results }, &table)?;
        Ok(true)
    }
}

impl FiguresArgs {
    fn run(&self, worker: &WorkerCommand) -> Result<bool> {
        let mut groups = self.group.clone();
        if groups.is_empty() {
            groups = <Group as clap::ValueEnum>::value_variants().to_vec();
        }
        let mut seen = Vec::new();
        groups.retain(|group| {
            !seen.contains(group) && {
                seen.push(*group);
                true
            }
        });
        let out = self.common.out.clone().unwrap_or_else(|| PathBuf::from("target/figures.json"));
        figures(
            &self.common.context(worker),
            &FiguresConfig { groups, count: self.count, out },
            &Stations::real(),
        )
    }
}
