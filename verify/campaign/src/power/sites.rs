//! The standbys of a history, and how the primary ships to them.

use super::truth::Promise;
use standfast_environment::config::destination_config::TransportMode;
use standfast_environment::config::settings::{Compression, DestinationConfig, OnTimeout};
use standfast_environment::state::control::Incarnation;
use standfast_simulation::link::{Destination, Link, Skew};
use standfast_simulation::site::{Geometry, SegmentFile};
use standfast_simulation::standby::StandbyHost;
use standfast_simulation::{Held, lock};
use standfast_testkit::{Rng, SimMachine};
use standfast_types::Scn;
use std::sync::Arc;

const NET_TIMEOUT_MS: u64 = 1000;

/// What happens when a synchronous standby does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Commits wait for every standby, whether it is there or not.
    Stall,
    /// Maximum availability: commits continue without it after the net timeout.
    Continue,
    /// Maximum protection: commits continue without it while another SYNC AFFIRM standby has them.
    Protect,
}

/// What is drawn once for a history, apart from its events.
#[derive(Clone, Debug)]
pub struct Shape {
    rng: Rng,
    pub policy: Policy,
    /// Number of standbys that the history should have.
    pub standbys: usize,
}

impl Shape {
    pub fn draw(seed: u64, stall: bool) -> Shape {
        let mut rng = Rng::new(seed ^ SHAPE);
        let standbys = rng.pick(&[1, 1, 1, 1, 1, 2, 2, 2, 2, 3]).copied().unwrap_or(1);
        let policy = match (rng.chance(25), stall) {
            (true, _) => Policy::Protect,
            (_, true) => Policy::Stall,
            _ => Policy::Continue,
        };
        Shape { rng, policy, standbys }
    }

    /// Draws the destination for the next standby, the instance `number`. Maximum protection needs one that writes the
    /// redo.
    pub fn destination(&mut self, number: u8, is_first: bool) -> DestinationConfig {
        let modes = [TransportMode::SyncAffirm, TransportMode::Fastsync, TransportMode::Async];
        let drawn = self.rng.pick(&[0, 0, 0, 0, 0, 1, 1, 1, 2, 2]).copied().unwrap_or(0);
        let mode = if is_first && self.policy == Policy::Protect { modes[0] } else { modes[drawn] };
        DestinationConfig {
            mode: Some(mode),
            on_timeout: match self.policy {
                Policy::Stall => Some(OnTimeout::Stall),
                Policy::Continue => Some(OnTimeout::Degrade),
                Policy::Protect => None,
            },
            net_timeout_ms: NET_TIMEOUT_MS,
            // How long compressed redo is depends on the times in it, and a seed must always give the same run.
            compression: Compression::None,
            ..DestinationConfig::new(name_of(number), "simulated:1")
        }
    }

    /// Draws the clock of the next standby.
    pub fn skew(&mut self) -> Skew {
        if self.rng.chance(50) { Skew::NONE } else { Skew::draw(&mut self.rng) }
    }
}

/// Separates what is drawn for the shape of a history from its events.
const SHAPE: u64 = 0x5ba9_e000;

/// Name of the instance `number`.
pub fn name_of(number: u8) -> String {
    format!("instance{number}")
}

/// A standby and its machine.
pub struct Site {
    /// Number of its instance.
    pub number: u8,
    pub machine: Arc<SimMachine>,
    pub geometry: Geometry,
    pub segment: SegmentFile,
    /// `None` while its machine has no power.
    pub host: Held<StandbyHost>,
    pub config: DestinationConfig,
    pub skew: Skew,
    /// It has acknowledged the redo up to here as written.
    pub hardened_floor: Scn,
}

impl Site {
    /// Whether the standby has followed no incarnation but those of `incarnations`: one that was away when the primary
    /// changed may be opened as primary itself, and then opens another branch.
    pub fn has_entered_only(&self, incarnations: &[Incarnation]) -> bool {
        let ids = |all: &[Incarnation]| all.iter().map(|one| one.id).collect::<Vec<_>>();
        let held = lock(&self.host);
        let entered = held.as_ref().map(|host| ids(&host.environment.control().incarnations));
        entered.is_none_or(|entered| ids(incarnations).starts_with(&entered))
    }

    pub fn mode(&self) -> TransportMode {
        self.config.transport_mode()
    }

    /// The standby as a destination of the primary.
    pub fn destination(&self, rng: Rng) -> Destination {
        Destination { config: self.config.clone(), standby: self.host.clone(), skew: self.skew, rng }
    }

    /// What the standby, the destination `at` of `link`, has promised since this was last asked; the redo of the primary
    /// is durable up to `durable`.
    pub fn promise(&self, link: &Link, at: usize, durable: Scn) -> Promise {
        let required = link.was_required(at);
        let (affirm, fastsync) =
            (self.mode() == TransportMode::SyncAffirm, self.mode() == TransportMode::Fastsync);
        Promise {
            standby: self.number,
            received: required && (affirm || fastsync),
            hardened: required && affirm,
            holds_all: link.hardened(at) >= durable,
        }
    }
}
