//! Where an instance runs: on the loopback, or on a separate host at the end of an emulated link.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use standfast_wan::{Wan, WanConfig};

use crate::systems::free_port;
use crate::{BenchError, Result};

/// Each emulated host has all ports to itself.
const PORT: u16 = 7411;
/// Seconds of lateness from which the emulator's addition to the round trip is reported.
const LATE: f64 = 0.5e-3;

/// The hosts of a primary and its standby.
pub(super) enum Hosts {
    /// Both on this machine; the standby delays its acknowledgements.
    Loopback { ack_delay_us: u64 },
    /// Two nodes with a link between them.
    Apart(Box<Wan>),
}

impl Hosts {
    /// Makes hosts with this round trip between them. Where links cannot be emulated, acknowledgements are delayed
    /// instead.
    pub(super) fn new(rtt_us: u64) -> Result<Hosts> {
        if rtt_us == 0 {
            return Ok(Hosts::Loopback { ack_delay_us: 0 });
        }
        if let Err(error) = standfast_wan::possible() {
            eprintln!("the standby delays its acknowledgements instead of an emulated link: {error}");
            return Ok(Hosts::Loopback { ack_delay_us: rtt_us });
        }
        let wan = Wan::start(WanConfig::with_rtt(Duration::from_micros(rtt_us))).map_err(failed)?;
        Ok(Hosts::Apart(Box::new(wan)))
    }

    pub(super) fn primary(&self) -> Result<Site<'_>> {
        self.site(0, 0)
    }

    pub(super) fn standby(&self) -> Result<Site<'_>> {
        match self {
            Hosts::Loopback { ack_delay_us } => self.site(1, *ack_delay_us),
            Hosts::Apart(_) => self.site(1, 0),
        }
    }

    fn site(&self, index: usize, ack_delay_us: u64) -> Result<Site<'_>> {
        let (listen, node) = match self {
            Hosts::Loopback { .. } => (format!("127.0.0.1:{}", free_port()?), None),
            Hosts::Apart(wan) => {
                let node = &wan.nodes()[index];
                (format!("{}:{PORT}", node.address), Some((&**wan, node.name.as_str())))
            }
        };
        Ok(Site { ack_delay_us, ..Site::at(listen, node) })
    }

    /// Reports an emulated link that was slower than configured.
    pub(super) fn check(&self) {
        if let Hosts::Apart(wan) = self {
            let late = wan.control().stats(false).late.p99;
            if late > LATE {
                eprintln!(
                    "busy machine: 1 % of the packets was {:.1} ms late on the emulated link",
                    late * 1e3
                );
            }
        }
    }
}

pub(crate) struct Site<'a> {
    pub(crate) listen: String,
    /// Plain TCP unless [`Site::encrypted`] is called: the systems that figures compare with are measured that way too,
    /// and no other user works on this machine or is on the emulated link.
    pub(crate) insecure: bool,
    /// Address where an instance that is made here serves its dashboard and metrics.
    pub(super) http: Option<String>,
    behind: bool,
    ack_delay_us: u64,
    node: Option<(&'a Wan, &'a str)>,
    environment: Vec<(String, PathBuf)>,
    /// Settings of instances that are made here, other than the defaults.
    pub(super) settings: &'a [(&'a str, &'a str)],
}

impl<'a> Site<'a> {
    fn at(listen: String, node: Option<(&'a Wan, &'a str)>) -> Site<'a> {
        Site {
            listen,
            insecure: true,
            http: None,
            behind: false,
            ack_delay_us: 0,
            node,
            environment: Vec::new(),
            settings: &[],
        }
    }

    /// Returns a site on the loopback, without any delay.
    pub(crate) fn here() -> Result<Site<'static>> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        Ok(Site::at(listen, None))
    }

    /// Returns a site on the loopback where an instance listens already.
    pub(crate) fn listening_at(listen: String) -> Site<'static> {
        Site::at(listen, None)
    }

    /// A host at the end of an emulated link.
    pub(crate) fn of_node<'w>(wan: &'w Wan, node: &'w str) -> Result<Site<'w>> {
        let address = wan.node(node).map_err(failed)?.address;
        let listen = format!("{address}:{PORT}");
        Ok(Site::at(listen, Some((wan, node))))
    }

    pub(crate) fn encrypted(self, tls: bool) -> Self {
        Site { insecure: self.insecure && !tls, ..self }
    }

    /// With an HTTP port for instances that are made there.
    pub(super) fn with_http(self, http: Option<String>) -> Self {
        Site { http, ..self }
    }

    pub(super) fn with_settings(self, settings: &'a [(&'a str, &'a str)]) -> Self {
        Site { settings, ..self }
    }

    /// When `behind`, programs of this site get only the processor time that those of other hosts leave: all emulated
    /// hosts share the processors, but a measurement of the effect on another host is about the network. Not `nice`: a
    /// nice process keeps running until its time slice ends, for milliseconds, while others wait.
    pub(crate) fn behind(self, behind: bool) -> Self {
        Site { behind, ..self }
    }

    /// With these variables in the environment of its programs.
    pub(super) fn with_environment(self, variables: &[(&str, PathBuf)]) -> Self {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Site { environment, ..self }
    }

    /// Makes a command that runs at this site.
    pub(super) fn command(&self, program: &Path) -> Result<Command> {
        let first = if self.behind { Path::new("chrt") } else { program };
        let mut command = match self.node {
            Some((wan, node)) => wan.command(node, first).map_err(failed)?,
            None => Command::new(first),
        };
        if self.behind {
            command.args(["--idle", "0"]).arg(program);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if self.ack_delay_us > 0
            && let Some(variable) = standfast_io::fault::DELAY_VARIABLE
        {
            command.env(variable, self.ack_delay_us.to_string());
        }
        Ok(command)
    }

    /// Options of `init` and `standby create` for this site.
    pub(super) fn options(&self) -> Vec<&str> {
        let mut options = vec!["--listen", &self.listen];
        if self.insecure {
            options.push("--insecure");
        }
        options
    }
}

fn failed(error: standfast_wan::WanError) -> BenchError {
    BenchError::Workload(error.to_string())
}
