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

use crate::role::create::make_directory;
use crate::role::fence::{self, Other};
use crate::role::step_down;
use crate::role::switchover::{AS_PRIMARY, own_address};
use branch::{Relation, is_lost, relation};
use copy::Differences;
pub use copy::Progress;
use standfast_documents::Status;
use standfast_environment::config::destination_config::ValidFor;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::{CONFIG_FILE, Config, DestinationConfig};
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::archiving::archive_at_once;
use standfast_environment::ship::identity::peer_identity;
use standfast_environment::ship::members::note_members;
use standfast_environment::ship::sender_settings::transport_mode;
use standfast_environment::state::alert::AlertLog;
use standfast_environment::state::control::{Control, Incarnation, Reinstating, Role};
use standfast_environment::state::lock::lock_directory;
use standfast_environment::state::modes;
use standfast_environment::state::now::now_us;
use standfast_environment::state::paths::Paths;
use standfast_format::{LogKind, Record, StreamCrc, decode_record};
use standfast_io::DirectDisk;
use standfast_io::fault::{self, Fault};
use standfast_log::{LogIdentity, LogSwitch, RecordReader, RedoLog, archived_logs};
use standfast_transport as transport;
use standfast_transport::{
    Bystander, LogGeometry, Manifest, PeerIdentity, Security, SnapshotInfo, SnapshotSink, SnapshotStart,
    StageError, ask_to_follow, fetch_snapshot, fetch_status,
};
use standfast_types::{DatabaseId, Hint, PageNo, Scn, hint};
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

/// The primary that this instance is to follow.
struct Source {
    name: String,
    address: String,
    security: Security,
    identity: PeerIdentity,
    logs: LogGeometry,
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
    let _lock = lock_directory(&paths).map_err(|error| match error {
        InstanceError::AlreadyRunning { .. } => InstanceError::refused(
            "the instance runs",
            format!("stop it first: standfast stop -D {}", directory.display()),
        ),
        error => error,
    })?;
    let control = Control::load(&DirectDisk, &paths.control)?;
    if control.role == Role::FarSync {
        return Err(crate::role::far_sync::has_no_databases());
    }
    let alert = AlertLog::new(&paths.alert, &config)?;
    let environment = Environment::new(config, paths, Arc::new(DirectDisk), alert.clone(), control);
    let done = in_locked(&Arc::new(environment), from, sure, progress);
    alert.flush();
    done
}

/// Whether an instance with this control file cannot open unless it is reinstated.
pub fn is_due(control: &Control) -> bool {
    control.reinstating.is_some() || control.role == Role::Primary && control.fenced.is_some()
}

/// Reinstates the instance as its configuration says, before it is opened; the caller has locked its directory.
///
/// # Errors
/// As [`reinstate`].
pub fn before_start(environment: Environment) -> Result<(), InstanceError> {
    in_locked(&Arc::new(environment), None, true, &mut |_, _| ()).map(drop)
}

fn in_locked(
    environment: &Arc<Environment>,
    from: Option<&str>,
    sure: bool,
    progress: Progress<'_>,
) -> Result<Outcome, InstanceError> {
    let source = find_source(environment, from)?;
    let parted = parted_at(environment, &source)?;
    if !sure {
        return Ok(Outcome::Plan(plan(environment, &source, parted)));
    }
    let alert = &environment.alert;
    for line in plan(environment, &source, parted) {
        alert.say(format!("reinstatement: {line}"));
    }
    let done = carry_out(environment, &source, progress);
    match &done {
        Ok(done) => alert.say(format!(
            "reinstated as a standby of `{}` from SCN {}: {} of {} pages were fetched",
            done.primary, done.start, done.fetched, done.pages
        )),
        Err(error) => alert.say(format!("not reinstated: {}", error.in_one_line())),
    }
    done.map(|done| Outcome::Done(Box::new(done)))
}

/// Accepts the list of databases, and nothing else.
struct OnlyManifest(Option<Manifest>);

impl SnapshotSink for OnlyManifest {
    fn wants_databases(&self) -> bool {
        false
    }
    fn manifest(&mut self, manifest: &Manifest) -> Result<(), StageError> {
        self.0 = Some(manifest.clone());
        Ok(())
    }
    fn begin(&mut self, _: &transport::DatabaseInfo) -> Result<(), StageError> {
        Ok(())
    }
    fn pages(&mut self, _: DatabaseId, _: PageNo, _: &[u8]) -> Result<(), StageError> {
        Ok(())
    }
    fn end(&mut self, _: &SnapshotInfo) -> Result<(), StageError> {
        Ok(())
    }
}

/// Finds the primary: at `from`, else the newest one among the destinations.
fn find_source(environment: &Environment, from: Option<&str>) -> Result<Source, InstanceError> {
    let own = &environment.config.instance.name;
    let members = environment.keeper.members()?;
    // Its pages replace those here: they are taken only from a member that may be the primary.
    let candidates: Vec<String> = members.candidates().into_iter().filter(|name| name != own).collect();
    let asked: Vec<(String, Security)> = match from {
        Some(address) => vec![(address.to_owned(), environment.security().only(candidates))],
        None => {
            let remote = environment.config.destinations.iter().filter(|at| !at.is_local());
            let may =
                |name: &str| environment.config.instance.insecure || candidates.iter().any(|at| at == name);
            let remote = remote.filter(|at| may(&at.name));
            remote.map(|at| (at.address.clone(), environment.security().only([at.name.clone()]))).collect()
        }
    };
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for (address, security) in asked {
        let answer =
            fetch_status(&address, &security, false, fence::SILENCE).map_err(|error| error.to_string());
        match fence::judge(answer.clone()) {
            Other::Primary(incarnation) => {
                found.push((incarnation, address, security, answer.unwrap_or_default()))
            }
            Other::NotPrimary(state) => others.push(format!("{address} is no primary: {state}")),
            Other::Silent(why) => others.push(format!("{address} does not answer: {why}")),
        }
    }
    let newest = found.into_iter().max_by_key(|(incarnation, ..)| *incarnation);
    let Some((_, address, security, observation)) = newest else {
        others.push(if from.is_none() { "no destination is the primary".into() } else { String::new() });
        others.retain(|text| !text.is_empty());
        let hint = format!(
            "name the primary: standfast reinstate -D {} --from HOST:PORT",
            environment.paths.directory.display()
        );
        return Err(InstanceError::refused(
            format!("the primary was not found: {}", others.join("; ")),
            hint,
        ));
    };
    let status = Status::in_observation(&observation)
        .map_err(|_| InstanceError::Failed(format!("the answer of {address} cannot be read")))?;
    let no_logs = || InstanceError::Failed(format!("{address} does not say which redo logs it has"));
    let logs = status.log.and_then(|log| {
        let (group_bytes, block_bytes) = (log.group_bytes?, log.block_bytes? as usize);
        Some(LogGeometry { groups: log.groups?.len(), group_bytes, block_bytes })
    });
    let logs = logs.ok_or_else(no_logs)?;
    let mut sink = OnlyManifest(None);
    fetch_snapshot(&address, &security, own, &mut sink).map_err(|error| not_copied(&address, &error))?;
    let identity = sink.0.map(|manifest| manifest.source).ok_or_else(no_logs)?;
    Ok(Source { name: identity.name.clone(), address, security, identity, logs })
}

fn not_copied(address: &str, error: &transport::TransportError) -> InstanceError {
    let text = error.to_string();
    let (why, hint) = hint::split(&text);
    InstanceError::refused(
        format!("the databases cannot be copied from {address}: {why}"),
        hint.unwrap_or("the alert logs of both say more; then run this again"),
    )
}

/// Returns where the redo here and that of the primary part; `None`: the redo here is all the primary's.
fn parted_at(environment: &Environment, source: &Source) -> Result<Option<Scn>, InstanceError> {
    let control = environment.control();
    let own = peer_identity(environment, control.role.of_peer());
    let refused = |what: String, hint: String| Err(InstanceError::refused(what, hint));
    if control.trust.disowns(&source.identity.incarnations) {
        return refused(
            format!(
                "`{}` follows an incarnation that was disowned here when a fence was lifted",
                source.name
            ),
            "name another primary: --from".into(),
        );
    }
    let fenced_by = control.trust.fenced_by.as_ref().map(|by| (by.incarnation.number, by.incarnation.id));
    let known = control.known_incarnations().last().map(|known| (known.number, known.id));
    for (number, id) in fenced_by.into_iter().chain(known) {
        let newest = source.identity.incarnations.last().map_or(0, |newest| newest.number);
        let follows = source.identity.incarnations.iter().any(|there| there.id == id);
        if !follows && newest <= number && own.incarnations.iter().all(|here| here.id != id) {
            return refused(
                format!(
                    "`{}` is itself replaced: incarnation {number}, which this instance has met, is newer",
                    source.name
                ),
                "name the primary of that incarnation: --from".into(),
            );
        }
    }
    if source.identity.family.unwrap_or(source.identity.instance) != control.family {
        let what = format!("{} is no instance of this family", source.address);
        return refused(what, "look at the address; --from names another one".into());
    }
    match relation(&own.incarnations, &source.identity.incarnations) {
        Relation::Parted(branch) => Ok(Some(branch)),
        Relation::Same if control.role == Role::Standby => Ok(None),
        Relation::Same => refused(
            format!(
                "`{}` is the primary of the incarnation of this one, which is a primary, too",
                source.name
            ),
            "one of the two directories is a copy of the other: remove the copy".into(),
        ),
        Relation::Newer => refused(
            format!("this instance is not older than `{}`", source.name),
            format!(
                "if `{}` is to follow this one, run `standfast reinstate` there; which one counts is your decision",
                source.name
            ),
        ),
        Relation::Unrelated => refused(
            format!("`{}` has another history than this instance from the beginning", source.name),
            "create this standby again: standfast standby create".into(),
        ),
    }
}

fn plan(environment: &Environment, source: &Source, parted: Option<Scn>) -> Vec<String> {
    let mut lines = vec![format!(
        "this {} becomes a standby of `{}` at {}; pages that differ are fetched from there",
        environment.control().role,
        source.name,
        source.address
    )];
    match parted {
        None => lines.push("all redo here is that of the primary: nothing is discarded".into()),
        Some(branch) => lines.push(match only_here(environment, branch) {
            Ok(0) => format!("no commit is only here: the redo ends where the primary's branches off, at SCN {branch}"),
            Ok(commits) => format!(
                "{commits} commits after SCN {branch} are only here: they are DISCARDED in the databases, and stay in archived logs"
            ),
            Err(error) => format!(
                "commits after SCN {branch} are DISCARDED; how many is not known: {}",
                error.in_one_line()
            ),
        }),
    }
    lines
}

/// Counts the commits in the redo here from `branch` on.
fn only_here(environment: &Environment, branch: Scn) -> Result<u64, InstanceError> {
    let mut commits = 0;
    for_each_record(environment, branch, |record| {
        commits += u64::from(matches!(record, Record::Commit { .. }))
    })?;
    Ok(commits)
}

/// Returns the databases that were protected here after the histories parted, as far as the redo can be read.
fn protected_since(environment: &Environment, there: &[transport::Incarnation]) -> Vec<DatabaseId> {
    let own = peer_identity(environment, Role::Standby.of_peer()).incarnations;
    let mut protected = Vec::new();
    if let Relation::Parted(branch) = relation(&own, there) {
        let read = for_each_record(environment, branch, |record| {
            if let Record::Attach(attach) = record {
                protected.push(attach.database);
            }
        });
        if let Err(error) = read {
            environment.alert.say(format!("redo after SCN {branch} cannot be read: {}", error.in_one_line()));
        }
    }
    protected
}

fn for_each_record(
    environment: &Environment,
    from: Scn,
    mut take: impl FnMut(&Record<'_>),
) -> Result<(), InstanceError> {
    let kind = kind_of(environment);
    let (log, recovered) = RedoLog::look(environment.disk.clone(), environment.log_config(kind))?;
    if recovered.end <= from {
        return Ok(());
    }
    let mut reader = RecordReader::new(log, from, recovered.end);
    while let Some((bytes, _)) = reader.next_record()? {
        if let Ok((record, _)) = decode_record(bytes) {
            take(&record);
        }
    }
    Ok(())
}

/// The log in which the newest redo of this instance is.
fn kind_of(environment: &Environment) -> LogKind {
    match environment.of_control(|control| control.role) {
        Role::Primary => LogKind::Online,
        Role::Standby | Role::FarSync => LogKind::Standby,
    }
}

/// A moment at which a test may stop the process.
fn step() -> std::io::Result<()> {
    fault::check(Fault::Reinstate)
}

fn carry_out(
    environment: &Arc<Environment>,
    source: &Source,
    progress: Progress<'_>,
) -> Result<Reinstated, InstanceError> {
    let failed = || InstanceError::io("reinstate the instance in", &environment.paths.directory);
    let there = &source.identity.incarnations;
    make_directory(&environment.paths.databases, modes::DATABASES)?;
    match archive_to_the_end(environment) {
        // Redo that a standby cannot read is a reason to be reinstated.
        Err(error) if kind_of(environment) == LogKind::Standby => {
            environment.alert.say(format!("the redo here is not archived: {}", error.in_one_line()));
        }
        archived => archived?,
    }
    let protected_since = protected_since(environment, there);
    step().map_err(failed())?;
    environment.update_control(|control| {
        let new = Reinstating { protected_since, ..Reinstating::default() };
        let reinstating = control.reinstating.get_or_insert(new);
        reinstating.primary = source.name.clone();
    })?;
    // Not before: files that are too small are made again.
    step_down::prepare(environment, source.logs)?;
    let mut differences = Differences::new(environment, there.clone(), progress);
    let own = &environment.config.instance.name;
    let start = fetch_snapshot(&source.address, &source.security, own, &mut differences);
    let start = start.map_err(|error| not_copied(&source.address, &error))?;
    step().map_err(failed())?;
    let unprotected = differences.unprotected();
    for record in &unprotected {
        environment.alert.say(format!(
            "no longer protected, and not at `{}`: {}",
            source.name,
            record.path.display()
        ));
        environment.remove_marker(record)?;
    }
    let lost_logs = set_lost_logs_aside(environment, there)?;
    step().map_err(failed())?;
    begin_standby_log(environment, there, &start)?;
    step().map_err(failed())?;
    ship_only_as_primary(environment)?;
    let Differences { databases, rests, pages, fetched, fetched_bytes, .. } = differences;
    environment.update_control(|control| {
        control.databases = databases;
        control.resting_files = rests;
        become_standby(control, there, start.start);
    })?;
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

/// Asks the primary to ship redo, as this instance shipped to it before. Returns why it does not.
fn ask_for_redo(environment: &Environment, source: &Source) -> Result<(), String> {
    let config = &environment.config;
    if config.instance.listen.is_empty() {
        return Err("this instance does not listen".into());
    }
    let before = config.destinations.iter().find(|at| at.name == source.name);
    let before =
        before.cloned().unwrap_or_else(|| DestinationConfig::new(source.name.clone(), String::new()));
    let standby = Bystander {
        name: config.instance.name.clone(),
        address: own_address(&config.instance.listen),
        mode: transport_mode(&before),
        net_timeout_ms: before.net_timeout_ms,
    };
    let asked = ask_to_follow(&source.address, &source.security, &standby, fence::SILENCE);
    asked.map_err(|error| error.to_string())
}

/// Archives the redo to its end. What a standby has beyond a gap is of no use, and void.
fn archive_to_the_end(environment: &Environment) -> Result<(), InstanceError> {
    if environment.of_control(|control| control.gap.is_some()) {
        return Ok(());
    }
    let config = environment.log_config(kind_of(environment));
    let (log, mut writer, recovered) = RedoLog::open(environment.disk.clone(), config)?;
    // The databases here will not be recovered from it.
    log.set_checkpoint(recovered.end);
    archive_at_once(&log)?;
    if writer.group_is_empty() {
        return Ok(());
    }
    if let Err(blocked) = writer.switch(now_us())? {
        let what = format!("the last redo log cannot be archived: {blocked:?}");
        return Err(InstanceError::refused(
            what,
            "make room on the volume of the archived logs, then run this again",
        ));
    }
    Ok(archive_at_once(&log)?)
}

/// Moves archived logs with redo that is not the primary's out of the way of those of the new incarnation.
fn set_lost_logs_aside(
    environment: &Environment,
    there: &[transport::Incarnation],
) -> Result<Option<PathBuf>, InstanceError> {
    let control = environment.control();
    let (disk, archive) = (environment.disk.as_ref(), &environment.paths.archive);
    let incarnation = control.incarnation();
    let aside = archive.join(format!("lost-{}-{}", incarnation.number, incarnation.id));
    for log in archived_logs(disk, archive, Some(control.family))? {
        let (header, Some(name)) = (&log.header, log.path.file_name()) else { continue };
        if is_lost(header.incarnation_id, header.next_scn, there) {
            make_directory(&aside, modes::PRIVATE_DIRECTORY)?;
            let to = aside.join(name);
            disk.rename(&log.path, &to).map_err(InstanceError::io("move the archived log", &log.path))?;
        }
    }
    Ok(aside.is_dir().then_some(aside))
}

fn begin_standby_log(
    environment: &Arc<Environment>,
    there: &[transport::Incarnation],
    start: &SnapshotStart,
) -> Result<(), InstanceError> {
    step_down::remove_apply_journal(environment)?;
    let entered = transport::incarnation_of(there, &start.log)
        .ok_or_else(|| InstanceError::Failed("the primary names no incarnation".into()))?;
    let identity = LogIdentity {
        instance: environment.control().family,
        incarnation: entered.number,
        incarnation_id: entered.id,
    };
    let switch = LogSwitch {
        sequence: start.log.sequence,
        first_scn: start.start,
        time_us: start.log.time_us,
        first_record: 0,
    };
    let config = environment.log_config(LogKind::Standby);
    let (log, _writer) =
        RedoLog::start(environment.disk.clone(), config, identity, switch, StreamCrc(start.crc))?;
    note_members(environment, &log)
}

/// From now on the destinations are in use when this instance is the primary again.
fn ship_only_as_primary(environment: &Environment) -> Result<(), InstanceError> {
    let mut config = environment.config.clone();
    let undecided = config.destinations.iter_mut().filter(|at| at.valid_for == ValidFor::default());
    undecided.for_each(|at| at.valid_for = AS_PRIMARY);
    if config.destinations == environment.config.destinations {
        return Ok(());
    }
    let path = environment.paths.directory.join(CONFIG_FILE);
    environment
        .disk
        .replace(&path, config.to_toml().as_bytes())
        .map_err(InstanceError::io("write the configuration", &path))
}

/// The databases are copies of the primary's, and redo follows from `start` on.
fn become_standby(control: &mut Control, there: &[transport::Incarnation], start: Scn) {
    let known = std::mem::take(&mut control.incarnations);
    let time_us = |id| known.iter().find(|known| known.id == id).map_or(0, |known| known.time_us);
    control.incarnations = there
        .iter()
        .map(|at| Incarnation { number: at.number, id: at.id, branch: at.branch, time_us: time_us(at.id) })
        .collect();
    let next = control.databases.iter().map(|record| record.id.0 + 1).max().unwrap_or(1);
    control.next_database = control.next_database.max(next);
    control.role = Role::Standby;
    control.checkpoint = start;
    (control.upstream, control.gap, control.lost) = (None, None, None);
    (control.fenced, control.superseded_by, control.trust.fenced_by) = (None, None, None);
    control.reinstating = None;
    control.replays.clear();
    control.offline.clear();
    control.whole_files.clear();
    control.known_files.clear();
    control.owed_images.clear();
    control.file_swaps.clear();
    control.detached.clear();
    control.differing.clear();
    control.verify_due_us = None;
    (control.copied, control.clean) = (true, true);
}
