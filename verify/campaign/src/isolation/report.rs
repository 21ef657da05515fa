//! Results of an isolation campaign.

use super::fault::Fault;
use crate::ending::Ending;
use crate::verify::Findings;
use serde::Serialize;

/// The lowest share of their commits per second that the other databases must keep during a fault.
pub const LEAST_RATIO: f64 = 0.9;

/// Commits of the other databases during one phase of a round.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// Commits per second of each window.
    pub rates: Vec<f64>,
    pub longest_ms: u64,
}

impl Phase {
    fn rate(&self) -> f64 {
        median(&self.rates)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Round {
    pub before: Phase,
    pub during: Phase,
    pub after: Phase,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.during.rate() / self.before.rate()
    }
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Round { before, during, after } = self;
        write!(
            f,
            "{:.0}, {:.0}, {:.0} commits/s before, during, after; x {:.3}, longest {} ms",
            before.rate(),
            during.rate(),
            after.rate(),
            self.ratio(),
            during.longest_ms
        )
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct FaultResult {
    pub fault: Fault,
    /// How often the fault struck, over all rounds.
    pub acts: u64,
    /// State of the victim at the end of the last round.
    pub victim: String,
    /// Commits per second of the others during the fault, divided by those before it: median of the rounds. `None` when
    /// the fault was skipped.
    pub ratio: Option<f64>,
    /// Commits of the other databases that failed.
    pub refused: u64,
    /// What changed in the instance or another database, as text.
    pub changed: Vec<String>,
    pub rounds: Vec<Round>,
    /// Why this machine cannot run the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl FaultResult {
    pub fn new(fault: Fault) -> FaultResult {
        FaultResult {
            fault,
            acts: 0,
            victim: String::new(),
            ratio: None,
            refused: 0,
            changed: Vec::new(),
            rounds: Vec::new(),
            skipped: None,
        }
    }

    /// Computes the results from the rounds.
    pub fn settle(&mut self) {
        let ratios: Vec<f64> = self.rounds.iter().map(Round::ratio).collect();
        self.ratio = (!ratios.is_empty()).then(|| median(&ratios));
        if self.acts == 0 {
            self.changed.push("the fault did not take place".into());
        }
        self.changed.sort();
        self.changed.dedup();
    }

    /// Medians over all rounds: before, during, after.
    fn rates(&self) -> [f64; 3] {
        let of = |phase: fn(&Round) -> &Phase| {
            median(&self.rounds.iter().map(|round| phase(round).rate()).collect::<Vec<_>>())
        };
        [of(|round| &round.before), of(|round| &round.during), of(|round| &round.after)]
    }

    fn longest_ms(&self) -> u64 {
        self.rounds.iter().map(|round| round.during.longest_ms).max().unwrap_or(0)
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct IsolationReport {
    pub databases: u64,
    /// How long commits were counted before, during and after each fault, in seconds.
    pub phase_s: f64,
    /// Commits per second were not judged.
    pub states_only: bool,
    pub faults: Vec<FaultResult>,
    /// Broken promises about the final content of the databases.
    #[serde(flatten)]
    pub findings: Findings,
    #[serde(flatten)]
    pub ending: Ending,
}

impl IsolationReport {
    /// The lowest ratio of all faults; `None` without one.
    pub fn worst_ratio(&self) -> Option<f64> {
        self.faults.iter().filter_map(|fault| fault.ratio).reduce(f64::min)
    }

    /// Whether the faults affected only their own databases.
    pub fn passed(&self) -> bool {
        let slow = self.worst_ratio().is_some_and(|ratio| ratio < LEAST_RATIO) && !self.states_only;
        self.ending.error.is_none() && self.findings.none() && !slow && self.unchanged()
    }

    fn unchanged(&self) -> bool {
        self.faults.iter().all(|fault| fault.changed.is_empty() && fault.refused == 0)
    }
}

impl std::fmt::Display for IsolationReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:<20} {:>6} {:>8} {:>8} {:>8} {:>6} {:>8} {:>7}  victim",
            "fault", "acts", "before/s", "during/s", "after/s", "x", "longest", "refused"
        )?;
        for fault in &self.faults {
            let name = fault.fault.name();
            let Some(ratio) = fault.ratio else {
                writeln!(f, "{name:<20} skipped: {}", fault.skipped.as_deref().unwrap_or_default())?;
                continue;
            };
            let [before, during, after] = fault.rates();
            writeln!(
                f,
                "{name:<20} {:>6} {before:>8.0} {during:>8.0} {after:>8.0} {ratio:>6.3} {:>5} ms {:>7}  {}",
                fault.acts,
                fault.longest_ms(),
                fault.refused,
                if fault.victim.is_empty() { "not protected" } else { &fault.victim }
            )?;
        }
        for fault in &self.faults {
            for changed in &fault.changed {
                writeln!(f, "FOUND {}: {changed}", fault.fault.name())?;
            }
        }
        let Findings { lost, integrity_failures, page_differences, notes, .. } = &self.findings;
        notes.iter().try_for_each(|note| writeln!(f, "FOUND {note}"))?;
        self.ending.write_error(f)?;
        let worst = self.worst_ratio().map_or("-".into(), |ratio| format!("{ratio:.3}"));
        write!(
            f,
            "{} databases, worst ratio {worst}{}, lost {lost}, integrity failures {integrity_failures}, differing pages {page_differences}",
            self.databases,
            if self.states_only { " (not judged)" } else { "" }
        )?;
        self.ending.write_kept(f)
    }
}

/// Returns the median; 0 for an empty slice.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(rate: f64) -> Phase {
        Phase { rates: vec![rate; 3], longest_ms: 7 }
    }

    fn report(during: f64) -> IsolationReport {
        let round = Round { before: phase(100.0), during: phase(during), after: phase(100.0) };
        let mut fault = FaultResult::new(Fault::BadSize);
        (fault.rounds, fault.acts) = (vec![round], 1);
        fault.settle();
        IsolationReport { databases: 2, faults: vec![fault], ..IsolationReport::default() }
    }

    #[test]
    fn campaign_passes_while_others_keep_90_percent_of_commits() {
        assert!(report(90.0).passed());
        assert!(!report(89.0).passed());
        assert!(IsolationReport { states_only: true, ..report(89.0) }.passed());
    }

    #[test]
    fn changed_state_or_missing_fault_fails_at_any_commit_rate() {
        let mut changed = report(100.0);
        changed.states_only = true;
        changed.faults[0].changed.push("db07.db is failed".into());
        assert!(!changed.passed() && changed.to_string().contains("FOUND bad-size: db07.db is failed"));
        let mut nothing = FaultResult::new(Fault::BadSize);
        nothing.settle();
        assert!(!IsolationReport { faults: vec![nothing], ..IsolationReport::default() }.passed());
    }

    #[test]
    fn json_has_ratio_and_findings() {
        let json = serde_json::to_value(report(95.0)).unwrap();
        assert_eq!(json["faults"][0]["ratio"], 0.95);
        assert_eq!(json["faults"][0]["fault"], "bad-size");
        assert!(json["lost"] == 0 && json["page_differences"] == 0);
    }

    #[test]
    fn median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!((median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (0.0, 2.0, 2.5));
    }
}
