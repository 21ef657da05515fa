//! Cost of authentication and encryption, and of applications in containers.

use serde::Serialize;

use super::table::{EIGHT, FORTY, ONE};
use crate::run::RunResult;
use crate::suite::{Missing, Series, Suite};
use crate::systems::Case;
use crate::systems::SystemKind::{
    self, SyncAffirm, SyncAffirmBareFlood, SyncAffirmContained, SyncAffirmFlood, SyncAffirmHttpFlood,
    SyncAffirmTls,
};
use crate::{Context, Result};

#[derive(Debug, Default, Serialize)]
pub struct TrustResult {
    /// SYNC AFFIRM on the loopback, plain and over TLS in turns.
    pub tls: Vec<Series>,
    /// SYNC AFFIRM over TLS, in turns without and with 5,000 hostile connections per second, to a listener of another
    /// program or of the primary.
    pub floods: Vec<Series>,
    /// SYNC AFFIRM, in turns with applications in the namespaces of the instance and with each application in its own.
    pub containers: Vec<Series>,
}

impl TrustResult {
    /// Commits per second over TLS relative to plain TCP: medians.
    pub(super) fn tls_ratio(&self, case: Case) -> std::result::Result<f64, Missing> {
        let rate = |system| median(&self.tls, system, case, |run| run.commits_per_second);
        Ok(rate(SyncAffirmTls)? / rate(SyncAffirm)?)
    }

    /// Commits per second of applications in containers relative to the same namespaces: medians.
    pub(super) fn containers_ratio(&self, case: Case) -> std::result::Result<f64, Missing> {
        let rate = |system| median(&self.containers, system, case, |run| run.commits_per_second);
        Ok(rate(SyncAffirmContained)? / rate(SyncAffirm)?)
    }

    /// The 99th percentile of commits during a flood relative to that without one: medians.
    pub(super) fn flood_ratio(&self, flood: SystemKind) -> std::result::Result<f64, Missing> {
        let p99 = |system| median(&self.floods, system, FORTY, |run| run.latency.p99_us);
        Ok(p99(flood)? / p99(SyncAffirmTls)?)
    }
}

fn median(
    all: &[Series],
    system: SystemKind,
    case: Case,
    number: fn(&RunResult) -> f64,
) -> std::result::Result<f64, Missing> {
    let series = all.iter().find(|series| series.system == system && series.case == case);
    Ok(series.ok_or_else(|| Missing::Skipped("not asked for".into()))?.of(number)?.median)
}

pub(super) fn trust(context: &Context, rounds: usize) -> Result<TrustResult> {
    let mut suite = Suite::default();
    let mut found = TrustResult::default();
    for case in [ONE, EIGHT, FORTY] {
        found.tls.extend(suite.measure(context, case, &[SyncAffirm, SyncAffirmTls], rounds)?);
        let contained = [SyncAffirm, SyncAffirmContained];
        found.containers.extend(suite.measure(context, case, &contained, rounds)?);
    }
    let systems = [SyncAffirmTls, SyncAffirmBareFlood, SyncAffirmFlood, SyncAffirmHttpFlood];
    found.floods = suite.measure(context, FORTY, &systems, rounds)?;
    Ok(found)
}
