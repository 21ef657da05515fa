//! Creates an observer's directory, and runs the process.

use crate::file::ObserverFile;
use crate::service::ObserverService;
use standfast_arbitration::register::Register;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::{keeper_of, security_of};
use standfast_environment::state::alert::AlertLog;
use standfast_environment::state::lock::lock_directory;
use standfast_environment::state::modes;
use standfast_environment::state::paths::Paths;
use standfast_environment::state::process::{block_signals, notify_service_manager, wait_for_signal_within};
use standfast_io::{DirectDisk, outside};
use standfast_tls::Token;
use standfast_transport::{Receiver, ReceiverConfig};
use standfast_types::{InstanceId, hint};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often the certificate is looked at.
const RENEWAL: Duration = Duration::from_secs(60);

/// Makes the directory of an observer. With `token` it gets its certificate from the instance at `from`. Returns
/// authorities that came with the certificate and are not trusted, in words.
///
/// # Errors
/// When the directory holds an instance or an observer, or has no certificate and gets none.
pub fn create(
    directory: &Path,
    config: &Config,
    from: &str,
    token: Option<&Token>,
) -> Result<Vec<String>, InstanceError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(modes::PRIVATE_DIRECTORY)
        .create(directory)
        .map_err(InstanceError::io("create the directory", directory))?;
    let paths = Paths::new(directory, config).map_err(InstanceError::io("find the directory", directory))?;
    let _lock = lock_directory(&paths)?;
    let file = ObserverFile::new(Arc::new(DirectDisk), &paths.directory);
    if file.exists() || paths.control.exists() {
        let what = match file.exists() {
            true => "an observer",
            false => "an instance",
        };
        return Err(InstanceError::refused(
            format!("{} already holds {what}", directory.display()),
            "name another directory with -D, or remove this one if it is no longer needed",
        ));
    }
    let keeper = keeper_of(config, &paths);
    let notes = match token.filter(|_| !keeper.has_identity()) {
        Some(token) => keeper.join(from, token)?,
        None => Vec::new(),
    };
    if !config.instance.insecure && !keeper.has_identity() {
        let name = &config.instance.name;
        return Err(InstanceError::refused(
            format!("no token, and {} holds no certificate", directory.display()),
            format!(
                "at the primary `standfast standby token --name {name} --status-only > token`, then this again with \
                 `--token-file token`"
            ),
        ));
    }
    config
        .store(&DirectDisk, &paths.directory)
        .map_err(InstanceError::io("write the configuration in", &paths.directory))?;
    // Last, because it makes the directory an observer's.
    file.store(None)?;
    Ok(notes)
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
    let file = ObserverFile::new(Arc::new(DirectDisk), &paths.directory);
    if !file.exists() {
        return Err(InstanceError::refused(
            format!("{} is not the directory of an observer", directory.display()),
            "`standfast observer create` makes one",
        ));
    }
    let record = file.load()?.unwrap_or_else(|| {
        alert.say(
            "the record is damaged: this observer goes on without, and decides when the members have told it",
        );
        None
    });
    let random =
        InstanceId::random().map_err(InstanceError::io("read random numbers from", "/dev/urandom"))?;
    let start = random.0.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let keeper = keeper_of(&config, &paths);
    let service =
        ObserverService::new(name, keeper.clone(), alert.clone(), file, Register::new(start, record));
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
            None => keeper.renew_when_due().into_iter().for_each(|said| alert.say(said)),
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
