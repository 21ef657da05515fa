//! The first thing an operator reads: what a failover would cost now.

use crate::certificate;
use crate::check::{Finding, Severity, Thresholds, findings, severity};
use crate::estimate::Estimate;
use crate::figure::{Figure, UNKNOWN};
use crate::lags::Lag;
use serde::{Deserialize, Serialize};
use standfast_documents::Status;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Severity of all findings, by the thresholds of the instance.
    pub severity: Severity,
    /// What a failover now would lose, and how long it would take, in one sentence.
    pub headline: String,
    /// The standby to fail over to; `None`: there is none.
    pub target: Option<String>,
    /// Time span of acknowledged commits that would be lost.
    pub loss_time: Figure,
    /// Redo of acknowledged commits that would be lost, bytes.
    pub loss_bytes: Figure,
    /// Time until applications can write again.
    pub failover: Figure,
    pub configured: String,
    pub actual: String,
    /// Remaining validity of the instance's certificate; `None`: it has none, or that is unknown.
    #[serde(default)]
    pub certificate: Option<String>,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Computes the verdict from a state and an estimate of a failover.
    pub fn of(status: &Status, estimate: &Estimate) -> Verdict {
        let findings = findings(status, &Thresholds::of(status));
        let (loss_time, loss_bytes) =
            (Figure::seconds(estimate.loss.seconds), Figure::bytes(estimate.loss.bytes));
        let failover = Figure::seconds(estimate.failover_s);
        let headline = match &estimate.target {
            _ if status.role.is_none() => "the state of the instance is unknown".into(),
            Some(target) => {
                let loss = match estimate.loss {
                    Lag::NONE => "no data lost".to_owned(),
                    Lag { seconds: None, bytes: None } => "data loss unknown".to_owned(),
                    _ => format!("{} / {} lost", loss_time.text, loss_bytes.text),
                };
                let downtime = match failover.value {
                    Some(_) => format!("about {} of downtime", failover.text),
                    None => "downtime unknown".to_owned(),
                };
                format!("If you fail over to {target} now: {loss}, {downtime}")
            }
            None => "no standby is known: a failover is not possible".into(),
        };
        let words =
            |name: Option<&String>| name.map_or_else(|| UNKNOWN.into(), |name| name.replace('-', " "));
        let protection = status.protection.as_ref();
        Verdict {
            severity: severity(&findings),
            headline,
            target: estimate.target.clone(),
            loss_time,
            loss_bytes,
            failover,
            configured: words(protection.and_then(|protection| protection.mode.as_ref())),
            actual: match status.is_primary() {
                true => words(protection.and_then(|protection| protection.level.as_ref())),
                false => "decided at the primary".into(),
            },
            certificate: status.certificate().and_then(|certificate| {
                let state = certificate.state.as_deref()?;
                let left = certificate::left(certificate, status.time_us);
                let left = left.map_or_else(String::new, |left| format!(", {left} left"));
                Some(format!("{state}{left}"))
            }),
            findings,
        }
    }
}
