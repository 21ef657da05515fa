use std::ffi::OsStr;
use std::time::Duration;

use serde::Serialize;

use super::Group;
use super::campaign::{CampaignReport, campaign};
use super::idle::{IdleResult, idle};
use super::instruments::{InstrumentsResult, instruments};
use super::isolation::{self, IsolationReport};
use super::net::{NetResult, net};
use super::roles::{RolesResult, roles};
use super::table::{
    APPLY_DATABASES, EIGHT, EIGHT_EACH, FORTY, FORTY_EACH, KILL_CYCLES, ONE, POWER_SEEDS, PROGRAMS_EACH,
};
use super::transport::{TransportResult, transport};
use super::trust::{TrustResult, trust};
use crate::process::make_on_disk;
use crate::raw::{self, RawLimits};
use crate::stations::{ApplyBench, ApplyResult, LogBench, LogResult, Stations};
use crate::suite::{Missing, Series, Suite, missing};
use crate::systems::SystemKind::{Local, Postgres, StockFull, SyncAffirm, SyncAffirm10ms};
use crate::systems::{Case, SystemKind};
use crate::{Context, Result};

/// A measurement, or the reason why there is none.
type Outcome<T> = std::result::Result<T, Missing>;

/// Runs per speed unless COUNT says otherwise.
const ROUNDS: u64 = 3;
/// Length of a long run relative to a short one: 20 s at the default of 3 s.
const LONG: f64 = 20.0 / 3.0;
/// Transactions in the backlog that apply is measured with.
const BACKLOG: u64 = 1_000_000;
/// Threads that feed the log writer.
const PRODUCERS: usize = 16;

/// Cases of the commit figures, each with the systems that are measured in turns.
const COMMIT_CASES: [(Case, &[SystemKind]); 5] = [
    (FORTY, &[StockFull, SyncAffirm, Postgres, SyncAffirm10ms]),
    (EIGHT, &[StockFull, SyncAffirm]),
    (ONE, &[StockFull, Local, SyncAffirm]),
    (FORTY_EACH, &[StockFull, SyncAffirm]),
    (EIGHT_EACH, &[StockFull, SyncAffirm]),
];

/// All measurements; a part that was not requested is missing as skipped.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub commit: Vec<Series>,
    /// The long run of SYNC AFFIRM at 40 clients, including checkpoints.
    pub long: Outcome<Series>,
    /// The longest durable write of 4 KiB of the otherwise idle disk, in milliseconds: half of the long run's time
    /// before it and half after it.
    pub longest_write_ms: Outcome<f64>,
    /// Limits of disk and loopback, measured between the commit cases.
    pub raw: Outcome<RawLimits>,
    /// Apply of a backlog of one database.
    pub apply_one: Outcome<ApplyResult>,
    /// Apply of a backlog that is spread over databases.
    pub apply_spread: Outcome<ApplyResult>,
    pub log: Outcome<LogResult>,
    pub kill: Outcome<CampaignReport>,
    pub power: Outcome<CampaignReport>,
    pub promise: Outcome<CampaignReport>,
    pub isolation: Outcome<IsolationReport>,
    pub idle: Outcome<IdleResult>,
    pub net: Outcome<NetResult>,
    /// Redo transport to a distant standby.
    pub transport: Outcome<TransportResult>,
    pub instruments: Outcome<InstrumentsResult>,
    pub trust: Outcome<TrustResult>,
    pub roles: Outcome<RolesResult>,
}

impl Default for Measured {
    fn default() -> Measured {
        fn not_asked<T>() -> Outcome<T> {
            Err(Missing::Skipped("not asked for".into()))
        }
        Measured {
            commit: Vec::new(),
            long: not_asked(),
            longest_write_ms: not_asked(),
            raw: not_asked(),
            apply_one: not_asked(),
            apply_spread: not_asked(),
            log: not_asked(),
            kill: not_asked(),
            power: not_asked(),
            promise: not_asked(),
            isolation: not_asked(),
            idle: not_asked(),
            net: not_asked(),
            transport: not_asked(),
            instruments: not_asked(),
            trust: not_asked(),
            roles: not_asked(),
        }
    }
}

/// Converts an error into the reason of an absent measurement; an interrupt stays an error.
pub(super) fn outcome<T>(result: Result<T>) -> Result<Outcome<T>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => missing(error).map(Err),
    }
}

impl Measured {
    /// Finds the series of one system in one case.
    pub fn commit_series(&self, system: SystemKind, case: Case) -> Outcome<&Series> {
        let series = self.commit.iter().find(|series| series.system == system && series.case == case);
        series.ok_or_else(|| Missing::Skipped("not asked for".into()))
    }

    pub fn measure(
        &mut self,
        context: &Context,
        group: Group,
        count: Option<u64>,
        with: &Stations,
    ) -> Result<()> {
        let rounds = count.unwrap_or(ROUNDS).max(1) as usize;
        match group {
            Group::Commit => self.measure_commit(context, rounds)?,
            Group::Apply => {
                self.apply_one = apply(context, with, 1, rounds)?;
                self.apply_spread = apply(context, with, APPLY_DATABASES, rounds)?;
            }
            Group::Log => self.log = log(context, with, rounds)?,
            Group::Kill => self.kill = outcome(kill(context, count.unwrap_or(KILL_CYCLES)))?,
            Group::Power => {
                self.power = outcome(campaign(
                    context,
                    "power",
                    "--seeds",
                    count.unwrap_or(POWER_SEEDS),
                    &[OsStr::new("--boundaries")],
                ))?
            }
            Group::Promise => {
                self.promise = outcome(differential(context, count.unwrap_or(PROGRAMS_EACH)))?;
                self.isolation = outcome(isolation::isolation(context, isolation::ROUNDS))?;
            }
            Group::Idle => self.idle = outcome(idle(context))?,
            Group::Net => self.net = outcome(net(context, rounds))?,
            Group::Transport => self.transport = outcome(transport(context, rounds))?,
            Group::Instruments => self.instruments = outcome(instruments(context, rounds))?,
            Group::Trust => self.trust = outcome(trust(context, rounds))?,
            Group::Roles => self.roles = outcome(roles(context, rounds))?,
        }
        Ok(())
    }

    fn measure_commit(&mut self, context: &Context, rounds: usize) -> Result<()> {
        let mut suite = Suite::default();
        for (case, systems) in COMMIT_CASES {
            self.commit.extend(suite.measure(context, case, systems, rounds)?);
            if case == ONE {
                self.raw = outcome(raw::measure(context, Duration::from_secs(2)))?;
            }
        }
        let long = Context { measure: context.measure.mul_f64(LONG), ..context.clone() };
        let longest_write = || outcome(raw::longest_small_write(context, long.measure / 2));
        let before = longest_write()?;
        let series = suite.measure(&long, FORTY, &[SyncAffirm], 1)?.pop();
        self.long = series.ok_or_else(|| Missing::Failed("no series".into()));
        let after = longest_write()?;
        self.longest_write_ms = before.and_then(|before| after.map(|after| before.max(after)));
        Ok(())
    }
}

/// Runs the kill campaign with its databases on the disk under test. The campaign's default is the temporary directory,
/// which may be in memory, where protecting a database is refused. The campaign keeps its evidence, so it makes a
/// directory of its own there.
fn kill(context: &Context, cycles: u64) -> Result<CampaignReport> {
    make_on_disk(&context.base)?;
    campaign(context, "kill", "--cycles", cycles, &[OsStr::new("--directory"), context.base.as_os_str()])
}

/// Runs the differential campaign on the disk under test.
fn differential(context: &Context, programs: u64) -> Result<CampaignReport> {
    make_on_disk(&context.base)?;
    let directory = [OsStr::new("--directory"), context.base.as_os_str()];
    campaign(context, "differential", "--programs", programs, &directory)
}

fn apply(
    context: &Context,
    with: &Stations,
    databases: usize,
    rounds: usize,
) -> Result<Outcome<ApplyResult>> {
    outcome(ApplyBench { transactions: BACKLOG, databases, rounds }.run(context, &*with.apply))
}

fn log(context: &Context, with: &Stations, rounds: usize) -> Result<Outcome<LogResult>> {
    outcome(LogBench { producers: PRODUCERS, time: context.measure, rounds }.run(context, &*with.log))
}
