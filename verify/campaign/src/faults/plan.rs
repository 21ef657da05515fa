//! What can go wrong between a primary and its standbys, and how they can be connected. Drawn, not decided: pure and
//! repeatable.

use clap::ValueEnum;
use serde::Serialize;
use standfast_testkit::Rng;
use std::time::Duration;

/// After this long without an answer a commit continues (`degrade`) or is reported as stalled (`stall`).
pub const NET_TIMEOUT: Duration = Duration::from_millis(1000);
/// What a commit may take beyond the net timeout.
pub const GRACE: Duration = Duration::from_millis(1000);

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The standby is killed and started again.
    Killed,
    /// The standby stands still (SIGSTOP).
    Frozen,
    /// Nothing passes between them, and neither end is notified.
    Cut,
    /// The standby's log writes take long.
    SlowDisk,
    /// The standby has no room to archive, while logs are switched.
    FullDisk,
    /// Bits of frames are flipped, in both directions.
    Corrupt,
    /// Frames come twice.
    Duplicate,
    /// Frames come in another order.
    Reorder,
    /// One end of the connection is gone and the other does not hear of it.
    HalfOpen,
}

impl Fault {
    /// Whether it lasts until it is healed; the others strike and are over.
    pub fn lasts(self) -> bool {
        matches!(self, Fault::Killed | Fault::Frozen | Fault::Cut | Fault::SlowDisk | Fault::FullDisk)
    }

    /// Whether the standby loses what it has in memory only.
    pub fn forgets(self) -> bool {
        matches!(self, Fault::Killed | Fault::SlowDisk)
    }
}

/// A destination as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Argument of `--mode`; it says when commits are acknowledged.
    pub mode: &'static str,
    /// Value of `--on-timeout`; commits do not wait for an asynchronous one.
    pub on_timeout: Option<&'static str>,
}

impl Destination {
    pub fn is_synchronous(self) -> bool {
        self.on_timeout.is_some()
    }
}

const ASYNC: Destination = Destination { mode: "async", on_timeout: None };

const fn to(mode: &'static str, on_timeout: &'static str) -> Destination {
    Destination { mode, on_timeout: Some(on_timeout) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// Shown in the table, and the value of `--only`.
    pub name: &'static str,
    /// The fault strikes the last one; the first one takes over at the end.
    pub destinations: &'static [Destination],
}

/// All of them. With one destination the standby that is struck is the one that takes over.
pub const ARRANGEMENTS: [Arrangement; 7] = [
    Arrangement { name: "sync-affirm-degrade", destinations: &[to("sync-affirm", "degrade")] },
    Arrangement { name: "sync-affirm-stall", destinations: &[to("sync-affirm", "stall")] },
    Arrangement { name: "fastsync-degrade", destinations: &[to("fastsync", "degrade")] },
    Arrangement { name: "fastsync-stall", destinations: &[to("fastsync", "stall")] },
    Arrangement { name: "async", destinations: &[ASYNC] },
    Arrangement { name: "sync-and-async", destinations: &[to("sync-affirm", "stall"), ASYNC] },
    Arrangement {
        name: "two-sync",
        destinations: &[to("sync-affirm", "degrade"), to("sync-affirm", "degrade")],
    },
];

impl Arrangement {
    /// The destination that the fault strikes.
    pub fn struck(&self) -> usize {
        self.destinations.len() - 1
    }

    /// Whether commits may wait for as long as the fault lasts.
    pub fn may_stall(&self) -> bool {
        let struck = self.destinations[self.struck()];
        struck.is_synchronous() && struck.on_timeout == Some("stall")
    }

    /// Whether the one that takes over may have acknowledged what it forgets. FASTSYNC promises this much when one of
    /// the two is lost: what a standby had only in memory when it was killed is with the primary.
    pub fn forgets(&self, fault: Fault) -> bool {
        fault.forgets() && self.struck() == 0 && self.destinations[0].mode == "fastsync"
    }

    /// Whether everything acknowledged must be at the one that takes over, whatever strikes: it is not struck, or
    /// commits wait for it as long as it takes.
    pub fn never_loses(&self) -> bool {
        let heir = self.destinations[0];
        heir.is_synchronous() && (self.struck() != 0 || heir.on_timeout == Some("stall"))
    }

    /// How long a COMMIT may take at most when the fault lasted so long.
    pub fn longest_wait(&self, fault: Fault, lasted: Duration) -> Duration {
        let base = NET_TIMEOUT + GRACE;
        if self.may_stall() && fault.lasts() { base + lasted } else { base }
    }
}

/// One fault: when, for how long, and how exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    pub fault: Fault,
    /// How long everything runs before the fault.
    pub after: Duration,
    pub lasts: Duration,
    /// Which of several forms it takes.
    pub form: u64,
}

impl Strike {
    pub fn draw(rng: &mut Rng, fault: Fault) -> Strike {
        let net_timeout = NET_TIMEOUT.as_millis() as u64;
        let lasts = match rng.chance(50) {
            true => rng.between(50, net_timeout * 7 / 10),
            false => rng.between(net_timeout * 12 / 10, net_timeout * 18 / 10),
        };
        Strike {
            fault,
            after: Duration::from_millis(rng.between(50, 400)),
            lasts: Duration::from_millis(lasts),
            form: rng.next_u64(),
        }
    }

    /// What a log write of a slow disk takes, milliseconds: often less than the net timeout, sometimes more.
    pub fn write_ms(&self) -> u64 {
        [20, 100, 300, NET_TIMEOUT.as_millis() as u64 * 13 / 10][(self.form % 4) as usize]
    }
}

impl std::fmt::Display for Strike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} after {} ms", self.fault, self.after.as_millis())?;
        match self.fault {
            Fault::SlowDisk => {
                write!(f, " for {} ms, a write takes {} ms", self.lasts.as_millis(), self.write_ms())
            }
            fault if fault.lasts() => write!(f, " for {} ms", self.lasts.as_millis()),
            _ => Ok(()),
        }
    }
}

/// The faults of one scene: all but the last one are healed, and during the last one the primary is lost. Every fault
/// comes as often as any other, and is last in one of three scenes.
pub fn scene(rng: &mut Rng, number: u64) -> Vec<Strike> {
    let all = Fault::value_variants();
    // Scenes 0, 1, 2 take a third each of all faults; later scenes repeat them, rotated so that another fault is the
    // last.
    let first = (number * FAULTS_A_SCENE as u64) as usize % all.len();
    let turn = (number as usize * FAULTS_A_SCENE / all.len()) % FAULTS_A_SCENE;
    let mut faults: Vec<Fault> = (0..FAULTS_A_SCENE).map(|nth| all[(first + nth) % all.len()]).collect();
    faults.rotate_left(turn);
    faults.into_iter().map(|fault| Strike::draw(rng, fault)).collect()
}

/// Faults that one pair of instances sees.
pub const FAULTS_A_SCENE: usize = 3;
/// Scenes in which every fault comes once.
pub const SCENES_A_ROUND: u64 = (9 / FAULTS_A_SCENE) as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn every_fault_strikes_equally_often_and_equally_often_last() {
        let mut rng = Rng::new(1);
        let (mut seen, mut last) = (HashMap::new(), HashMap::new());
        for number in 0..SCENES_A_ROUND * 6 {
            let strikes = scene(&mut rng, number);
            strikes.iter().for_each(|strike| *seen.entry(strike.fault).or_insert(0) += 1);
            *last.entry(strikes.last().unwrap().fault).or_insert(0) += 1;
        }
        assert!(
            Fault::value_variants().iter().all(|fault| seen[fault] == 6 && last[fault] == 2),
            "{seen:?} {last:?}"
        );
    }

    #[test]
    fn faults_last_shorter_and_longer_than_the_net_timeout() {
        let mut rng = Rng::new(2);
        let strikes: Vec<_> = (0..200).map(|_| Strike::draw(&mut rng, Fault::Cut)).collect();
        let shorter = strikes.iter().filter(|strike| strike.lasts < NET_TIMEOUT).count();
        assert!((60..140).contains(&shorter), "{shorter}");
        assert!(strikes.iter().any(|strike| strike.write_ms() > NET_TIMEOUT.as_millis() as u64));
        assert_eq!(strikes[0], Strike::draw(&mut Rng::new(2), Fault::Cut));
    }

    #[test]
    fn commit_may_wait_for_end_of_fault_only_under_stall_policy() {
        let lasted = Duration::from_secs(9);
        for arrangement in &ARRANGEMENTS {
            let stalls = arrangement.name.ends_with("stall");
            assert_eq!(arrangement.may_stall(), stalls, "{}", arrangement.name);
            let longest = arrangement.longest_wait(Fault::Cut, lasted);
            assert_eq!(longest > lasted, stalls, "{}", arrangement.name);
            assert_eq!(arrangement.longest_wait(Fault::Corrupt, lasted), NET_TIMEOUT + GRACE);
        }
        let safe: Vec<_> = ARRANGEMENTS.iter().filter(|one| one.never_loses()).map(|one| one.name).collect();
        assert_eq!(safe, ["sync-affirm-stall", "fastsync-stall", "sync-and-async", "two-sync"]);
    }
}
