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

/// Time for logs to be archived.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Redo that does not grow for so long does not grow at all.
pub(super) const STANDSTILL: Duration = Duration::from_secs(60);
/// The congestion control of both ends: one that every kernel has.
const CONGESTION: &str = "reno";
/// Sessions and bytes of a transaction that make a backlog.
const BACKLOG: (usize, usize) = (8, 256 << 10);

/// A link of so many milliseconds, with buffers that cover it at both ends and a queue that loses nothing: what limits
/// a stream is the rate alone, for us and for others.
pub(in super::super) fn open<'l>(labs: &'l Labs<'l>, rtt_ms: f64) -> Result<Lab<'l>> {
    let mut settings = link(rtt_ms, MEGABITS);
    settings.queue = deep_queue(&settings);
    let lab = open_as_it_is(labs, &[NEAR, FAR], settings)?;
    lab.set_ceilings(ample_buffer(&settings))?;
    Ok(lab)
}

/// A link between each two hosts, which have the socket buffers that systems come with.
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

/// See the module: a primary, and as many standbys as are made. All are stopped when it is dropped, the standbys first.
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
    /// A primary with one protected database, alone.
    pub(in super::super) fn start(labs: &'l Labs<'l>, lab: &'l Lab<'l>) -> Result<Pair<'l>> {
        Pair::start_with(labs, lab, &[], false)
    }

    /// A primary with that value of `STANDFAST_FAULT`.
    pub(in super::super) fn start_faulty(
        labs: &'l Labs<'l>,
        lab: &'l Lab<'l>,
        faults: Option<&str>,
    ) -> Result<Pair<'l>> {
        Pair::start_as(labs, lab, &[], false, faults)
    }

    /// With other values for settings, and connections over TLS or plain ones.
    pub(in super::super) fn start_with(
        labs: &'l Labs<'l>,
        lab: &'l Lab<'l>,
        settings: &[(&str, u64)],
        tls: bool,
    ) -> Result<Pair<'l>> {
        Pair::start_as(labs, lab, settings, tls, None)
    }

    /// With all of these.
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

    /// Creates a standby on the far host and starts it; nothing is shipped yet.
    pub(in super::super) fn create_standby(&mut self, faults: Option<&str>) -> Result<()> {
        self.create_standby_at(FAR, StandbyOptions { faults, ..StandbyOptions::default() })
    }

    /// Creates one more.
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

    /// The newest standby.
    pub(in super::super) fn standby(&self) -> Result<&Instance> {
        self.standbys.last().ok_or_else(|| BenchError::Workload("there is no standby".into()))
    }

    /// Makes the newest standby a destination.
    pub(in super::super) fn ship(&self, mode: Mode, more: &[&str]) -> Result<()> {
        self.primary.add_destination(self.standby()?, mode, more)
    }

    /// Makes the newest standby a destination with these attributes in the notation of LOG_ARCHIVE_DEST_n.
    pub(in super::super) fn ship_with(&self, mode: Mode, attributes: &str) -> Result<()> {
        self.primary.set_destination(self.standby()?, mode, attributes)
    }

    /// Waits until the newest standby receives live redo.
    pub(in super::super) fn await_follower(&self, mode: Mode) -> Result<()> {
        self.primary.await_follower(self.standby()?, mode)
    }

    /// Kills the newest standby; what was its host goes on without it.
    pub(in super::super) fn kill_standby(&mut self) {
        if let Some(mut standby) = self.standbys.pop() {
            standby.kill();
        }
    }

    /// Kills the primary.
    pub(in super::super) fn kill_primary(&mut self) {
        self.primary.kill();
    }

    /// Adds a member to the log of the newest standby, in a directory within its own.
    pub(in super::super) fn add_log_member(&self, directory: &str) -> Result<()> {
        self.standby()?.add_log_member(directory)
    }

    /// Drops it.
    pub(in super::super) fn drop_log_member(&self, directory: &str) -> Result<()> {
        self.standby()?.drop_log_member(directory)
    }

    /// Stops apply at the newest standby.
    pub(in super::super) fn stop_apply(&self) -> Result<()> {
        self.standby()?.stop_apply()
    }

    /// What the primary says of the newest standby.
    pub(in super::super) fn destination(&self) -> Result<Value> {
        self.primary.destination(self.standby()?)
    }

    /// The primary's database.
    pub(in super::super) fn database(&self) -> &Path {
        &self.database
    }

    /// The primary's process.
    pub(in super::super) fn primary(&self) -> &Instance {
        &self.primary
    }

    /// Starts an application that makes redo which nothing makes shorter.
    pub(in super::super) fn load(&self, sessions: usize, bytes: usize, rate: Option<f64>) -> Result<Load> {
        self.load_of(Content::Noise, sessions, bytes, rate)
    }

    /// Starts an application.
    pub(in super::super) fn load_of(
        &self,
        content: Content,
        sessions: usize,
        bytes: usize,
        rate: Option<f64>,
    ) -> Result<Load> {
        self.start_load(&Config { rate, content, ..self.load_config(sessions, bytes)? })
    }

    /// An application that makes as much redo as it can, which nothing makes shorter.
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

    /// Starts it.
    pub(in super::super) fn start_load(&self, config: &Config) -> Result<Load> {
        Load::start(&self.labs.context.worker, config)
    }

    /// Lets an application make so many bytes of redo at least, as fast as it can. Where they begin and end.
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

    /// A position of the primary's status.
    pub(in super::super) fn of_primary(&self, name: &str) -> Result<f64> {
        position(&self.primary.status()?, name)
    }

    /// What the standby has received or hardened, and when it said so.
    pub(in super::super) fn of_standby(&self, name: &str) -> Result<(Instant, f64)> {
        let asked = Instant::now();
        let status = self.standby()?.status()?;
        // The answer is from some moment of the call; the middle is off by half of it at most.
        Ok((asked + asked.elapsed() / 2, position(&status["standby"], name)?))
    }

    /// Waits until the standby has hardened redo up to there.
    pub(in super::super) fn await_hardened(&self, position: f64) -> Result<()> {
        interrupt::await_amount("redo on the standby", position, STANDSTILL, || {
            Ok(self.of_standby("hardened")?.1)
        })
    }

    /// Waits until the primary has archived all logs but the one that it writes.
    fn await_archived(&self) -> Result<()> {
        interrupt::await_other("archived logs", TIMEOUT, || {
            let status = self.primary.status()?;
            let groups = status["log"]["groups"].as_array().into_iter().flatten();
            let mut full = groups.filter(|group| group["state"] != "unused" && group["state"] != "current");
            Ok(full.all(|group| group["archived"] == true))
        })
    }

    /// Makes the primary begin another log, and waits until all before it are archived.
    pub(in super::super) fn archive(&self) -> Result<()> {
        self.primary.switch_log()?;
        self.await_archived()
    }
}

/// A position may be written as text, because not every reader of JSON keeps 64 bits.
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
