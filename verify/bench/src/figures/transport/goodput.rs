//! Redo per second that reaches a standby with a backlog to receive, against iperf3 over the same link.

use std::process::Command;
use std::time::{Duration, Instant};

use super::super::net::Against;
use super::super::net::lab::{FAR, Lab, Labs, NEAR, carries};
use super::super::net::peers::{far_iperf3, far_iperf3_server};
use super::pair::{Pair, open};
use crate::context::need;
use crate::systems::Mode;
use crate::{BenchError, Result, interrupt};

const PORT: u16 = 5201;
/// Bytes that iperf3 writes at a time.
const LENGTH: u32 = 1 << 20;
/// Time for a connection to reach its full speed; not counted for either.
const RAMP_UP: Duration = Duration::from_secs(2);
/// A run with later packets (seconds) measures the machine instead.
const LATE: f64 = 2e-3;

pub(super) fn goodput(labs: &Labs<'_>, rounds: usize, rtt_ms: f64) -> Result<Against> {
    eprintln!("goodput of redo over {rtt_ms} ms");
    let program = need(&labs.context.programs.iperf3, "iperf3 is not installed (apt-get install iperf3)")?;
    let lab = open(labs, rtt_ms)?;
    let measure = labs.context.measure;
    let (ours, other) = (
        || lab.on_time(LATE, || redo(labs, &lab, measure)).map(|done| done.value),
        || lab.on_time(LATE, || iperf3(labs, &lab, program, measure)).map(|done| done.value),
    );
    let against = Against::alternate(rounds, ours, other)?;
    eprintln!("  {against:?}");
    Ok(against)
}

fn iperf3(labs: &Labs<'_>, lab: &Lab<'_>, program: &std::path::Path, measure: Duration) -> Result<f64> {
    let command = |node: &str| -> Result<Command> { lab.command(node, &[program.into()]) };
    let _server = far_iperf3_server(command(FAR)?, PORT, labs.scratch.path())?;
    far_iperf3(|| command(NEAR), (&lab.far_address()?, PORT), LENGTH, (RAMP_UP, measure))
}

/// Bytes of redo per second that a standby hardens while it catches up.
fn redo(labs: &Labs<'_>, lab: &Lab<'_>, measure: Duration) -> Result<f64> {
    // Only the stream, because iperf3 has one connection.
    let mut pair = Pair::start_with(labs, lab, &[("archive_processes", 1)], false)?;
    pair.create_standby(None)?;
    let link = carries(&super::super::net::lab::link(0.0, super::MEGABITS));
    let needed = link * (RAMP_UP + measure + Duration::from_secs(2)).as_secs_f64();
    let (from, end) = pair.backlog(needed)?;
    pair.ship(Mode::Async, &[])?;
    pair.await_hardened(from + 1.0)?;
    interrupt::pause(RAMP_UP)?;
    let (began, first) = pair.of_standby("hardened")?;
    interrupt::pause(measure)?;
    let (ended, last) = pair.of_standby("hardened")?;
    rate((began, first), (ended, last), end)
}

fn rate((began, first): (Instant, f64), (ended, last): (Instant, f64), end: f64) -> Result<f64> {
    if last >= end {
        return Err(BenchError::Workload(
            "the standby caught up before the measured time was over: the link is faster than its settings"
                .into(),
        ));
    }
    Ok((last - first) / ended.duration_since(began).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_that_has_caught_up_gives_no_rate() {
        let began = Instant::now();
        let ended = began + Duration::from_secs(2);
        assert_eq!(rate((began, 10.0), (ended, 30.0), 31.0).unwrap(), 10.0);
        assert!(rate((began, 10.0), (ended, 30.0), 30.0).is_err());
    }
}
