//! One request over the control socket of an instance; docs/protocol.md defines the bytes.

use standfast_session::Marker;
use standfast_views::Table;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit of an answer: the instance queries its standbys for theirs.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Limit of bytes of an answer; a longer one is an error.
const ANSWER_BYTES_MAX: usize = 64 << 20;
const BUFFER_BYTES: usize = 64 << 10;

/// Fetches the rows of a view.
///
/// # Errors
/// A message with the reason and the remedy.
pub(super) fn rows(marker: &Marker, view: &str) -> Result<Table, String> {
    let (name, directory) = (&marker.name, marker.directory.display());
    let end = Instant::now() + TIMEOUT;
    let answer = exchange(&marker.sockets().join("control.sock"), view, end).map_err(|why| match why {
        AskError::Connect(error) => cannot_connect(marker, &error),
        AskError::Io(error) if is_timeout(&error) => format!(
            "instance {name} ({directory}) did not answer within {} s: look at `standfast status -D {directory}`",
            TIMEOUT.as_secs()
        ),
        AskError::Io(error) => format!(
            "instance {name} ({directory}) did not answer to the end: {error}. Try again, and look at its alert log"
        ),
        AskError::TooLong => format!(
            "the answer of instance {name} ({directory}) has more than {} MiB: ask with `standfast sql -D {directory}`",
            ANSWER_BYTES_MAX >> 20
        ),
    })?;
    let line = answer.iter().position(|byte| *byte == b'\n').unwrap_or(answer.len());
    let (line, rest) = answer.split_at(line);
    if line != br#"{"ok":"rows"}"# {
        return Err(refusal(marker, &String::from_utf8_lossy(line)));
    }
    Table::decode(rest.get(1..).unwrap_or_default().to_vec()).map_err(|why| {
        format!("the answer of instance {name} ({directory}) cannot be read: {why}. Use the extension of its release")
    })
}

#[derive(Debug)]
enum AskError {
    Connect(std::io::Error),
    Io(std::io::Error),
    TooLong,
}

fn cannot_connect(marker: &Marker, error: &std::io::Error) -> String {
    let (name, directory) = (&marker.name, marker.directory.display());
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            format!(
                "instance {name} ({directory}) does not run: start it with `standfast start -D {directory}`"
            )
        }
        ErrorKind::PermissionDenied => format!(
            "no permission to ask instance {name} ({directory}): who may connect to control.sock there is set by \
             `group` and `mode` in [instance] of its standfast.toml"
        ),
        _ => format!("instance {name} ({directory}) cannot be asked: {error}"),
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Sends the request and reads the answer to its end, until `end`.
fn exchange(socket: &Path, view: &str, end: Instant) -> Result<Vec<u8>, AskError> {
    let mut stream = connect(socket).map_err(AskError::Connect)?;
    // View names hold nothing that JSON would have to escape.
    let question = format!("{{\"op\":\"view\",\"name\":\"{view}\"}}\n");
    send(&stream, question.as_bytes()).map_err(AskError::Io)?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(AskError::Io(ErrorKind::TimedOut.into()));
        }
        stream.set_read_timeout(Some(left)).map_err(AskError::Io)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(bytes) if answer.len() + bytes > ANSWER_BYTES_MAX => return Err(AskError::TooLong),
            Ok(bytes) => answer.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(AskError::Io(error)),
        }
    }
}

/// Connects with a time limit; `UnixStream::connect` would wait without one for a stopped instance whose queue is full.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(std::io::Error::new(
            ErrorKind::InvalidInput,
            "the path of its control socket is too long",
        ));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    // SAFETY: a plain system call; a result that is not negative is a new descriptor with no other owner.
    let socket = unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    let stream = UnixStream::from(socket);
    // The send timeout limits the connection attempt as well.
    stream.set_write_timeout(Some(TIMEOUT))?;
    // SAFETY: an open socket, and an address of the size given that lives during the call.
    let connected = unsafe {
        libc::connect(
            stream.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_un>() as libc::socklen_t,
        )
    };
    if connected == 0 { Ok(stream) } else { Err(std::io::Error::last_os_error()) }
}

/// Sends all bytes. An instance that has gone must not end the application with SIGPIPE.
fn send(stream: &UnixStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: an open socket, and bytes that live during the call.
        let sent =
            unsafe { libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(_) => {
                let error = std::io::Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

fn refusal(marker: &Marker, line: &str) -> String {
    let what = json_text(line, "error").unwrap_or_else(|| line.to_owned());
    let what = if what.is_empty() { "nothing".into() } else { what };
    let hint = json_text(line, "hint").map_or_else(String::new, |hint| format!(". {hint}"));
    format!("instance {} ({}) answered: {what}{hint}", marker.name, marker.directory.display())
}

/// Returns a text in a JSON object whose texts do not repeat its keys, which suffices for messages. Resolves escapes of
/// one letter; others stay as they are.
fn json_text(object: &str, key: &str) -> Option<String> {
    let (_, rest) = object.split_once(&format!("\"{key}\":\""))?;
    let mut text = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => match characters.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'u' => text.push_str("\\u"),
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_and_hint_are_extracted_from_a_refusal() {
        let line = r#"{"code":3,"error":"there is no view \"v$x\"","hint":"look\nhere"}"#;
        assert_eq!(json_text(line, "error").as_deref(), Some("there is no view \"v$x\""));
        assert_eq!(json_text(line, "hint").as_deref(), Some("look\nhere"));
        assert_eq!(json_text(r#"{"error":"cut"#, "error"), None);
        assert_eq!(json_text(r#"{"hint":null}"#, "hint"), None);
    }

    #[test]
    fn missing_instance_is_not_reported_as_a_timeout() {
        let nowhere = Path::new("/nowhere/control.sock");
        let end = Instant::now() + TIMEOUT;
        assert!(matches!(exchange(nowhere, "v$log", end), Err(AskError::Connect(_))));
        let long = Path::new("/tmp").join("x".repeat(200));
        assert!(connect(&long).is_err());
    }

    #[test]
    fn view_query_times_out_on_a_silent_instance() {
        let path = std::env::temp_dir().join(format!("standfast-ask-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        // The listener never accepts: the connection is established, the request is sent, and no answer comes.
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = exchange(&path, "v$log", Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert!(matches!(&error, AskError::Io(error) if is_timeout(error)), "{error:?}");
        std::fs::remove_file(path).unwrap();
    }
}
