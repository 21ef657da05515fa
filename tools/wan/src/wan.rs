//! An emulator within this process: for tests and benches, and the base of `standfast wan run`.

use crate::awake::{Awake, keep_awake};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::control::Server;
use crate::emulator::{Emulator, LinkName, indices};
use crate::error::Doing;
use crate::event::Event;
use crate::late::Lateness;
use crate::link::Link;
use crate::place::{Node, Place};
use crate::settings::{Change, Nanos, Settings};
use crate::tun::Tun;
use crate::worker::{Direction, Outgoing, Worker};
use crate::{Result, WanError, namespace, place, probe, tun};
use std::ffi::OsStr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct WanConfig {
    pub name: String,
    /// Names of the nodes; each pair is connected in both directions.
    pub nodes: Vec<String>,
    pub settings: Settings,
    /// Changes for single directions, applied in this order.
    pub links: Vec<(LinkName, Change)>,
    /// Decides which segments are lost and overtaken, and the course of the jitter.
    pub seed: u64,
}

impl Default for WanConfig {
    /// Nodes `a` and `b`, a link that only forwards, and a name that is unique within and across processes.
    fn default() -> WanConfig {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        WanConfig {
            name: format!("p{}-{number}", std::process::id()),
            nodes: vec!["a".into(), "b".into()],
            settings: Settings::default(),
            links: Vec::new(),
            seed: 1,
        }
    }
}

impl WanConfig {
    /// Two nodes with this round trip.
    pub fn with_rtt(rtt: Duration) -> WanConfig {
        let settings = Settings { delay: rtt.as_nanos() as Nanos / 2, ..Settings::default() };
        WanConfig { settings, ..WanConfig::default() }
    }
}

/// Checks that this process may emulate links; the error names what is missing.
pub fn possible() -> Result<()> {
    namespace::check()?;
    tun::check()
}

/// A running emulator. Dropping it ends its nodes and all processes in them.
pub struct Wan {
    emulator: Arc<Emulator>,
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
    place: Option<Place>,
    _awake: Option<Awake>,
}

impl Wan {
    /// Creates the nodes and connects them, after removing the remains of killed emulators.
    pub fn start(config: WanConfig) -> Result<Wan> {
        let nodes: Arc<[Node]> = place::nodes(&config.name, &config.nodes)?.into();
        let settings = settings_of_all(&config, &nodes)?;
        possible()?;
        let clock = Clock::start();
        let (place, (tuns, server)) = Place::take(&config.name, &nodes, |place| {
            let open = |node: &Node| namespace::create(&node.namespace, || Tun::open(node.address));
            let tuns: Arc<[Tun]> = nodes.iter().map(open).collect::<Result<Vec<Tun>>>()?.into();
            let socket = place.socket();
            Ok((tuns, Server::bind(&socket).doing(|| format!("listen at {}", socket.display()))?))
        })?;
        let outgoing = outgoing(&config, &nodes, &settings).doing(|| "make an event".into())?;
        let emulator =
            Arc::new(Emulator { name: config.name, seed: config.seed, clock, nodes, tuns, outgoing });
        let mut wan = Wan {
            emulator,
            server: Arc::new(server),
            threads: Vec::new(),
            place: Some(place),
            _awake: keep_awake().ok(),
        };
        wan.start_threads().doing(|| "start a thread".into())?;
        for node in wan.nodes() {
            let sent = namespace::within(&node.namespace, || probe::send(clock))?;
            sent.doing(|| format!("send from node {}", node.name))?;
        }
        Ok(wan)
    }

    fn start_threads(&mut self) -> std::io::Result<()> {
        let emulator = &self.emulator;
        for (node, outgoing) in emulator.outgoing.iter().enumerate() {
            let (clock, outgoing) = (emulator.clock, Arc::clone(outgoing));
            let (nodes, tuns) = (Arc::clone(&emulator.nodes), Arc::clone(&emulator.tuns));
            let worker = Worker { clock, node, nodes, tuns, outgoing };
            let name = format!("wan-{}", emulator.nodes[node].name);
            self.threads.push(std::thread::Builder::new().name(name).spawn(|| worker.run())?);
        }
        let (emulator, server) = (Arc::clone(emulator), Arc::clone(&self.server));
        let control = std::thread::Builder::new().name("wan-control".into());
        self.threads.push(control.spawn(move || server.run(&emulator))?);
        Ok(())
    }

    /// The nodes, in the order of the configuration.
    pub fn nodes(&self) -> &[Node] {
        &self.emulator.nodes
    }

    pub fn node(&self, name: &str) -> Result<&Node> {
        find_node(self.nodes(), name)
    }

    /// Returns the interface that changes and queries the links.
    pub fn control(&self) -> &Emulator {
        &self.emulator
    }

    /// Returns a command that will run in a node.
    pub fn command(&self, node: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        namespace::command(&self.node(node)?.namespace, program)
    }

    /// Runs `inside` on a thread in a node. Sockets that it creates stay there.
    pub fn within<T: Send>(&self, node: &str, inside: impl FnOnce() -> T + Send) -> Result<T> {
        namespace::within(&self.node(node)?.namespace, inside)
    }

    /// Raised when a client asks through the control socket that the emulator stops.
    pub fn stop_asked(&self) -> &Event {
        &self.server.stop_asked
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        self.emulator.outgoing.iter().for_each(|outgoing| outgoing.end());
        self.server.end();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported that on stderr.
            let _ = thread.join();
        }
        // Before clients that wait for the end are answered: dropping the server closes their connections.
        self.place.take();
    }
}

pub fn find_node<'a>(nodes: &'a [Node], name: &str) -> Result<&'a Node> {
    nodes.iter().find(|node| node.name == name).ok_or_else(|| {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        WanError::usage(format!("there is no node {name}"), format!("the nodes are {}", names.join(", ")))
    })
}

/// By sending node and receiving node.
fn settings_of_all(config: &WanConfig, nodes: &[Node]) -> Result<Vec<Vec<Settings>>> {
    config.settings.check()?;
    let mut all = vec![vec![config.settings; nodes.len()]; nodes.len()];
    for (link, change) in &config.links {
        let (from, to) = indices(nodes, link)?;
        all[from][to] = change.applied_to(&all[from][to])?;
    }
    Ok(all)
}

fn outgoing(
    config: &WanConfig,
    nodes: &[Node],
    settings: &[Vec<Settings>],
) -> std::io::Result<Vec<Arc<Outgoing>>> {
    let direction = |from: usize, to: usize| Direction {
        from,
        to,
        link: Link::new(settings[from][to], Chance::new(config.seed, from, to)),
        lateness: Lateness::new(),
        refused: 0,
    };
    let of_node = |from: usize| {
        let others = (0..nodes.len()).filter(|to| *to != from);
        let directions = others.map(|to| direction(from, to)).collect();
        Event::new().map(|changed| Arc::new(Outgoing::new(directions, changed)))
    };
    (0..nodes.len()).map(of_node).collect()
}
