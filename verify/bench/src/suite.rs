//! Runs systems in turns - A B C, A B C, A B C - so that noise of the machine affects all of them alike.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::run::RunResult;
use crate::statistics::MinMedianMax;
use crate::systems::{Case, System, SystemKind};
use crate::{BenchError, Context, Result, interrupt};

/// The runs of one system in one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub system: SystemKind,
    /// Name of the system in reports.
    pub name: String,
    pub case: Case,
    /// The runs in order; fewer than requested when one failed.
    pub runs: Vec<RunResult>,
    /// Why there are no (further) runs.
    pub missing: Option<Missing>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// This machine lacks something that the measurement needs.
    Skipped(String),
    /// The measurement was tried and failed.
    Failed(String),
}

impl Missing {
    pub fn reason(&self) -> &str {
        match self {
            Missing::Skipped(reason) | Missing::Failed(reason) => reason,
        }
    }
}

/// Returns the error on Ctrl-C, which ends everything; any other error becomes the result of this one measurement.
pub(crate) fn missing(error: BenchError) -> Result<Missing> {
    // Ctrl-C ends the processes as well, and an operation on one of them often fails before the interrupt is noticed.
    interrupt::check()?;
    match error {
        BenchError::Interrupted => Err(error),
        BenchError::Unavailable(reason) => Ok(Missing::Skipped(reason)),
        other => Ok(Missing::Failed(other.to_string())),
    }
}

impl Series {
    /// Returns min/median/max of a number of each run, or the reason why there is none. A series with a failed run has
    /// no number, because the remaining runs could be the better half.
    pub fn of(&self, number: impl Fn(&RunResult) -> f64) -> std::result::Result<MinMedianMax, Missing> {
        if let Some(missing) = &self.missing {
            return Err(missing.clone());
        }
        MinMedianMax::of(self.runs.iter().map(number)).ok_or_else(|| Missing::Skipped("not measured".into()))
    }
}

/// Systems that are prepared once and measured any number of times.
#[derive(Default)]
pub struct Suite {
    prepared: BTreeMap<SystemKind, std::result::Result<Box<dyn System>, Missing>>,
}

impl Suite {
    /// Runs `systems` in turns, `rounds` times.
    pub fn measure(
        &mut self,
        context: &Context,
        case: Case,
        systems: &[SystemKind],
        rounds: usize,
    ) -> Result<Vec<Series>> {
        let mut all = Vec::new();
        for &system in systems {
            let missing = self.prepare(context, system)?;
            let name = self.name(system);
            all.push(Series { system, name, case, runs: Vec::new(), missing });
        }
        for round in 1..=rounds {
            for series in all.iter_mut().filter(|series| series.missing.is_none()) {
                self.once(context, series, round, rounds)?;
            }
        }
        Ok(all)
    }

    fn prepare(&mut self, context: &Context, kind: SystemKind) -> Result<Option<Missing>> {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.prepared.entry(kind) {
            let mut system = kind.build();
            entry.insert(match system.prepare(context) {
                Ok(()) => Ok(system),
                Err(error) => Err(missing(error)?),
            });
        }
        Ok(self.prepared.get(&kind).and_then(|ready| ready.as_ref().err().cloned()))
    }

    fn name(&self, kind: SystemKind) -> String {
        match self.prepared.get(&kind) {
            Some(Ok(system)) => system.name().to_owned(),
            _ => kind.build().name().to_owned(),
        }
    }

    fn once(&mut self, context: &Context, series: &mut Series, round: usize, rounds: usize) -> Result<()> {
        let Some(Ok(system)) = self.prepared.get_mut(&series.system) else { return Ok(()) };
        let Case { clients, layout } = series.case;
        eprint!("{clients:>3} clients, {:<13} {round}/{rounds}  {:<34} ", layout.label(), series.name);
        match system.run(context, series.case) {
            Ok(result) => {
                eprintln!("{:>8.0} commits/s", result.commits_per_second);
                series.runs.push(result);
            }
            Err(error) => {
                let missing = missing(error).inspect_err(|_| eprintln!("interrupted"))?;
                eprintln!("{}", missing.reason());
                series.missing = Some(missing);
            }
        }
        Ok(())
    }
}

impl Drop for Suite {
    fn drop(&mut self) {
        for (_, system) in std::mem::take(&mut self.prepared) {
            if let Ok(system) = system {
                system.teardown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_with_a_failed_run_gives_no_number() {
        let mut series = Series {
            system: SystemKind::StockFull,
            name: "x".into(),
            case: Case { clients: 1, layout: crate::workload::Layout::OneDatabase },
            runs: Vec::new(),
            missing: None,
        };
        assert!(matches!(series.of(|run| run.seconds), Err(Missing::Skipped(_))));
        series.missing = Some(Missing::Failed("lost a row".into()));
        assert_eq!(series.of(|run| run.seconds), Err(Missing::Failed("lost a row".into())));
    }

    #[test]
    fn interrupt_ends_the_suite_and_absent_program_skips_one_system() {
        assert!(missing(BenchError::Interrupted).is_err());
        let skipped = missing(BenchError::Unavailable("no Go".into())).unwrap();
        assert_eq!(skipped, Missing::Skipped("no Go".into()));
        assert!(matches!(missing(BenchError::Workload("x".into())).unwrap(), Missing::Failed(_)));
    }
}
