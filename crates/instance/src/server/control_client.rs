//! Requests of commands to a running instance, and whether it runs.

use crate::server::answer::Answer;
use crate::server::request::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::state::lock::is_locked;
use standfast_environment::state::paths::Paths;
use standfast_views::Table;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a command waits for an instance that is starting: recovery may take a while.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a command waits for the process of an instance to appear.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of bytes of rows that a command accepts in an answer.
const ROWS_BYTES_MAX: u64 = 256 << 20;

/// Sends a request to the instance in `directory` and returns its answer.
///
/// # Errors
/// `NotRunning`, or the error that the instance answered.
pub fn ask(directory: &Path, request: &Request) -> Result<Value, InstanceError> {
    Ok(ask_and_continue(directory, request)?.0)
}

/// Sends a request and reads the answer as the document that it is.
///
/// # Errors
/// Those of [`ask`]; `Failed` when the answer is another document, that of another version.
pub fn ask_for<T: DeserializeOwned>(directory: &Path, request: &Request) -> Result<T, InstanceError> {
    let answer = ask(directory, request)?;
    serde_json::from_value(answer).map_err(|error| {
        InstanceError::Failed(format!("the instance answered what this program does not understand: {error}"))
    })
}

/// Does [`ask`] and also returns the reader for what follows the answer.
fn ask_and_continue(
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
    let answer: Answer = serde_json::from_str(&answer)
        .map_err(|_| InstanceError::Failed("the instance ended before it answered".into()))?;
    match answer {
        Answer::Ok { ok } => Ok((ok, reader)),
        Answer::Error { error, hint, code } => Err(InstanceError::Answered { what: error, hint, code }),
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

/// Fetches the rows of a view from the instance in `directory`.
///
/// # Errors
/// `NotRunning`, or the error that the instance answered.
pub fn ask_for_view(directory: &Path, name: &str) -> Result<Table, InstanceError> {
    let (_, rest) = ask_and_continue(directory, &Request::View { name: name.to_owned() })?;
    let mut bytes = Vec::new();
    let broken = |why: String| {
        InstanceError::failed(format!("the rows of {name} did not come whole: {why}"), "try again")
    };
    rest.take(ROWS_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| broken(error.to_string()))?;
    Table::decode(bytes).map_err(|error| broken(error.to_string()))
}
