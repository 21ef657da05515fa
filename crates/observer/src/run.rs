//! Creates an observer's directory, and runs the process.

use crate::file::ObserverFile;
use crate::service::ObserverService;
use standfast_arbitration::register::Register;
use standfast_documents::ObserverState;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::{keeper_of, security_of};
use standfast_environment::creation::{Joined, fill_directory, join, refuse_taken};
use standfast_environment::state::alert::AlertLog;
use standfast_environment::state::lock::{is_locked, lock_directory};
use standfast_environment::state::modes;
use standfast_environment::state::paths::Paths;
use standfast_environment::state::process::{block_signals, notify_service_manager, wait_for_signal_within};
use standfast_io::{DirectDisk, outside};
use standfast_tls::Token;
use standfast_transport::{Receiver, ReceiverConfig, fetch_status};
use standfast_types::{InstanceId, hint};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Makes the directory of an observer. With `token` it gets its certificate from the instance at `from`.
///
/// # Errors
/// When the directory holds an instance or an observer, or has no certificate and gets none.
pub fn create(
    directory: &Path,
    config: &mut Config,
    from: &str,
    token: Option<&Token>,
) -> Result<Joined, InstanceError> {
    fill_directory(directory, modes::PRIVATE_DIRECTORY, config, |config| {
        create_in(directory, config, from, token)
    })
}

fn create_in(
    directory: &Path,
    config: &Config,
    from: &str,
    token: Option<&Token>,
) -> Result<Joined, InstanceError> {
    let paths = Paths::new(directory, config).map_err(InstanceError::io("find the directory", directory))?;
    let _lock = lock_directory(&paths)?;
    refuse_taken(&paths)?;
    let keeper = keeper_of(config, &paths);
    let joined = join(&keeper, config, from, token, || {
        format!(
            "at the primary `standfast standby token --name {} --status-only > token`, then this again with `--token-file token`",
            config.instance.name
        )
    })?;
    config
        .store(&DirectDisk, &paths.directory)
        .map_err(InstanceError::io("write the configuration in", &paths.directory))?;
    // Last, because it makes the directory an observer's.
    ObserverFile::new(Arc::new(DirectDisk), &paths).store(None)?;
    Ok(joined)
}

/// Runs the observer in `directory` until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start.
pub fn run(directory: &Path) -> Result<(), InstanceError> {
    let signals = block_signals();
    let config = Config::load(directory)?;
    let paths = Paths::new(directory, &config).map_err(InstanceError::io("find the directory", directory))?;
    let _lock = lock_directory(&paths)?;
    let _ = std::fs::remove_file(&paths.ready);
    let alert = AlertLog::new(&paths.alert, &config)?;
    alert.end_with_any_thread();
    let name = &config.instance.name;
    alert.say(format!("starting {} as observer `{name}`", env!("CARGO_PKG_VERSION")));
    let file = ObserverFile::new(Arc::new(DirectDisk), &paths);
    let record = file.load()?.unwrap_or_else(|| {
        alert.say(
            "the record is damaged: this observer continues without, and decides when the members have told it",
        );
        None
    });
    let random =
        InstanceId::random().map_err(InstanceError::io("read random numbers from", "/dev/urandom"))?;
    let start = random.0.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let keeper = keeper_of(&config, &paths);
    let service = ObserverService::new(
        &config.instance,
        keeper.clone(),
        alert.clone(),
        file,
        Register::new(start, record),
    );
    let receiver_config = ReceiverConfig {
        listen: config.instance.listen.clone(),
        security: security_of(&config, &keeper),
        ..ReceiverConfig::default()
    };
    let receiver = Receiver::start(receiver_config, Arc::new(service), None).map_err(|error| {
        let text = error.to_string();
        let (what, hint) = hint::split(&text);
        InstanceError::refused(what, hint.unwrap_or("check [instance] listen in standfast.toml"))
    })?;
    alert.say(format!("observing at {}", receiver.local_addr()));
    outside::replace(&paths.ready, format!("{}\n", std::process::id()).as_bytes(), modes::FILE)
        .map_err(InstanceError::io("write", &paths.ready))?;
    notify_service_manager("READY=1");
    loop {
        match wait_for_signal_within(&signals, RENEWAL) {
            None => keeper.renew_when_due().into_iter().for_each(|text| alert.say(text)),
            Some(libc::SIGHUP) => {
                alert.say("SIGHUP: the alert log is opened again for every line; the observer continues")
            }
            Some(_) => break,
        }
    }
    notify_service_manager("STOPPING=1");
    let _ = std::fs::remove_file(&paths.ready);
    receiver.stop();
    alert.say("stopped");
    alert.flush();
    Ok(())
}

/// Whether the directory is an observer's.
pub fn is_observer(directory: &Path) -> bool {
    Paths::new(directory, &Config::default()).is_ok_and(|paths| paths.observer.is_file())
}

/// Asks the observer in `directory` to stop, and waits until it has, at most for `limit`.
///
/// # Errors
/// When it does not run, may not be asked by this user, or does not stop in time.
pub fn stop(directory: &Path, limit: Duration) -> Result<(), InstanceError> {
    let (_, paths) = place(directory)?;
    let not_running = || InstanceError::NotRunning { directory: paths.directory.clone() };
    // While the directory is locked, the number is that of the process that has locked it.
    let read = std::fs::read_to_string(&paths.ready);
    let pid = read.ok().and_then(|text| text.trim().parse::<libc::pid_t>().ok());
    let pid = pid.filter(|pid| *pid > 0 && is_locked(&paths)).ok_or_else(not_running)?;
    // SAFETY: has no preconditions of memory.
    if unsafe { libc::kill(pid, libc::SIGTERM) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(InstanceError::refused(
            format!("the observer, process {pid}, cannot be asked to stop: {error}"),
            "run the command as the user of the observer, or as root",
        ));
    }
    let until = Instant::now() + limit;
    while is_locked(&paths) {
        if Instant::now() >= until {
            return Err(InstanceError::Failed(format!(
                "the observer still runs after {} s",
                limit.as_secs()
            )));
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
    Ok(())
}

/// Asks the observer in `directory` for its state.
///
/// # Errors
/// When it does not run, or does not answer.
pub fn state(directory: &Path) -> Result<ObserverState, InstanceError> {
    let (config, paths) = place(directory)?;
    if !is_locked(&paths) {
        return Err(InstanceError::NotRunning { directory: paths.directory });
    }
    let security = security_of(&config, &keeper_of(&config, &paths)).only([config.instance.name.clone()]);
    let failed = |error: String| InstanceError::Failed(format!("the observer does not answer: {error}"));
    let text = fetch_status(&config.instance.listen, &security, false, ANSWER)
        .map_err(|error| failed(error.to_string()))?;
    ObserverState::in_observation(&text)
        .map_err(|error| failed(error.to_string()))?
        .ok_or_else(|| failed(format!("no observer runs at {}", config.instance.listen)))
}

fn place(directory: &Path) -> Result<(Config, Paths), InstanceError> {
    let config = Config::load(directory)?;
    let paths = Paths::new(directory, &config).map_err(InstanceError::io("find the directory", directory))?;
    Ok((config, paths))
}
