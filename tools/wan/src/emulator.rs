//! The directions between the nodes, with the operations that change and query them while they run.

use crate::clock::Clock;
use crate::late::{Late, Lateness};
use crate::link::{Counts, State};
use crate::place::Node;
use crate::settings::{Change, Settings, WHOLE};
use crate::tun::Tun;
use crate::worker::{Direction, Outgoing};
use crate::{Result, WanError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A direction, written `a:b`: from a to b.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkName {
    pub from: String,
    pub to: String,
}

impl FromStr for LinkName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<LinkName, String> {
        match text.split_once(':') {
            Some((from, to)) if !from.is_empty() && !to.is_empty() => {
                Ok(LinkName { from: from.into(), to: to.into() })
            }
            _ => Err("allowed: one direction as FROM:TO, for example a:b".into()),
        }
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.from, self.to)
    }
}

/// The settings of a direction and its counts. Times in seconds, rates in bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStats {
    pub from: String,
    pub to: String,
    pub state: State,
    pub delay: f64,
    /// Bytes per second; null without a limit.
    pub rate: Option<f64>,
    /// Limit of the transmitter's queue, bytes; null without a rate.
    pub queue: Option<u64>,
    /// Share of the segments that are lost, 0 to 1.
    pub loss: f64,
    pub jitter: f64,
    /// Share of segments to be overtaken.
    pub reorder: f64,
    pub reorder_by: f64,
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes in the queue or on the way.
    pub held_bytes: u64,
    /// Packets that the receiving node's kernel did not accept.
    pub refused: u64,
    /// Lateness of delivered packets since the start or the last reset.
    pub late: Late,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Version of this format, 1 at present.
    pub schema_version: u32,
    pub name: String,
    pub seed: u64,
    pub seconds: f64,
    pub nodes: Vec<Node>,
    /// Packets that the kernel dropped before the emulator read them, because it was too slow for the nodes.
    pub overruns: u64,
    pub links: Vec<LinkStats>,
    pub late: Late,
}

/// State shared by the threads and the control socket.
pub struct Emulator {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    pub(crate) nodes: Arc<[Node]>,
    pub(crate) tuns: Arc<[Tun]>,
    /// By the index of the sending node.
    pub(crate) outgoing: Vec<Arc<Outgoing>>,
}

impl Emulator {
    /// Changes the named directions, or all if none is named. If one of them cannot take the change, none is changed.
    pub fn set(&self, links: &[LinkName], change: &Change) -> Result<()> {
        let mut possible = Ok(());
        self.each(links, |direction| {
            if let Err(error) = change.applied_to(direction.link.settings()) {
                possible = Err(error);
            }
        })?;
        possible?;
        let now = self.clock.now();
        let mut done = Ok(());
        self.each(links, |direction| match change.applied_to(direction.link.settings()) {
            Ok(settings) => direction.link.set(now, settings),
            Err(error) => done = Err(error),
        })?;
        done
    }

    /// Drops everything in these directions, or in all.
    pub fn cut(&self, links: &[LinkName]) -> Result<()> {
        self.each(links, |direction| direction.link.cut())
    }

    /// Stops the clock of these directions, or of all.
    pub fn stall(&self, links: &[LinkName]) -> Result<()> {
        let now = self.clock.now();
        self.each(links, |direction| direction.link.stall(now))
    }

    /// Ends cuts and stalls in these directions, or in all.
    pub fn heal(&self, links: &[LinkName]) -> Result<()> {
        let now = self.clock.now();
        self.each(links, |direction| direction.link.heal(now))
    }

    /// Returns the statistics; `reset` resets the lateness afterwards.
    pub fn stats(&self, reset: bool) -> Stats {
        let mut lateness = Lateness::new();
        let mut links = Vec::new();
        for outgoing in &self.outgoing {
            outgoing.with(|directions| {
                for direction in directions {
                    lateness.add(&direction.lateness);
                    links.push(self.link_stats(direction));
                    if reset {
                        direction.lateness.reset();
                    }
                }
            });
        }
        Stats {
            schema_version: 1,
            name: self.name.clone(),
            seed: self.seed,
            seconds: self.clock.now() as f64 / 1e9,
            nodes: self.nodes.to_vec(),
            overruns: self.tuns.iter().filter_map(|tun| tun.dropped_before().ok()).sum(),
            links,
            late: lateness.figures(),
        }
    }

    fn link_stats(&self, direction: &Direction) -> LinkStats {
        let settings: &Settings = direction.link.settings();
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let share = |share: u32| f64::from(share) / f64::from(WHOLE);
        LinkStats {
            from: self.nodes[direction.from].name.clone(),
            to: self.nodes[direction.to].name.clone(),
            state: direction.link.state(),
            delay: seconds(settings.delay),
            rate: settings.rate.map(|bits| bits as f64 / 8.0),
            queue: settings.rate.map(|_| settings.queue_bytes()),
            loss: share(settings.loss),
            jitter: seconds(settings.jitter),
            reorder: share(settings.reorder),
            reorder_by: seconds(settings.reorder_by),
            counts: direction.link.counts(),
            held_bytes: direction.link.held_bytes(),
            refused: direction.refused,
            late: direction.lateness.figures(),
        }
    }

    /// Applies `work` to the named directions, or to all if none is named.
    fn each(&self, links: &[LinkName], mut work: impl FnMut(&mut Direction)) -> Result<()> {
        let wanted = links.iter().map(|link| self.indices(link)).collect::<Result<Vec<_>>>()?;
        for outgoing in &self.outgoing {
            outgoing.with(|directions| {
                let named = |direction: &Direction| wanted.contains(&(direction.from, direction.to));
                directions
                    .iter_mut()
                    .filter(|direction| wanted.is_empty() || named(direction))
                    .for_each(&mut work);
            });
        }
        Ok(())
    }

    fn indices(&self, link: &LinkName) -> Result<(usize, usize)> {
        indices(&self.nodes, link)
    }
}

/// Indices of the two nodes of a direction.
pub(crate) fn indices(nodes: &[Node], link: &LinkName) -> Result<(usize, usize)> {
    let index = |name: &str| nodes.iter().position(|node| node.name == name);
    match (index(&link.from), index(&link.to)) {
        (Some(from), Some(to)) if from != to => Ok((from, to)),
        _ => {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            Err(WanError::usage(
                format!("there is no direction {link}"),
                format!("name two of the nodes {} as FROM:TO", names.join(", ")),
            ))
        }
    }
}
