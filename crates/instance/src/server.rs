//! Life cycle of an instance process: lock, start, control socket, signals, stop.
//!
//! The control socket takes one JSON line per connection and answers with one: `{"ok":...}` or
//! `{"error":...,"hint":...,"code":n}`; only the rows of views follow that line as bytes. The file permissions of the
//! socket decide who may connect, and [`crate::rights`] what a request needs beyond that.

use crate::alert::AlertLog;
use crate::config::{Config, DestinationConfig};
use crate::control::{Control, FileStamp, LastingIdentity};
use crate::control_connections::{
    Connections, LOOKING_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_TIMEOUT, Served, read_request,
};
use crate::control_socket;
use crate::descriptors::raise_limit;
use crate::destination_config::State;
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::group::Access;
use crate::lock::{is_locked, lock_directory, show_alive};
use crate::log_changes::LogChange;
use crate::modes;
use crate::paths::Paths;
use crate::process::{block_signals, notify_service_manager, stop_this_process, wait_for_signal};
use crate::resolve::Keep;
use crate::rights::{Administrators, Peer};
use crate::running::{Running, TakenOver};
use crate::runtime;
use crate::security::Ask;
use crate::verification::Wanted;
use crate::view_request;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use standfast_io::{DirectDisk, outside};
use standfast_transport::Rights;
use standfast_transport::protection::ProtectionMode;
use standfast_types::Scn;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A request to a running instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    Status,
    /// Everything observable, optionally including the standbys, as JSON.
    Observe {
        #[serde(default)]
        history: bool,
        /// Include the answers of the standbys.
        #[serde(default)]
        standbys: bool,
    },
    /// The rows of a V$ view; they follow the answer, see [`crate::view_request`].
    View {
        name: String,
    },
    Snapshot,
    Stop,
    /// Protect a database or a directory of them.
    Protect {
        /// File or directory, absolute.
        path: PathBuf,
        name: Option<String>,
    },
    Unprotect {
        /// Name or absolute path.
        name: String,
    },
    /// Show what the file of an offline database and its redo would each lose, and decide for one of them.
    Resolve {
        /// Name or absolute path.
        name: String,
        /// What counts; `None`: only show.
        keep: Option<Keep>,
    },
    /// The files that were set aside.
    Kept,
    /// Remove a file that was set aside.
    RemoveKept {
        file: String,
    },
    SwitchLogfile,
    /// Change groups or members of the redo log.
    ChangeLog {
        /// See [`LogChange`].
        change: LogChange,
    },
    /// Register an archived log that was copied to this standby by hand.
    RegisterLogfile {
        /// Path of the log, absolute.
        path: PathBuf,
    },
    Checkpoint,
    /// Begin a verification against the standbys.
    Verify {
        /// Database by name or absolute path; `None`: all.
        database: Option<String>,
        /// Send the pages that differ.
        repair: bool,
        /// Bytes read per second; `None`: as configured.
        bytes_per_s: Option<u64>,
    },
    /// Progress and findings of the newest verification.
    Verification,
    Failover {
        /// How long to wait for redo that its source still has, seconds.
        #[serde(default)]
        wait_s: Option<u64>,
        /// Even if databases have to be excluded.
        #[serde(default)]
        force: bool,
    },
    Apply {
        on: bool,
        /// Apply without the configured delay.
        no_delay: bool,
    },
    SetDestination {
        destination: Box<DestinationConfig>,
        /// Connect to it first, and change nothing when that fails.
        #[serde(default)]
        connect: bool,
    },
    /// Remove the destination with this number, if there is one.
    ClearDestination {
        id: u8,
    },
    SetDestinationState {
        name: String,
        state: State,
    },
    ListDestinations,
    /// Show or change the protection mode.
    ProtectionMode {
        /// New mode; `None`: only show it.
        mode: Option<ProtectionMode>,
    },
    /// Make a token with which a host may join.
    IssueToken {
        /// Name under which the host joins.
        name: String,
        rights: Rights,
        /// Validity of the token, seconds.
        ttl_s: u64,
    },
    /// Renew the certificate now, over an open stream to the issuer if there is one.
    RenewCertificate,
    /// Put a host on the allow-list by hand.
    AllowMember {
        name: String,
        rights: Rights,
    },
    /// Remove all rights of a host.
    RemoveMember {
        name: String,
    },
    RemoveDestination {
        name: String,
    },
}

/// Timeout for a client to read the answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a command waits for an instance that is starting: recovery may take a while.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a command waits for the process of an instance to appear.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the instance in `directory` until SIGTERM, SIGINT or a stop request. `until_scn`: see
/// [`Environment::until_scn`]. `adopt`: `directory` is a copy that replaces the original.
///
/// # Errors
/// When it cannot be started or stopped cleanly; `Reported` once the error is in the alert log and on stderr.
pub fn run(directory: &Path, until_scn: Option<Scn>, adopt: bool) -> Result<(), InstanceError> {
    let signals = block_signals();
    let config = Config::load(directory)?;
    let mut paths = Paths::new(directory, &config)
        .map_err(InstanceError::io("find the instance directory", directory))?;
    paths.runtime = runtime::place(&paths);
    let _lock = lock_directory(&paths)?;
    let tightened = modes::tighten(&paths, &config)?;
    let _alive = show_alive(&paths.directory)?;
    let _ = std::fs::remove_file(&paths.ready);
    raise_limit();
    let mut control = Control::load(&DirectDisk, &paths.control)?;
    settle(&paths, &mut control, adopt)?;
    paths.shared_memory = runtime::other_name(&paths, control.instance)
        .map_err(InstanceError::io("choose a name for the shared memory of", directory))?;
    crate::log_layout::check_configuration(&config, &control)?;
    let alert = AlertLog::new(&paths.alert, &config)?;
    alert.end_with_any_thread();
    tightened.into_iter().for_each(|line| alert.say(line));
    if let Some((owner, _)) = modes::service_user(directory)? {
        alert.say(format!("RUNS AS ROOT in a directory of uid {owner}, as --allow-root says: what this instance makes is root's"));
    }
    let outcome = serve(config, &paths, control, &signals, until_scn, &alert);
    if let Err(error) = &outcome {
        alert.print(&format!("error: {error}"));
    }
    alert.flush();
    outcome.map_err(|error| InstanceError::Reported { code: error.exit_code() })
}

/// Runs the instance whose directory is locked.
fn serve(
    config: Config,
    paths: &Paths,
    control: Control,
    signals: &libc::sigset_t,
    until_scn: Option<Scn>,
    alert: &AlertLog,
) -> Result<(), InstanceError> {
    alert.say(format!(
        "starting {} {} as {}",
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        control.role
    ));
    let cannot_start = |error: &InstanceError| alert.say(format!("cannot start: {error}"));
    let _runtime = runtime::open(paths, control.instance).inspect_err(cannot_start)?;
    if let Some(path) = &paths.shared_memory {
        alert.say(format!(
            "the shared memory is {}, because another user had made a file of its usual name | hint: a directory that only the \
             user of the instance can write to, `runtime_directory` in [instance], keeps others from that",
            path.display()
        ));
    }
    if let Some(armed) = standfast_io::fault::armed_by() {
        alert.say(format!("FAULT POINTS ARMED: {armed}; this instance fails on purpose, for tests only"));
    }
    if config.instance.insecure {
        alert.say(crate::security::INSECURE);
    }
    let mut environment =
        Environment::new(config, paths.clone(), Arc::new(DirectDisk), alert.clone(), control);
    environment.until_scn = until_scn;
    let environment = Arc::new(environment);
    environment.say_unlisted();
    let running = Running::start(environment.clone()).inspect_err(cannot_start)?;
    let access = environment.access()?;
    access.told().into_iter().for_each(|text| alert.say(text));
    let server = serve_sockets(&running, paths, access)?;
    outside::replace(&paths.ready, format!("{}\n", std::process::id()).as_bytes(), modes::FILE)
        .map_err(InstanceError::io("write", &paths.ready))?;
    notify_service_manager("READY=1");

    while wait_for_signal(signals) == libc::SIGHUP {
        alert.say("SIGHUP: the alert log is opened again for every line; the instance continues");
    }
    notify_service_manager("STOPPING=1");
    let _ = std::fs::remove_file(&paths.ready);
    let _ = std::fs::remove_file(&paths.socket);
    drop(server);
    running.stop()?;
    match running.stops_for() {
        Some(why) => {
            let hint = "bring a standby back and start this instance again, or choose another mode with `standfast \
                        protection-mode` as soon as it runs";
            Err(InstanceError::refused(format!("stopped for the safety of the data: {why}"), hint))
        }
        None => Ok(()),
    }
}

/// Refuses a copy of an instance directory: it is the same instance a second time, with the same shared memory and,
/// where paths are absolute, the same files. Records the identity of the directory if none is recorded, or if it is
/// adopted.
fn settle(paths: &Paths, control: &mut Control, adopt: bool) -> Result<(), InstanceError> {
    let found = LastingIdentity::of(&paths.directory)
        .map_err(InstanceError::io("look at the directory", &paths.directory))?;
    match control.home {
        Some(home) if home.may_be(&found) => return Ok(()),
        Some(_) if !adopt => {
            return Err(InstanceError::refused(
                format!(
                    "{} is a copy of an instance directory, not the one it was made in",
                    paths.directory.display()
                ),
                "for a further standby run `standfast standby create`; if the original is gone for good and this copy takes \
                 its place, `standfast start --adopt`",
            ));
        }
        Some(_) => {
            control.home = Some(found);
            // The database files may be copies like the directory, with other times; their pages are compared with the
            // redo.
            control.known_files.clear();
            control.resting_files.clear();
            for whole in &mut control.whole_files {
                let record = control.databases.iter().find(|record| record.id == whole.database);
                if let Some(stamp) = record.and_then(|record| FileStamp::of(&DirectDisk, &record.path)) {
                    whole.stamp = stamp;
                }
            }
        }
        None => control.home = Some(found),
    }
    control.store(&DirectDisk, &paths.control)
}

struct SocketServer {
    path: PathBuf,
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve_sockets(
    running: &Arc<Running>,
    paths: &Paths,
    access: Access,
) -> Result<Vec<SocketServer>, InstanceError> {
    let connections = Connections::default();
    paths.sockets().map(|path| serve_socket(running, path, access, connections.clone())).collect()
}

fn serve_socket(
    running: &Arc<Running>,
    path: PathBuf,
    access: Access,
    connections: Connections,
) -> Result<SocketServer, InstanceError> {
    let _ = std::fs::remove_file(&path);
    let listener = control_socket::listen(&path, access.mode_before())
        .map_err(InstanceError::io("listen on the control socket", &path))?;
    access.give_socket(&path)?;
    let running = running.clone();
    let administrators = Administrators::of_this_process();
    let run = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Most likely no descriptor is left.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let Ok(peer) = Peer::of(&stream) else { continue };
            match connections.begin(peer, administrators.has(peer)) {
                Ok(served) => {
                    let running = running.clone();
                    let serve = move || answer(&running, &stream, peer, administrators, served);
                    let _ = std::thread::Builder::new().name("control".into()).spawn(serve);
                }
                Err(full) => {
                    let error =
                        InstanceError::refused(full.text(peer), "end some of them, or try again later");
                    let _ = stream.set_nonblocking(true);
                    let _ = writeln!(&stream, "{}", refusal(&error));
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("control-accept".into())
        .spawn(run)
        .map_err(InstanceError::io("begin the thread of the control socket", &path))?;
    Ok(SocketServer { path })
}

/// Serves one connection, which counts as open until `_served` is dropped.
fn answer(
    running: &Arc<Running>,
    stream: &UnixStream,
    peer: Peer,
    administrators: Administrators,
    _served: Served,
) {
    let bytes_max = if administrators.has(peer) { REQUEST_BYTES_MAX } else { LOOKING_BYTES_MAX };
    let line = match read_request(stream, bytes_max, REQUEST_TIMEOUT) {
        Ok(Some(line)) => Ok(line),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            let what = format!("malformed request: not a line of at most {bytes_max} bytes");
            Err(InstanceError::refused(what, "use the standfast command"))
        }
        _ => return,
    };
    let request = line.and_then(|line| {
        let malformed = |error| {
            InstanceError::refused(format!("malformed request: {error}"), "use the standfast command")
        };
        let request = serde_json::from_str::<Request>(&line).map_err(malformed)?;
        administrators.check(peer, &request)?;
        Ok(request)
    });
    let answer = match request {
        Ok(Request::View { name }) => view_request::rows(running, &name).map(|rows| (json!("rows"), rows)),
        Ok(request) => carry_out(running, request).map(|value| (value, Vec::new())),
        Err(error) => Err(error),
    };
    let (text, rows) = match answer {
        Ok((value, rows)) => (json!({ "ok": value }), rows),
        Err(error) => (refusal(&error), Vec::new()),
    };
    // A client that does not read must not keep the rows in memory forever.
    let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let _ = writeln!(&*stream, "{text}").and_then(|()| (&*stream).write_all(&rows));
}

fn refusal(error: &InstanceError) -> Value {
    let text = error.to_string();
    let (what, hint) =
        text.split_once("\nhint: ").map_or((text.as_str(), None), |(what, hint)| (what, Some(hint)));
    json!({ "error": what, "hint": hint, "code": error.exit_code() })
}

fn carry_out(running: &Arc<Running>, request: Request) -> Result<Value, InstanceError> {
    Ok(match request {
        Request::Status => crate::status::status(running),
        Request::Observe { history, standbys } => json!(crate::observe::observe(running, history, standbys)),
        // The rows are not JSON; answer() sends them.
        Request::View { .. } => json!("rows"),
        Request::Snapshot => json!({ "snapshot": running.snapshots.take(running)? }),
        Request::Stop => {
            stop_this_process();
            json!("stopping")
        }
        Request::Protect { path, name } => json!({ "protected": running.protect(&path, name.as_deref())? }),
        Request::Unprotect { name } => json!({ "unprotected": running.unprotect(&name)? }),
        Request::Resolve { name, keep } => running.resolve(&name, keep)?,
        Request::Kept => json!({ "kept": crate::kept::sorted(running.kept_files()) }),
        Request::RemoveKept { file } => json!({ "removed": running.remove_kept(&file)? }),
        Request::SwitchLogfile => json!({ "sequence": running.switch_logfile()? }),
        Request::ChangeLog { change } => running.change_log(change)?,
        Request::RegisterLogfile { path } => {
            let registered = running.register_logfile(&path)?;
            json!({ "sequence": registered.sequence, "end": registered.end })
        }
        Request::Checkpoint => {
            json!({ "remaining": running.checkpoint()? })
        }
        Request::Verify { database, repair, bytes_per_s } => {
            let wanted = Wanted { database, repair, bytes_per_s, scheduled: false };
            json!({ "run": running.verify(&wanted)? })
        }
        Request::Verification => json!(running.verification().progress()),
        Request::Apply { on, no_delay } => {
            running.control_apply(on, no_delay)?;
            json!(if on { "apply started" } else { "apply stopped" })
        }
        Request::Failover { wait_s, force } => {
            let timeout = wait_s.map_or(crate::drain::TIMEOUT, Duration::from_secs);
            let TakenOver { branch, drained, known, left_out, differing } =
                running.failover(timeout, force)?;
            let drained = drained.map(|(complete, text)| json!({ "complete": complete, "text": text }));
            let left_out: Vec<_> = left_out
                .iter()
                .map(|left_out| {
                    json!({
                        "database": left_out.database,
                        "applied": left_out.applied,
                        "reason": left_out.reason,
                        "redo_from": left_out.redo_from,
                        "text": left_out.text(),
                        "remedy": left_out.remedy(),
                    })
                })
                .collect();
            let known = known.map(|(complete, text)| json!({ "complete": complete, "text": text }));
            json!({
                "branch": branch,
                "drained": drained,
                "known": known,
                "left_out": left_out,
                "differing": differing,
            })
        }
        Request::SetDestination { destination, connect: true } => {
            let name = destination.name.clone();
            let found = running.add_destination(*destination)?;
            json!({ "destination": name, "found": found })
        }
        Request::SetDestination { destination, connect: false } => {
            let name = destination.name.clone();
            running.set_destination(*destination)?;
            json!({ "destination": name })
        }
        Request::ClearDestination { id } => {
            running.clear_destination(id)?;
            json!({ "cleared": id })
        }
        Request::SetDestinationState { name, state } => {
            running.set_destination_state(&name, state)?;
            json!({ "destination": name })
        }
        Request::ListDestinations => running.list_destinations(),
        Request::ProtectionMode { mode } => {
            mode.map_or(Ok(()), |mode| running.set_protection_mode(mode))?;
            let (mode, level) = running.protection();
            json!({ "mode": mode, "level": level })
        }
        Request::IssueToken { name, rights, ttl_s } => {
            let environment = &running.environment;
            let token = environment.keeper.issue_token(&name, rights.clone(), ttl_s)?;
            environment
                .alert
                .say(format!("a token for `{name}` was made, good for {ttl_s} s: it may {rights}"));
            json!({ "token": token.reveal() })
        }
        Request::RenewCertificate => {
            let told = running.environment.keeper.renew(&Ask::default())?;
            json!({ "told": told })
        }
        Request::AllowMember { name, rights } => {
            running.environment.keeper.allow(&name, rights.clone())?;
            running.environment.alert.say(format!("`{name}` is listed by hand: it may {rights}"));
            json!({ "listed": name })
        }
        Request::RemoveMember { name } => {
            let environment = &running.environment;
            environment.keeper.remove(&name, &environment.destination_names())?;
            running.environment.alert.say(format!("`{name}` has no rights here any more"));
            json!({ "removed": name })
        }
        Request::RemoveDestination { name } => {
            running.remove_destination(&name)?;
            json!({ "removed": name })
        }
    })
}

/// Sends a request to the instance in `directory` and returns its answer.
///
/// # Errors
/// `NotRunning`, or the error that the instance answered.
pub fn ask(directory: &Path, request: &Request) -> Result<Value, InstanceError> {
    Ok(ask_and_continue(directory, request)?.0)
}

/// Does [`ask`] and also returns the reader for what follows the answer.
pub(crate) fn ask_and_continue(
    directory: &Path,
    request: &Request,
) -> Result<(Value, BufReader<UnixStream>), InstanceError> {
    // A user with the right to look may be unable to read the configuration; nothing in it is needed here.
    let config = match Config::load(directory) {
        Err(error) if error.is_denied() => Config::default(),
        loaded => loaded?,
    };
    let paths = Paths::new(directory, &config)
        .map_err(InstanceError::io("find the instance directory", directory))?;
    let gone = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => may_not_connect(&paths),
        _ => InstanceError::NotRunning { directory: paths.directory.clone() },
    };
    let stream =
        connect(&paths, !matches!(request, Request::Status | Request::Observe { .. } | Request::View { .. }))
            .map_err(gone)?;
    let line = serde_json::to_string(request).map_err(|error| InstanceError::Failed(error.to_string()))?;
    writeln!(&stream, "{line}").map_err(gone)?;
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut answer).map_err(gone)?;
    let answer: Value = serde_json::from_str(&answer)
        .map_err(|_| InstanceError::Failed("the instance ended before it answered".into()))?;
    match answer.get("ok") {
        Some(value) => Ok((value.clone(), reader)),
        None => Err(InstanceError::Answered {
            what: answer["error"].as_str().unwrap_or("unknown error").to_owned(),
            hint: answer["hint"].as_str().map(str::to_owned),
            code: answer["code"].as_u64().unwrap_or(1) as u8,
        }),
    }
}

fn may_not_connect(paths: &Paths) -> InstanceError {
    // SAFETY: has no preconditions.
    let uid = unsafe { libc::geteuid() };
    InstanceError::refused(
        format!("uid {uid} may not connect to {}", paths.socket.display()),
        "give the command as root or as the user of the instance; `group` and `mode` in [instance] of its standfast.toml \
         say who else may look",
    )
}

/// Connects to the control socket of a running instance, and waits for one that is starting; if `patient`, also for one
/// whose process was only just started, for example by the previous line of a script.
fn connect(paths: &Paths, patient: bool) -> std::io::Result<UnixStream> {
    let start = std::time::Instant::now();
    loop {
        let error = match UnixStream::connect(&paths.socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Err(error),
            Err(error) => error,
        };
        let limit = match is_locked(paths) {
            true => START_TIMEOUT,
            false if patient => BEGIN_TIMEOUT,
            false => Duration::ZERO,
        };
        if start.elapsed() >= limit {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the instance in `directory` no longer runs.
///
/// # Errors
/// When it still runs after `limit`.
pub fn wait_until_stopped(directory: &Path, limit: Duration) -> Result<(), InstanceError> {
    let config = Config::load(directory)?;
    let paths = Paths::new(directory, &config)
        .map_err(InstanceError::io("find the instance directory", directory))?;
    let end = std::time::Instant::now() + limit;
    while is_locked(&paths) {
        if std::time::Instant::now() > end {
            return Err(InstanceError::Failed(format!(
                "the instance still runs after {} s",
                limit.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
