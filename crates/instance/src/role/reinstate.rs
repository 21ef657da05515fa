//! Makes the primary that another one has replaced, or a standby that lacks redo which exists no more, a standby again,
//! without a full copy: only pages that differ from the primary's are fetched.
//!
//! Order of events, each durable before the next:
//!
//! 1. The redo is archived to its end: what only this instance has stays readable.
//! 2. The control file says that the databases count for nothing until this is done.
//! 3. Each database becomes the primary's, in one transaction.
//! 4. Archived logs with redo that is not the primary's move into a directory of their own.
//! 5. The standby log begins where the copies end.
//! 6. The control file says standby.
//!
//! An interruption after 2 leaves an instance that does not open; the command is run again, and fetches less.

mod branch;
mod copy;
mod lost_branch;
mod source;

use crate::role::create::begin_standby_log;
use crate::role::fence;
use crate::role::step_down;
use copy::Differences;
pub use copy::Progress;
use lost_branch::{LostBranch, archive_to_the_end, kind_of, set_lost_logs_aside};
use source::Source;
use standfast_environment::config::address::own_address;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::{Config, DestinationConfig};
use standfast_environment::context::environment::Environment;
use standfast_environment::creation::make_directory;
use standfast_environment::ship::members::note_members;
use standfast_environment::ship::sender_settings::transport_mode;
use standfast_environment::state::alert::AlertLog;
use standfast_environment::state::control::{Control, Reinstating, Role};
use standfast_environment::state::lock::lock_stopped;
use standfast_environment::state::modes;
use standfast_environment::state::paths::Paths;
use standfast_format::LogKind;
use standfast_io::DirectDisk;
use standfast_io::fault::{self, Fault};
use standfast_transport::{NewStandby, ask_to_follow, fetch_snapshot};
use standfast_types::{Hint, Scn};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What [`reinstate`] has done.
#[derive(Clone, Debug)]
pub struct Reinstated {
    /// The primary, and HOST:PORT of it.
    pub primary: String,
    pub address: String,
    /// Why the primary does not ship redo to this instance; `None`: it does.
    pub not_shipped: Option<String>,
    /// From where on redo is needed.
    pub start: Scn,
    /// Pages of all databases, and how many of them were fetched.
    pub pages: u64,
    pub fetched: u64,
    pub fetched_bytes: u64,
    /// Directory with the archived logs that are not the primary's, if there are any.
    pub lost_logs: Option<PathBuf>,
    /// Files that were databases of this instance and are none of the primary's: they stay as they are.
    pub unprotected: Vec<PathBuf>,
}

/// How a call of [`reinstate`] ended.
pub enum Outcome {
    /// What it would do, line by line: nothing was done.
    Plan(Vec<String>),
    Done(Box<Reinstated>),
}

/// Reinstates the instance in `directory`, which is stopped, as a standby of the primary at `from`, by default of the
/// one among its destinations; without `sure` only says what it would do.
///
/// # Errors
/// `Refused` when the instance runs, no other instance is a primary of a newer incarnation, or the databases cannot be
/// copied. The instance is then what it was, unless copying had begun: then it does not open until this has succeeded.
pub fn reinstate(
    directory: &Path,
    from: Option<&str>,
    sure: bool,
    progress: Progress<'_>,
) -> Result<Outcome, InstanceError> {
    let config = Config::load(directory)?;
    let paths = Paths::new(directory, &config)
        .map_err(InstanceError::io("find the instance directory", directory))?;
    let _lock = lock_stopped(&paths)?;
    let control = Control::load(&DirectDisk, &paths.control)?;
    if control.role == Role::FarSync {
        return Err(crate::role::far_sync::has_no_databases());
    }
    if control.snapshot.is_some() {
        return Err(InstanceError::refused(
            "this instance is a snapshot standby",
            "`standfast start`, then `standfast convert physical-standby --yes`, then `standfast stop`",
        ));
    }
    let alert = AlertLog::new(&paths.alert, &config)?;
    let environment = Environment::new(config, paths, Arc::new(DirectDisk), alert.clone(), control);
    let planned = Reinstatement::plan(environment, from)?;
    if !sure {
        return Ok(Outcome::Plan(planned.lines()));
    }
    planned.lines().into_iter().for_each(|line| alert.say(format!("reinstatement: {line}")));
    let done = planned
        .carry_out(progress)
        .inspect_err(|error| alert.say(format!("not reinstated: {}", error.in_one_line())));
    alert.flush();
    done.map(|done| Outcome::Done(Box::new(done)))
}

/// Whether an instance with this control file cannot open unless it is reinstated.
pub fn is_due(control: &Control) -> bool {
    control.reinstating.is_some() || control.role == Role::Primary && control.fenced.is_some()
}

/// A reinstatement that may be carried out. The directory of the instance is locked.
pub struct Reinstatement {
    environment: Arc<Environment>,
    source: Source,
    /// `None`: all redo here is the primary's.
    lost: Option<LostBranch>,
}

impl Reinstatement {
    /// Finds the primary, at `from` or among the destinations, and what only this instance has.
    ///
    /// # Errors
    /// `Refused` when there is no primary that this instance may follow.
    pub fn plan(environment: Environment, from: Option<&str>) -> Result<Reinstatement, InstanceError> {
        let source = Source::find(&environment, from)?;
        let parted = source.parted_at(&environment)?;
        let lost = parted.map(|begin| LostBranch::read(&environment, begin));
        Ok(Reinstatement { environment: Arc::new(environment), source, lost })
    }

    /// Says what will be done, for the operator.
    pub fn lines(&self) -> Vec<String> {
        let what = format!(
            "this {} becomes a standby of `{}` at {}; pages that differ are fetched from there",
            self.environment.of_control(|control| control.role),
            self.source.name,
            self.source.address
        );
        let nothing = || "all redo here is that of the primary: nothing is discarded".into();
        vec![what, self.lost.as_ref().map_or_else(nothing, LostBranch::text)]
    }

    /// Makes the instance a standby; see the module.
    ///
    /// # Errors
    /// See [`reinstate`].
    pub fn carry_out(&self, progress: Progress<'_>) -> Result<Reinstated, InstanceError> {
        let (environment, source) = (&self.environment, &self.source);
        let there = &source.identity.incarnations;
        self.give_up_databases()?;
        // Not before: files that are too small are made again.
        step_down::prepare(environment, source.logs)?;
        let mut differences = Differences::new(environment, there.clone(), progress);
        let own = &environment.config.instance.name;
        let start = fetch_snapshot(&source.address, &source.security, own, &mut differences)
            .map_err(|error| source.not_copied(&error))?;
        self.step()?;
        let unprotected = differences.unprotected();
        for record in &unprotected {
            let path = record.path.display();
            environment.alert.say(format!("no longer protected, and not at `{}`: {path}", source.name));
            environment.remove_marker(record)?;
        }
        let lost_logs = set_lost_logs_aside(environment, there)?;
        self.step()?;
        step_down::remove_apply_journal(environment)?;
        let (config, family) = (environment.log_config(LogKind::Standby), environment.control().family);
        let log = begin_standby_log(environment.disk.clone(), config, family, there, &start)?;
        note_members(environment, &log)?;
        self.step()?;
        let mut config = environment.config.clone();
        step_down::ship_only_as_primary(&mut config.destinations);
        let directory = &environment.paths.directory;
        config
            .store(environment.disk.as_ref(), directory)
            .map_err(InstanceError::io("write the configuration in", directory))?;
        let Differences { databases, rests, pages, fetched, fetched_bytes, .. } = differences;
        environment.update_control(|control| {
            control.enter(there, databases);
            control.begin_as_standby(start.start, rests);
        })?;
        environment.alert.say(format!(
            "reinstated as a standby of `{}` from SCN {}: {fetched} of {pages} pages were fetched",
            source.name, start.start
        ));
        Ok(Reinstated {
            primary: source.name.clone(),
            address: source.address.clone(),
            not_shipped: ask_for_redo(environment, source).err(),
            start: start.start,
            pages,
            fetched,
            fetched_bytes,
            lost_logs,
            unprotected: unprotected.into_iter().map(|record| record.path).collect(),
        })
    }

    /// From here on the databases count for nothing; what only this instance has is archived.
    fn give_up_databases(&self) -> Result<(), InstanceError> {
        let environment = &self.environment;
        make_directory(&environment.paths.databases, modes::DATABASES)?;
        match archive_to_the_end(environment) {
            // Redo that a standby cannot read is a reason to be reinstated.
            Err(error) if kind_of(environment) == LogKind::Standby => {
                environment.alert.say(format!("the redo here is not archived: {}", error.in_one_line()));
            }
            archived => archived?,
        }
        self.step()?;
        environment.update_control(|control| {
            // An earlier run has found out more: the redo was all there.
            let reinstating = control.reinstating.get_or_insert_with(|| Reinstating {
                protected_since: self.lost.as_ref().map_or_else(Vec::new, LostBranch::protected),
                ..Reinstating::default()
            });
            reinstating.primary = self.source.name.clone();
        })
    }

    /// A moment at which a test may stop the process.
    fn step(&self) -> Result<(), InstanceError> {
        let directory = &self.environment.paths.directory;
        fault::check(Fault::Reinstate).map_err(InstanceError::io("reinstate the instance in", directory))
    }
}

/// Asks the primary to ship redo, as this instance shipped to it before. Returns why it does not.
fn ask_for_redo(environment: &Environment, source: &Source) -> Result<(), String> {
    let config = &environment.config;
    if config.instance.listen.is_empty() {
        return Err("this instance does not listen".into());
    }
    let before = config.destinations.iter().find(|at| at.name == source.name);
    let before =
        before.cloned().unwrap_or_else(|| DestinationConfig::new(source.name.clone(), String::new()));
    let standby = NewStandby {
        name: config.instance.name.clone(),
        address: own_address(&config.instance.listen),
        mode: transport_mode(&before),
        net_timeout_ms: before.net_timeout_ms,
    };
    let asked = ask_to_follow(&source.address, &source.security, &standby, fence::SILENCE);
    asked.map_err(|error| error.to_string())
}
