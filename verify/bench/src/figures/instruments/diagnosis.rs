//! Injects faults into a pair and checks the first finding of `standfast diagnose`; for a healthy pair there must be
//! none.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use standfast_wan::settings::{Settings, Share, WHOLE};

use super::super::net::lab::{FAR, Labs, NEAR, link_or_wire};
use super::super::transport::pair::{Pair, open_as_it_is};
use crate::systems::{Found, Mode};
use crate::{Result, interrupt};

/// How long `diagnose` observes the pair.
const SECONDS: u64 = 5;
/// Threads per processor that occupy it.
const SPINNERS: usize = 6;

#[derive(Debug, Serialize)]
pub struct Diagnosed {
    pub fault: &'static str,
    /// The expected rule, and words of its title where the rule has several; None for a healthy pair.
    pub expected: Option<(&'static str, &'static str)>,
    /// In the order of `diagnose`: the root cause first.
    pub found: Vec<Found>,
}

impl Diagnosed {
    fn is_right(&self) -> bool {
        match (self.found.first(), self.expected) {
            (Some(found), Some((rule, words))) => found.rule == rule && found.title.contains(words),
            (found, expected) => found.is_none() && expected.is_none(),
        }
    }
}

/// Number of faults that were not named, or not first.
pub(super) fn wrong(all: &[Diagnosed]) -> f64 {
    all.iter().filter(|one| !one.is_right()).count() as f64
}

/// What happens to the pair once it is under load.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    StandbyDies,
    ApplyStops,
    ProcessorsAreTaken,
    LinkIsCut,
}

/// A pair with a fault, under load.
#[derive(Clone, Copy)]
struct Scene {
    fault: &'static str,
    expected: Option<(&'static str, &'static str)>,
    rtt_ms: f64,
    megabits: f64,
    loss_percent: f64,
    settings: &'static [(&'static str, u64)],
    /// Values of `STANDFAST_FAULT` for primary and standby.
    faults: (Option<&'static str>, Option<&'static str>),
    mode: Mode,
    /// Directory of a second member of the standby's log, within the standby's directory.
    second_member: Option<&'static str>,
    /// Attributes of the destination besides its mode.
    attributes: &'static str,
    /// Sessions, bytes per transaction and bytes per second.
    load: (usize, usize, f64),
    /// Seconds under load before the diagnosis.
    before_s: u64,
    then: Then,
}

/// A healthy pair: a near standby and a load that the link carries.
const WELL: Scene = Scene {
    fault: "none: a near standby, SYNC AFFIRM",
    expected: None,
    rtt_ms: 0.5,
    megabits: 1000.0,
    loss_percent: 0.0,
    settings: &[],
    faults: (None, None),
    mode: Mode::SyncAffirm,
    second_member: None,
    attributes: "",
    load: (4, 1 << 10, 200e3),
    before_s: 2,
    then: Then::Nothing,
};

const SCENES: [Scene; 23] = [
    WELL,
    Scene { fault: "none: a distant standby, ASYNC", rtt_ms: 40.0, mode: Mode::Async, ..WELL },
    Scene { fault: "none: FASTSYNC", mode: Mode::Fastsync, ..WELL },
    Scene {
        fault: "a slow disk of the standby",
        expected: Some(("R7", "")),
        faults: (None, Some("log-write=sleep:10@1+")),
        ..WELL
    },
    Scene {
        fault: "a second member of the standby's log, on a slow disk",
        expected: Some(("R7", "")),
        faults: (None, Some("log-write:/slow/=sleep:10@1+")),
        second_member: Some("slow"),
        ..WELL
    },
    Scene {
        fault: "a slow disk of the primary",
        expected: Some(("R2", "")),
        faults: (Some("log-write=sleep:10@1+"), None),
        ..WELL
    },
    Scene {
        fault: "a standby that is held up before it writes",
        expected: Some(("R1", "")),
        faults: (None, Some("received=sleep:10@1+")),
        ..WELL
    },
    Scene {
        fault: "slow capture",
        expected: Some(("R5", "")),
        faults: (Some("capture=sleep:10@1+"), None),
        ..WELL
    },
    Scene { fault: "a long link, SYNC", expected: Some(("R12", "")), rtt_ms: 30.0, ..WELL },
    Scene { fault: "4 % loss", expected: Some(("R8", "")), rtt_ms: 2.0, loss_percent: 4.0, ..WELL },
    Scene {
        fault: "a link that does not carry the redo",
        expected: Some(("R14", "")),
        rtt_ms: 20.0,
        megabits: 4.0,
        mode: Mode::Async,
        load: (4, 16 << 10, 2e6),
        before_s: 8,
        ..WELL
    },
    Scene {
        fault: "socket buffers that are too small",
        expected: Some(("R14", "")),
        rtt_ms: 80.0,
        mode: Mode::Async,
        attributes: "SEND_BUF_SIZE=16384 RECV_BUF_SIZE=16384",
        load: (4, 16 << 10, 3e6),
        before_s: 8,
        ..WELL
    },
    Scene {
        fault: "slow apply",
        expected: Some(("R22", "applies slower")),
        faults: (None, Some("apply-commit=sleep:15000@1+")),
        mode: Mode::Async,
        load: (4, 32 << 10, 8e6),
        before_s: 6,
        ..WELL
    },
    Scene {
        fault: "apply that was stopped",
        expected: Some(("R22", "apply is stopped")),
        then: Then::ApplyStops,
        ..WELL
    },
    Scene {
        fault: "a standby that died",
        expected: Some(("R22", "not connected")),
        then: Then::StandbyDies,
        ..WELL
    },
    Scene {
        fault: "a link that is cut",
        expected: Some(("R22", "not connected")),
        attributes: "NET_TIMEOUT=1",
        then: Then::LinkIsCut,
        ..WELL
    },
    Scene {
        fault: "connections that break",
        expected: Some(("R23", "")),
        faults: (Some("send=EIO@500,send=EIO@560,send=EIO@620,send=EIO@680,send=EIO@740"), None),
        attributes: "REOPEN=1",
        ..WELL
    },
    Scene {
        fault: "a standby that does not answer for longer than its time",
        expected: Some(("R20", "")),
        faults: (None, Some("received=sleep:1800@600")),
        attributes: "NET_TIMEOUT=1 REOPEN=1",
        ..WELL
    },
    Scene {
        fault: "a standby whose log cannot be written",
        expected: Some(("R22", "not connected")),
        faults: (None, Some("log-write=ENOSPC@600+")),
        ..WELL
    },
    Scene {
        fault: "a database that cannot be applied to",
        expected: Some(("R22", "does not apply redo to some")),
        faults: (None, Some("apply-commit=EIO@20+")),
        ..WELL
    },
    Scene {
        fault: "an archive that is full",
        expected: Some(("R17", "")),
        settings: &[("group_bytes", 8 << 20)],
        faults: (Some("copy=ENOSPC@1+"), None),
        mode: Mode::Async,
        load: (4, 64 << 10, 8e6),
        before_s: 4,
        ..WELL
    },
    Scene {
        fault: "processors that others take",
        expected: Some(("R4", "")),
        rtt_ms: 0.0,
        mode: Mode::Async,
        load: (1, 1 << 10, 100e3),
        then: Then::ProcessorsAreTaken,
        ..WELL
    },
    Scene {
        fault: "small logs",
        expected: Some(("R16", "")),
        settings: &[("group_bytes", 8 << 20)],
        mode: Mode::Async,
        load: (4, 64 << 10, 6e6),
        ..WELL
    },
];

struct Spinners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    fn start() -> Spinners {
        let stop = Arc::new(AtomicBool::new(false));
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let spin = |_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..SPINNERS * processors).map(spin).collect();
        Spinners { stop, threads }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in it does not matter.
            let _ = thread.join();
        }
    }
}

/// Injects all faults, one after the other.
pub(super) fn diagnosed(labs: &Labs<'_>) -> Result<Vec<Diagnosed>> {
    SCENES.iter().map(|scene| scene.diagnose(labs)).collect()
}

impl Scene {
    fn diagnose(&self, labs: &Labs<'_>) -> Result<Diagnosed> {
        let loss = (self.loss_percent / 100.0 * f64::from(WHOLE)) as Share;
        let settings = Settings { loss, ..link_or_wire(self.rtt_ms, self.megabits) };
        let lab = open_as_it_is(labs, &[NEAR, FAR], settings)?;
        let mut pair = Pair::start_as(labs, &lab, self.settings, false, self.faults.0)?;
        pair.create_standby(self.faults.1)?;
        if let Some(member) = self.second_member {
            pair.add_log_member(member)?;
        }
        pair.ship_with(self.mode, self.attributes)?;
        pair.await_follower(self.mode)?;
        let (sessions, bytes, rate) = self.load;
        // Never stopped cleanly: in some scenes commits are blocked.
        let _load = pair.load(sessions, bytes, Some(rate))?;
        interrupt::pause(Duration::from_secs(self.before_s))?;
        let mut _taken = None;
        match self.then {
            Then::Nothing => {}
            Then::StandbyDies => pair.kill_standby(),
            Then::ApplyStops => pair.stop_apply()?,
            Then::ProcessorsAreTaken => _taken = Some(Spinners::start()),
            Then::LinkIsCut => super::lags::set(&lab, true)?,
        }
        let found = pair.primary().diagnose(SECONDS)?;
        let diagnosed = Diagnosed { fault: self.fault, expected: self.expected, found };
        let right = if diagnosed.is_right() { "" } else { ", WRONG" };
        let expected = self.expected.map_or("nothing", |(rule, _)| rule);
        let found: Vec<String> = diagnosed.found.iter().map(Found::to_string).collect();
        eprintln!("{}: expected {expected}, found {}{right}", self.fault, found.join("; "));
        Ok(diagnosed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_counts_only_if_first_and_silence_only_if_no_fault() {
        let found = |(rule, title): &(&str, &str)| Found { rule: (*rule).into(), title: (*title).into() };
        let of = |expected, all: &[(&str, &str)]| Diagnosed {
            fault: "one",
            expected,
            found: all.iter().map(found).collect(),
        };
        let (slow, late, lost) =
            (("R7", "slow log"), ("R11", "late"), ("R22", "standby oslo is not connected"));
        let (disk, gone) = (Some(("R7", "")), Some(("R22", "not connected")));
        assert_eq!(wrong(&[of(disk, &[slow, late]), of(gone, &[lost]), of(None, &[])]), 0.0);
        let stopped = ("R22", "standby oslo has stopped");
        assert_eq!(wrong(&[of(disk, &[late, slow]), of(disk, &[]), of(None, &[late])]), 3.0);
        assert_eq!(wrong(&[of(gone, &[stopped])]), 1.0, "another saying of the same rule");
    }
}
