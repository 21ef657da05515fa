//! A primary on the near host of a lab and a standby on the far one.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use standfast_wan::settings::Settings;

use super::super::net::lab::{FAR, Lab, Labs, NEAR, ample_buffer, deep_queue, link};
use super::MEGABITS;
use crate::context::need;
use crate::process::Scratch;
use crate::redo_load::{Config, Content, Load, create_database};
use crate::systems::{Instance, Mode, Site, StandbyOptions};
use crate::{BenchError, Result, interrupt};

const TIMEOUT: Duration = Duration::from_secs(180);
/// Redo that does not grow for this long has stopped growing.
pub(super) const STANDSTILL: Duration = Duration::from_secs(60);
/// Congestion control of both ends; every kernel has it.
const CONGESTION: &str = "reno";
/// Sessions, and bytes per transaction, that generate a backlog.
const BACKLOG: (usize, usize) = (8, 256 << 10);

/// A link with this round trip, buffers that cover it at both ends and a queue that loses nothing: only the rate limits
/// a stream, of Standfast and of other tools.
pub(in super::super) fn open<'l>(labs: &'l Labs<'l>, rtt_ms: f64) -> Result<Lab<'l>> {
    let mut settings = link(rtt_ms, MEGABITS);
    settings.queue = deep_queue(&settings);
    let lab = open_as_it_is(labs, &[NEAR, FAR], settings)?;
    lab.set_ceilings(ample_buffer(&settings))?;
    Ok(lab)
}

/// A link between each two hosts, which keep the default socket buffers of the system.
pub(in super::super) fn open_as_it_is<'l>(
    labs: &'l Labs<'l>,
    nodes: &[&str],
    settings: Settings,
) -> Result<Lab<'l>> {
    let lab = labs.open_nodes(nodes, settings)?;
    for node in nodes {
        lab.set(node, "tcp_congestion_control", CONGESTION)?;
    }
    Ok(lab)
}

/// A primary and its standbys. Dropping it stops all of them, the standbys first.
pub(in super::super) struct Pair<'l> {
    labs: &'l Labs<'l>,
    lab: &'l Lab<'l>,
    tls: bool,
    standbys: Vec<Instance>,
    primary: Instance,
    database: PathBuf,
    scratch: Scratch,
}

impl<'l> Pair<'l> {
    /// Starts a primary with one protected database, without standbys.
    pub(in super::super) fn start(labs: &'l Labs<'l>, lab: &'l Lab<'l>) -> Result<Pair<'l>> {
        Pair::start_with(labs, lab, &[], false)
    }

    /// Starts a primary with `faults` as the value of `STANDFAST_FAULT`.
    pub(in super::super) fn start_faulty(
        labs: &'l Labs<'l>,
        lab: &'l Lab<'l>,
        faults: Option<&str>,
    ) -> Result<Pair<'l>> {
        Pair::start_as(labs, lab, &[], false, faults)
    }

    /// Starts a primary with some settings changed, and connections over TLS or plain TCP.
    pub(in super::super) fn start_with(
        labs: &'l Labs<'l>,
        lab: &'l Lab<'l>,
        settings: &[(&str, u64)],
        tls: bool,
    ) -> Result<Pair<'l>> {
        Pair::start_as(labs, lab, settings, tls, None)
    }

    /// Starts a primary with all these options.
    pub(in super::super) fn start_as(
        labs: &'l Labs<'l>,
        lab: &'l Lab<'l>,
        settings: &[(&str, u64)],
        tls: bool,
        faults: Option<&str>,
    ) -> Result<Pair<'l>> {
        let scratch = Scratch::new(&labs.context.base)?;
        let database = scratch.path().join("bodies.db");
        create_database(&database)?;
        let site = Site::of_node(lab.wan(), NEAR)?.encrypted(tls);
        let primary = Instance::start_with(&site, labs.context, &scratch, "primary", settings, faults)?;
        primary.protect(std::slice::from_ref(&database))?;
        Ok(Pair { labs, lab, tls, standbys: Vec::new(), primary, database, scratch })
    }

    /// Creates and starts a standby on the far host; no redo is shipped yet.
    pub(in super::super) fn create_standby(&mut self, faults: Option<&str>) -> Result<()> {
        self.create_standby_at(FAR, StandbyOptions { faults, ..StandbyOptions::default() })
    }

    /// Creates and starts a standby on host `node`.
    pub(in super::super) fn create_standby_at(
        &mut self,
        node: &str,
        options: StandbyOptions<'_>,
    ) -> Result<()> {
        let site = Site::of_node(self.lab.wan(), node)?.encrypted(self.tls).behind(options.behind);
        let standby = self.primary.create_standby(&site, self.labs.context, &self.scratch, options)?;
        self.standbys.push(standby);
        Ok(())
    }

    /// Returns the standby that was created last; an error without one.
    pub(in super::super) fn standby(&self) -> Result<&Instance> {
        self.standbys.last().ok_or_else(|| BenchError::Workload("there is no standby".into()))
    }

    /// Adds the newest standby as a destination.
    pub(in super::super) fn ship(&self, mode: Mode, more: &[&str]) -> Result<()> {
        self.primary.add_destination(self.standby()?, mode, more)
    }

    /// Sets the newest standby as a destination with these attributes in the notation of LOG_ARCHIVE_DEST_n.
    pub(in super::super) fn ship_with(&self, mode: Mode, attributes: &str) -> Result<()> {
        self.primary.set_destination(self.standby()?, mode, attributes)
    }

    /// Waits until the newest standby receives live redo.
    pub(in super::super) fn await_follower(&self, mode: Mode) -> Result<()> {
        self.primary.await_follower(self.standby()?, mode)
    }

    /// Kills the newest standby; its host keeps running.
    pub(in super::super) fn kill_standby(&mut self) {
        if let Some(mut standby) = self.standbys.pop() {
            standby.kill();
        }
    }

    pub(in super::super) fn kill_primary(&mut self) {
        self.primary.kill();
    }

    /// Adds a member to the log of the newest standby, in a directory within the standby's own.
    pub(in super::super) fn add_log_member(&self, directory: &str) -> Result<()> {
        self.standby()?.add_log_member(directory)
    }

    /// Drops a member from the log of the newest standby.
    pub(in super::super) fn drop_log_member(&self, directory: &str) -> Result<()> {
        self.standby()?.drop_log_member(directory)
    }

    /// Stops apply at the newest standby.
    pub(in super::super) fn stop_apply(&self) -> Result<()> {
        self.standby()?.stop_apply()
    }

    /// Status of the newest standby at the primary.
    pub(in super::super) fn destination(&self) -> Result<Value> {
        self.primary.destination(self.standby()?)
    }

    pub(in super::super) fn database(&self) -> &Path {
        &self.database
    }

    pub(in super::super) fn primary(&self) -> &Instance {
        &self.primary
    }

    /// Starts an application that generates incompressible redo.
    pub(in super::super) fn load(&self, sessions: usize, bytes: usize, rate: Option<f64>) -> Result<Load> {
        self.load_of(Content::Noise, sessions, bytes, rate)
    }

    /// Starts an application with this content.
    pub(in super::super) fn load_of(
        &self,
        content: Content,
        sessions: usize,
        bytes: usize,
        rate: Option<f64>,
    ) -> Result<Load> {
        self.start_load(&Config { rate, content, ..self.load_config(sessions, bytes)? })
    }

    /// Configuration of an application that generates as much incompressible redo as it can.
    pub(in super::super) fn load_config(&self, sessions: usize, bytes: usize) -> Result<Config> {
        let remedy = "libstandfast.so is not beside this program: run `cargo build --release --workspace`";
        let extension = need(&self.labs.context.programs.extension, remedy)?.to_owned();
        Ok(Config {
            extension,
            database: self.database.clone(),
            sessions,
            bytes,
            rate: None,
            content: Content::Noise,
            lock_held_ms: None,
        })
    }

    /// Starts an application with this configuration.
    pub(in super::super) fn start_load(&self, config: &Config) -> Result<Load> {
        Load::start(&self.labs.context.worker, config)
    }

    /// Lets an application generate at least `bytes` bytes of redo, as fast as it can; returns where they begin and
    /// end.
    pub(in super::super) fn backlog(&self, bytes: f64) -> Result<(f64, f64)> {
        let from = self.of_primary("captured")?;
        let load = self.load(BACKLOG.0, BACKLOG.1, None)?;
        let made = interrupt::await_amount("redo of the primary", from + bytes, STANDSTILL, || {
            self.of_primary("captured")
        });
        if made.is_err() {
            eprintln!("status of the primary: {}", self.primary.status()?);
        }
        made?;
        load.stop()?;
        Ok((from, self.of_primary("captured")?))
    }

    /// Reads a position from the primary's status.
    pub(in super::super) fn of_primary(&self, name: &str) -> Result<f64> {
        position(&self.primary.status()?, name)
    }

    /// Reads the received or hardened position of the standby, and the time of the reading.
    pub(in super::super) fn of_standby(&self, name: &str) -> Result<(Instant, f64)> {
        let asked = Instant::now();
        let status = self.standby()?.status()?;
        // The answer is from some moment of the call; the middle is off by at most half of the call.
        Ok((asked + asked.elapsed() / 2, position(&status["standby"], name)?))
    }

    /// Waits until the standby has hardened redo up to `position`.
    pub(in super::super) fn await_hardened(&self, position: f64) -> Result<()> {
        interrupt::await_amount("redo on the standby", position, STANDSTILL, || {
            Ok(self.of_standby("hardened")?.1)
        })
    }

    /// Waits until the primary has archived all logs except the current one.
    fn await_archived(&self) -> Result<()> {
        interrupt::await_other("archived logs", TIMEOUT, || {
            let status = self.primary.status()?;
            let groups = status["log"]["groups"].as_array().into_iter().flatten();
            let mut full = groups.filter(|group| group["state"] != "unused" && group["state"] != "current");
            Ok(full.all(|group| group["archived"] == true))
        })
    }

    /// Switches the primary's log, and waits until all earlier logs are archived.
    pub(in super::super) fn archive(&self) -> Result<()> {
        self.primary.switch_log()?;
        self.await_archived()
    }
}

/// Reads a position, which may be text, because not every JSON reader keeps 64 bits.
fn position(status: &Value, name: &str) -> Result<f64> {
    let value = &status[name];
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    number.ok_or_else(|| BenchError::Unreadable {
        what: "the output of `standfast status --json`".into(),
        detail: format!("no `{name}` in {status}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_whether_they_are_numbers_or_text() {
        let status = serde_json::json!({"captured": 7, "hardened": "8", "received": null});
        assert_eq!(position(&status, "captured").unwrap(), 7.0);
        assert_eq!(position(&status, "hardened").unwrap(), 8.0);
        assert!(position(&status, "received").is_err());
    }
}
