//! `standfast-campaign`: what must hold when processes are killed, and what must be as without Standfast.

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use standfast_campaign::Result;
use standfast_campaign::application::{self, ApplicationConfig};
use standfast_campaign::arbitration::{self, ArbitrationConfig};
use standfast_campaign::differential::{self, DifferentialConfig, worker::WorkerConfig};
use standfast_campaign::faults::{self, ARRANGEMENTS, FaultsConfig};
use standfast_campaign::isolation::load::{self, LoadConfig};
use standfast_campaign::isolation::{self, Fault, IsolationConfig};
use standfast_campaign::kill::{self, KillConfig};
use standfast_campaign::power::{self, PowerConfig};
use standfast_campaign::programs::Programs;
use standfast_campaign::scene::ScenePlan;
use standfast_campaign::site::Site;
use standfast_types::Hint;
use standfast_voices::Kind;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(
    version,
    about = "Lets processes, machines, disks and links fail and looks whether anything acknowledged is lost"
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kill applications, primary and standby at random moments.
    Kill(KillArguments),
    /// Cut the power of simulated machines at any sync boundary.
    Power(PowerArguments),
    /// Let hosts, links, clocks and arbiters of fast-start failover fail, in simulated time.
    Arbitration(ArbitrationArguments),
    /// Let standbys, their disks and the links to them fail in every way and every mode of transport.
    Faults(FaultsArguments),
    /// Run random programs on stock SQLite and through the VFS, and compare every outcome.
    Differential(DifferentialArguments),
    /// Runs one program of the differential campaign.
    #[command(hide = true)]
    DifferentialWorker(WorkerArguments),
    /// Put a fault into one of many databases under load, and look whether the others notice.
    Isolation(IsolationArguments),
    /// The load of an isolation campaign.
    #[command(hide = true)]
    Load(LoadArguments),
    /// The application of a campaign.
    #[command(hide = true)]
    App(AppArguments),
    /// An application that follows commands on standard input.
    #[command(hide = true)]
    Client {
        #[arg(long)]
        extension: Option<PathBuf>,
        database: PathBuf,
    },
}

/// Of campaigns with real processes whose strikes are drawn.
#[derive(Args)]
struct SiteArguments {
    /// Repeats the strikes of an earlier campaign; else a new one is drawn.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    place: PlaceArguments,
}

/// Of campaigns with real processes.
#[derive(Args)]
struct PlaceArguments {
    /// Write the report as JSON to standard output.
    #[arg(long)]
    json: bool,
    /// Directory of the programs; else $STANDFAST_BIN, else beside this program.
    #[arg(long, value_name = "DIR")]
    bin: Option<PathBuf>,
    /// Where the campaign makes its directory; must be on a real disk.
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Say nothing while it runs.
    #[arg(long)]
    quiet: bool,
}

impl SiteArguments {
    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| u64::from(std::process::id()) ^ now_seconds() << 20)
    }
}

impl PlaceArguments {
    /// Programs, and a directory of this campaign alone.
    fn site(&self) -> Result<Site> {
        let programs = Programs::find(self.bin.as_deref())?;
        let directory = self.directory.join(format!("standfast-campaign-{}", std::process::id()));
        Site::new(programs, directory, !self.quiet)
    }
}

#[derive(Args)]
struct KillArguments {
    /// Cycles of kill, restart and, now and then, check or failover.
    #[arg(long, default_value_t = 40)]
    cycles: u64,
    /// Application processes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    applications: u16,
    /// Threads of each application.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    threads: u16,
    /// Check primary and standby every so many cycles.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    check_every: u64,
    /// Lose the primary for good every so many cycles.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    failover_every: u64,
    /// Every scene ships FASTSYNC; else this is drawn.
    #[arg(long)]
    fastsync: bool,
    /// Processes without the extension are refused, so that writers take the inner lock.
    #[arg(long)]
    refuse: bool,
    /// Control experiment: commits do not wait for the standby, so failovers must lose some.
    #[arg(long, hide = true)]
    unprotected: bool,
    #[command(flatten)]
    site: SiteArguments,
}

#[derive(Args)]
struct ArbitrationArguments {
    /// Random histories with each kind of arbiter.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this arbiter.
    #[arg(long, value_enum)]
    arbiter: Option<ArbiterArg>,
    /// Write the events of the first seed to standard error.
    #[arg(long)]
    trace: bool,
    /// Write the report as JSON to standard output.
    #[arg(long)]
    json: bool,
    /// Say nothing while it runs.
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ArbiterArg {
    Observer,
    Revisions,
    Objects,
}

#[derive(Args)]
struct PowerArguments {
    /// Random histories.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also cut the power at every sync boundary of fixed histories.
    #[arg(long)]
    boundaries: bool,
    /// Write the report as JSON to standard output.
    #[arg(long)]
    json: bool,
    /// Processes at the same time; else one per processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Say nothing while it runs.
    #[arg(long)]
    quiet: bool,
    /// Say what happens in each history; for one seed at a time.
    #[arg(long)]
    trace: bool,
    /// One process's part of a campaign.
    #[arg(long, hide = true)]
    part: Option<power::Part>,
}

#[derive(Args)]
struct FaultsArguments {
    /// How often each fault strikes in each arrangement.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Only this arrangement.
    #[arg(long, value_name = "NAME", value_parser = arrangement_names())]
    only: Option<String>,
    /// Only the scene with this number.
    #[arg(long, value_name = "NUMBER")]
    scene: Option<u64>,
    /// Control experiment: everything acknowledged must survive, also where nothing promises it.
    #[arg(long, hide = true)]
    demand_all: bool,
    #[command(flatten)]
    site: SiteArguments,
}

#[derive(Args)]
struct DifferentialArguments {
    /// Programs with each version.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    programs: u64,
    /// Versions of SQLite, as 3.40.1 or 3.40.1-setlk, or 3.40 for all variants; else all that are there.
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    sqlite: Vec<String>,
    /// Where `scripts/sqlites.sh` has put them; else `sqlite` beside the directory of the programs.
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
    /// Versions at the same time; else one per processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Show a program that fails as it is, instead of looking for what of it is needed.
    #[arg(long)]
    whole: bool,
    #[command(flatten)]
    site: SiteArguments,
}

#[derive(Args)]
struct WorkerArguments {
    #[arg(long)]
    library: PathBuf,
    #[arg(long)]
    extension: Option<PathBuf>,
    #[arg(long)]
    program: PathBuf,
    #[arg(long)]
    shim: bool,
}

#[derive(Args)]
struct IsolationArguments {
    /// Protected databases.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(2..=200))]
    databases: u16,
    /// Which faults, in this order; else all.
    #[arg(long, value_name = "FAULT", value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Count commits for so long before, during and after a fault, each time.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// How often each fault strikes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Show commits per second and do not judge them, because this machine does other things as well.
    #[arg(long)]
    states_only: bool,
    #[command(flatten)]
    place: PlaceArguments,
}

#[derive(Args)]
struct LoadArguments {
    #[arg(long)]
    extension: PathBuf,
    #[arg(long)]
    acknowledgements: PathBuf,
    #[arg(long = "database", required = true)]
    databases: Vec<PathBuf>,
    #[arg(long = "writer", required = true)]
    writers: Vec<usize>,
}

fn arrangement_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(ARRANGEMENTS.iter().map(|arrangement| arrangement.name))
}

#[derive(Args)]
struct AppArguments {
    #[arg(long)]
    extension: Option<PathBuf>,
    #[arg(long = "database", required = true)]
    databases: Vec<PathBuf>,
    #[arg(long)]
    acknowledgements: PathBuf,
    #[arg(long)]
    first_writer: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    seed: u64,
    /// Only small transactions.
    #[arg(long)]
    light: bool,
}

fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::Kill(arguments) => kill(arguments),
        Command::Power(arguments) => cut_power(&arguments),
        Command::Arbitration(arguments) => arbitrate(&arguments),
        Command::Faults(arguments) => faults(arguments),
        Command::Differential(arguments) => differ(arguments),
        Command::DifferentialWorker(arguments) => work(arguments).map(|()| true),
        Command::Isolation(arguments) => isolate(arguments),
        Command::Load(arguments) => load(arguments).map(|()| true),
        Command::App(arguments) => app(arguments).map(|()| true),
        Command::Client { extension, database } => {
            application::client::serve(extension.as_deref(), &database).map(|()| true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("standfast-campaign: {}", error.for_terminal());
            ExitCode::FAILURE
        }
    }
}

fn arbitrate(arguments: &ArbitrationArguments) -> Result<bool> {
    let kinds = match arguments.arbiter {
        None => Kind::ALL.to_vec(),
        Some(ArbiterArg::Observer) => vec![Kind::Observer],
        Some(ArbiterArg::Revisions) => vec![Kind::Revisions],
        Some(ArbiterArg::Objects) => vec![Kind::Objects],
    };
    let config = ArbitrationConfig {
        seeds: arguments.seeds,
        seed: arguments.seed,
        kinds,
        trace: arguments.trace,
        progress: !arguments.quiet,
    };
    let report = arbitration::arbitrate(&config)?;
    show(&report, arguments.json);
    Ok(report.is_clean())
}

/// In words for people, and as JSON for programs.
fn show<R: Display + Serialize>(report: &R, json: bool) {
    eprintln!("{report}");
    if json {
        println!("{}", serde_json::json!(report));
    }
}

/// Returns whether every promise was kept.
fn faults(arguments: FaultsArguments) -> Result<bool> {
    let seed = arguments.site.seed();
    eprintln!("seed {seed}, every fault {} times in every arrangement", arguments.count);
    let report = faults::run(&FaultsConfig {
        site: arguments.site.place.site()?,
        count: arguments.count,
        seed,
        only: arguments.only,
        scene: arguments.scene,
        demand_all: arguments.demand_all,
    });
    show(&report, arguments.site.place.json);
    Ok(report.passed())
}

/// Returns whether every promise was kept.
fn kill(arguments: KillArguments) -> Result<bool> {
    let seed = arguments.site.seed();
    eprintln!("seed {seed}, {} cycles", arguments.cycles);
    let report = kill::run(&KillConfig {
        site: arguments.site.place.site()?,
        cycles: arguments.cycles,
        seed,
        plan: ScenePlan {
            processes: arguments.applications.into(),
            threads: arguments.threads.into(),
            late: false,
            fastsync: arguments.fastsync,
            unprotected: arguments.unprotected,
            refuse: arguments.refuse,
        },
        check_every: arguments.check_every,
        failover_every: arguments.failover_every,
    });
    show(&report, arguments.site.place.json);
    Ok(report.passed())
}

/// Whether everything was equal that has to be.
fn differ(arguments: DifferentialArguments) -> Result<bool> {
    let seed = arguments.site.seed();
    eprintln!("seed {seed}, {} programs with each SQLite", arguments.programs);
    let site = arguments.site.place.site()?;
    let beside = || site.programs.campaign.parent().map(|programs| programs.join("../sqlite"));
    let report = differential::run(&DifferentialConfig {
        libraries: arguments.libraries.or_else(beside).unwrap_or_else(|| PathBuf::from("sqlite")),
        site,
        programs: arguments.programs,
        seed,
        versions: arguments.sqlite,
        jobs: arguments.jobs.unwrap_or_else(processors),
        whole: arguments.whole,
    });
    show(&report, arguments.site.place.json);
    Ok(report.passed())
}

/// Whether the faults stayed where they were put.
fn isolate(arguments: IsolationArguments) -> Result<bool> {
    let faults = if arguments.faults.is_empty() { Fault::all() } else { arguments.faults };
    let report = isolation::run(&IsolationConfig {
        site: arguments.place.site()?,
        databases: arguments.databases.into(),
        faults,
        phase: Duration::from_secs_f64(arguments.seconds.clamp(0.1, 3600.0)),
        rounds: arguments.rounds,
        states_only: arguments.states_only,
    });
    show(&report, arguments.place.json);
    Ok(report.passed())
}

fn work(arguments: WorkerArguments) -> Result<()> {
    let WorkerArguments { library, extension, program, shim } = arguments;
    differential::worker::serve(&WorkerConfig { library, extension, program, shim })
}

fn load(arguments: LoadArguments) -> Result<()> {
    load::run(&LoadConfig {
        extension: arguments.extension,
        databases: arguments.databases,
        acknowledgements: arguments.acknowledgements,
        writers: arguments.writers,
    })
}

/// Returns whether every promise was kept.
fn cut_power(arguments: &PowerArguments) -> Result<bool> {
    if arguments.trace {
        power::turn_trace_on();
    }
    if let Some(part) = arguments.part {
        println!("{}", serde_json::json!(part.run()));
        return Ok(true);
    }
    let report = power::run(&PowerConfig {
        seeds: arguments.seeds,
        seed: arguments.seed,
        boundaries: arguments.boundaries,
        jobs: arguments.jobs.unwrap_or_else(processors),
        verbose: !arguments.quiet,
        trace: arguments.trace,
    })?;
    show(&report, arguments.json);
    Ok(report.passed())
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

fn now_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn app(arguments: AppArguments) -> Result<()> {
    application::run(&ApplicationConfig {
        extension: arguments.extension,
        databases: arguments.databases,
        acknowledgements: arguments.acknowledgements,
        first_writer: arguments.first_writer,
        threads: arguments.threads,
        seed: arguments.seed,
        light: arguments.light,
    })
}
