//! Life cycle of an instance process: lock, start, control socket, signals, stop.

use crate::observe::live_watch::LiveWatch;
use crate::observe::monitors::Monitors;
use crate::observe::observation;
use crate::observe::snapshots::Snapshots;
use crate::observe::watchers::Watchers;
use crate::observe::watching;
use crate::role::reinstate::{Reinstatement, is_due};
use crate::role::running::Running;
use crate::server::commands::Instance;
use crate::server::control_server::serve_sockets;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::alert::AlertLog;
use standfast_environment::state::control::{Control, FileStamp, LastingIdentity};
use standfast_environment::state::descriptors::raise_limit;
use standfast_environment::state::lock::{lock_directory, show_alive};
use standfast_environment::state::modes;
use standfast_environment::state::paths::Paths;
use standfast_environment::state::process::{
    block_signals, notify_service_manager, wait_for_signal, wait_for_signal_within,
};
use standfast_environment::state::runtime;
use standfast_io::{DirectDisk, outside};
use standfast_types::{Hint, Scn, hint};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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
    standfast_environment::state::log_layout::check_configuration(&config, &control)?;
    let alert = AlertLog::new(&paths.alert, &config)?;
    alert.end_with_any_thread();
    tightened.into_iter().for_each(|line| alert.say(line));
    if let Some((owner, _)) = modes::service_user(directory)? {
        alert.say(format!("RUNS AS ROOT in a directory of uid {owner}, as --allow-root says: what this instance makes is root's"));
    }
    let outcome = serve_in_turn(config, &paths, control, &signals, until_scn, &alert);
    if let Err(error) = &outcome {
        alert.print(&format!("error: {}", error.for_terminal()));
    }
    alert.flush();
    outcome.map_err(|error| InstanceError::Reported { code: error.exit_code() })
}

/// Why an instance serves no longer.
enum Ended {
    Stopped,
    /// Another instance is the primary, and this one is to become its standby.
    Replaced,
}

/// Runs the instance whose directory is locked; where it is configured, reinstates it whenever another one has replaced it.
fn serve_in_turn(
    mut config: Config,
    paths: &Paths,
    mut control: Control,
    signals: &libc::sigset_t,
    until_scn: Option<Scn>,
    alert: &AlertLog,
) -> Result<(), InstanceError> {
    // Opened before it is reinstated, a replaced instance would be a second primary, also if its fence is not recorded.
    let mut is_replaced = config.instance.auto_reinstate && is_due(&control);
    loop {
        if is_replaced && !reinstated(paths, signals, alert)? {
            return Ok(());
        }
        if is_replaced {
            config = Config::load(&paths.directory)?;
            control = Control::load(&DirectDisk, &paths.control)?;
        }
        match serve(config.clone(), paths, control.clone(), signals, until_scn, alert)? {
            Ended::Stopped => return Ok(()),
            Ended::Replaced => is_replaced = true,
        }
    }
}

/// Pause between attempts to be reinstated.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Pages between two looks for a signal while pages are compared.
const LOOK_EVERY_PAGES: u64 = 1024;

/// Reinstates the instance, as often as that takes: the new primary may be opening, or out of reach. False: it was stopped
/// before that.
///
/// # Errors
/// When its configuration cannot be read.
fn reinstated(paths: &Paths, signals: &libc::sigset_t, alert: &AlertLog) -> Result<bool, InstanceError> {
    // Destinations may have been changed since the start.
    let config = Config::load(&paths.directory)?;
    // Many attempts may have the same to report.
    let mut reported = BTreeSet::new();
    let mut report = |text: String| {
        if reported.insert(text.clone()) {
            alert.say(text);
        }
    };
    let mut is_stopped = false;
    loop {
        let attempt = Control::load(&DirectDisk, &paths.control).and_then(|control| {
            let disk = Arc::new(DirectDisk);
            let environment = Environment::new(config.clone(), paths.clone(), disk, alert.clone(), control);
            let planned = Reinstatement::plan(environment, None)?;
            planned.lines().into_iter().for_each(|line| report(format!("reinstatement: {line}")));
            planned.carry_out(&mut |_, page| {
                is_stopped |= page.is_multiple_of(LOOK_EVERY_PAGES)
                    && wait_for_signal_within(signals, Duration::ZERO).is_some();
                !is_stopped
            })
        });
        let Err(error) = attempt else { return Ok(true) };
        report(format!(
            "not reinstated yet, tried again every {} s: {}",
            TRY_AGAIN.as_secs(),
            error.in_one_line()
        ));
        if is_stopped || wait_for_signal_within(signals, TRY_AGAIN).is_some() {
            return Ok(false);
        }
    }
}

/// Runs the instance until it is stopped or replaced.
fn serve(
    config: Config,
    paths: &Paths,
    control: Control,
    signals: &libc::sigset_t,
    until_scn: Option<Scn>,
    alert: &AlertLog,
) -> Result<Ended, InstanceError> {
    alert.say(format!(
        "starting {} {} as {}",
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        control.role
    ));
    let cannot_start = |error: &InstanceError| alert.say(format!("cannot start: {}", error.in_one_line()));
    let _runtime = runtime::open(paths, control.instance).inspect_err(cannot_start)?;
    if let Some(path) = &paths.shared_memory {
        alert.say(hint::in_one_line(
            format_args!(
                "the shared memory is {}, because another user had made a file of its usual name",
                path.display()
            ),
            Some(
                "a directory that only the user of the instance can write to, `runtime_directory` in [instance], keeps \
                 others from that",
            ),
        ));
    }
    if let Some(armed) = standfast_io::fault::armed_by() {
        alert.say(format!("FAULT POINTS ARMED: {armed}; this instance fails on purpose, for tests only"));
    }
    if config.instance.insecure {
        alert.say(standfast_environment::security::insecure());
    }
    let mut environment =
        Environment::new(config, paths.clone(), Arc::new(DirectDisk), alert.clone(), control);
    environment.until_scn = until_scn;
    let environment = Arc::new(environment);
    environment.say_unlisted();
    let running = Running::new(environment.clone(), observation::for_others).inspect_err(cannot_start)?;
    let snapshots = Arc::new(Snapshots::default());
    let observers = open(&running, &snapshots).inspect_err(cannot_start)?;
    let access = environment.access()?;
    access.differing().into_iter().for_each(|text| alert.say(text));
    let server =
        serve_sockets(&Instance { running: running.clone(), snapshots: snapshots.clone() }, paths, access)?;
    outside::replace(&paths.ready, format!("{}\n", std::process::id()).as_bytes(), modes::FILE)
        .map_err(InstanceError::io("write", &paths.ready))?;
    notify_service_manager("READY=1");

    while wait_for_signal(signals) == libc::SIGHUP {
        alert.say("SIGHUP: the alert log is opened again for every line; the instance continues");
    }
    // A service manager that hears of a stop would kill an instance that continues.
    if !running.starts_again() {
        notify_service_manager("STOPPING=1");
    }
    running.suspend_for_a_stop();
    let _ = std::fs::remove_file(&paths.ready);
    let _ = std::fs::remove_file(&paths.socket);
    drop(server);
    running.announce_stop();
    drop(observers);
    snapshots.close();
    running.stop()?;
    match running.stops_for() {
        Some(why) => {
            let hint = "bring a standby back and start this instance again, or choose another mode with `standfast \
                        protection-mode` as soon as it runs";
            Err(InstanceError::refused(format!("stopped for the safety of the data: {why}"), hint))
        }
        None if running.starts_again() => Ok(Ended::Replaced),
        None => Ok(Ended::Stopped),
    }
}

/// Opens a running instance, and starts what observes it; dropping the result ends these threads.
fn open(
    running: &Arc<Running>,
    snapshots: &Arc<Snapshots>,
) -> Result<(LiveWatch, Monitors, Watchers), InstanceError> {
    // First, so that an error in its configuration is reported before anything is opened.
    let live = LiveWatch::start(running)?;
    running.open()?;
    let directory = &running.environment.paths.directory;
    let monitors = Monitors::start(&Arc::downgrade(running), snapshots)
        .map_err(InstanceError::io("begin the thread that watches destinations in", directory))?;
    Ok((live, monitors, watching::start(running)?))
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
