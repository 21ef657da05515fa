//! Findings of a kill campaign.

use super::strike::Victim;
use crate::ending::Ending;
use crate::verify::Findings;
use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kills {
    pub application: u64,
    pub primary: u64,
    pub standby: u64,
}

impl Kills {
    pub fn count(&mut self, victim: Victim) {
        match victim {
            Victim::Application(_) => self.application += 1,
            Victim::Primary => self.primary += 1,
            Victim::Standby => self.standby += 1,
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct KillReport {
    pub cycles: u64,
    pub kills: Kills,
    pub failovers: u64,
    /// Number of comparisons of primary and standby.
    pub checks: u64,
    pub acknowledged: u64,
    /// Transactions that failed and were tried again.
    pub refused: u64,
    #[serde(flatten)]
    pub findings: Findings,
    pub seed: u64,
    #[serde(flatten)]
    pub ending: Ending,
}

impl KillReport {
    /// Whether every promise was kept and every cycle completed.
    pub fn passed(&self) -> bool {
        self.ending.error.is_none() && self.findings.none()
    }
}

impl std::fmt::Display for KillReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kills { application, primary, standby } = self.kills;
        let Findings { lost, surplus, integrity_failures, page_differences, notes } = &self.findings;
        notes.iter().try_for_each(|note| writeln!(f, "FOUND {note}"))?;
        self.ending.write_error(f)?;
        writeln!(
            f,
            "{} cycles, killed {application} applications, {primary} primaries, {standby} standbys; {} failovers, {} checks",
            self.cycles, self.failovers, self.checks
        )?;
        write!(
            f,
            "acknowledged {}, lost {lost}, surplus {surplus}, integrity failures {integrity_failures}, differing pages {page_differences}",
            self.acknowledged
        )?;
        self.ending.write_kept(f)?;
        if !self.passed() {
            write!(
                f,
                "\nreplay with: standfast-campaign kill --cycles {} --seed {}",
                self.cycles + 1,
                self.seed
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_the_documented_keys_and_the_replay_options() {
        let mut report = KillReport { cycles: 4, seed: 9, acknowledged: 5, ..KillReport::default() };
        assert!(report.passed());
        report.findings = Findings { lost: 1, notes: vec!["row 7".into()], ..Findings::default() };
        let json = serde_json::to_value(&report).unwrap();
        for key in
            ["cycles", "kills", "acknowledged", "lost", "integrity_failures", "page_differences", "seed"]
        {
            assert!(json.get(key).is_some(), "{key} in {json}");
        }
        assert!(!report.passed());
        let text = report.to_string();
        assert!(text.contains("FOUND row 7") && text.contains("--cycles 5 --seed 9"), "{text}");
    }
}
