//! Cost of authentication and encryption.

use serde::Serialize;

use super::table::{EIGHT, FORTY, ONE};
use crate::suite::{Missing, Series, Suite};
use crate::systems::Case;
use crate::systems::SystemKind::{self, SyncAffirm, SyncAffirmTls};
use crate::{Context, Result};

/// What was measured of group `trust`.
#[derive(Debug, Default, Serialize)]
pub struct TrustResult {
    /// SYNC AFFIRM on the loopback, plain and over TLS in turns.
    pub tls: Vec<Series>,
}

impl TrustResult {
    /// Commits a second over TLS, in those over plain TCP: medians.
    pub(super) fn tls_ratio(&self, case: Case) -> std::result::Result<f64, Missing> {
        let rate = |system: SystemKind| {
            let series = self.tls.iter().find(|series| series.system == system && series.case == case);
            let series = series.ok_or_else(|| Missing::Skipped("not asked for".into()))?;
            Ok(series.of(|run| run.commits_per_second)?.median)
        };
        Ok(rate(SyncAffirmTls)? / rate(SyncAffirm)?)
    }
}

/// Measures the group.
pub(super) fn trust(context: &Context, rounds: usize) -> Result<TrustResult> {
    let mut suite = Suite::default();
    let mut found = TrustResult::default();
    for case in [ONE, EIGHT, FORTY] {
        found.tls.extend(suite.measure(context, case, &[SyncAffirm, SyncAffirmTls], rounds)?);
    }
    Ok(found)
}
