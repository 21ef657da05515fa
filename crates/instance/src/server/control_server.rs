//! Serves the control socket.
//!
//! It takes one JSON line per connection and answers with one: `{"ok":...}` or `{"error":...,"hint":...,"code":n}`; only
//! the rows of views follow that line as bytes. The file permissions of the socket decide who may connect, and
//! [`crate::server::rights`] what a request needs beyond that.

use crate::observe::view_request;
use crate::server::answer::Answer;
use crate::server::commands::Instance;
use crate::server::control_connections::{
    Connections, LOOKING_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_TIMEOUT, Served, read_request,
};
use crate::server::request::Request;
use crate::server::rights::{Administrators, Peer};
use serde_json::json;
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control_socket;
use standfast_environment::state::group::Access;
use standfast_environment::state::paths::Paths;
use standfast_types::Hint;
use std::borrow::Cow;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout for a client to read the answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves a control socket. Dropping it removes the socket.
pub(crate) struct SocketServer {
    path: PathBuf,
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves the control sockets of an instance.
///
/// # Errors
/// When one cannot be made.
pub(crate) fn serve_sockets(
    instance: &Instance,
    paths: &Paths,
    access: Access,
) -> Result<Vec<SocketServer>, InstanceError> {
    let connections = Connections::default();
    paths.sockets().map(|path| serve_socket(instance, path, access, connections.clone())).collect()
}

fn serve_socket(
    instance: &Instance,
    path: PathBuf,
    access: Access,
    connections: Connections,
) -> Result<SocketServer, InstanceError> {
    let _ = std::fs::remove_file(&path);
    let listener = control_socket::listen(&path, access.mode_before())
        .map_err(InstanceError::io("listen on the control socket", &path))?;
    access.give_socket(&path)?;
    let instance = instance.clone();
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
                    let instance = instance.clone();
                    let serve = move || answer(&instance, &stream, peer, administrators, served);
                    let _ = std::thread::Builder::new().name("control".into()).spawn(serve);
                }
                Err(full) => {
                    let error =
                        InstanceError::refused(full.text(peer), "end some of them, or try again later");
                    let _ = stream.set_nonblocking(true);
                    let _ = writeln!(&stream, "{}", json!(refusal(&error)));
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
    instance: &Instance,
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
        Ok(Request::View { name }) => {
            view_request::rows(&instance.running, &name).map(|rows| (json!("rows"), rows))
        }
        Ok(request) => instance.carry_out(request).map(|value| (value, Vec::new())),
        Err(error) => Err(error),
    };
    let (answer, rows) = match answer {
        Ok((value, rows)) => (Answer::Ok { ok: value }, rows),
        Err(error) => (refusal(&error), Vec::new()),
    };
    // A client that does not read must not keep the rows in memory forever.
    let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let _ = writeln!(&*stream, "{}", json!(answer)).and_then(|()| (&*stream).write_all(&rows));
}

fn refusal(error: &InstanceError) -> Answer {
    Answer::Error {
        error: error.to_string(),
        hint: error.hint().map(Cow::into_owned),
        code: error.exit_code(),
    }
}
