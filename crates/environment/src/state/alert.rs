//! The alert log: what an operator should know, one line per message, in a file and on stderr; on stderr as JSON if
//! configured.
//!
//! A thread that reports something puts it into a queue: neither the reader of stderr nor the volume of the file can
//! hold up or end a thread of the instance.

mod sink;

use self::sink::{Put, Queue};
use crate::config::alert_config::AlertForm;
use crate::config::error::InstanceError;
use crate::config::settings::Config;
use standfast_types::{hint, printable_line};
use std::fs::File;
use std::io::Error;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Appends lines to the alert log of an instance. Clones append to the same log.
#[derive(Clone)]
pub struct AlertLog(Arc<Owner>);

const KEPT: usize = 50;
/// Longest line, characters. Text from peers is truncated much earlier, see `standfast_types::printable`.
const LINE_CHARS_MAX: usize = 4000;
/// How long [`AlertLog::flush`] waits for the file to take the last lines, and how long for the reader of stderr.
const FILE_FLUSH: Duration = Duration::from_secs(5);
const STDERR_FLUSH: Duration = Duration::from_millis(500);

/// Dropping the last clone closes the queues, which ends the writer threads.
struct Owner(Arc<Lines>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.file.close();
        self.0.stderr.close();
    }
}

struct Lines {
    /// Whether lines go to the file and to stderr.
    written: bool,
    /// The instance's name, if lines on stderr are JSON.
    json_of: Option<String>,
    file: Queue,
    stderr: Queue,
    last: Mutex<Vec<String>>,
}

impl AlertLog {
    /// Writes to `path` and to stderr, each from its own thread.
    ///
    /// # Errors
    /// When a thread cannot be started or stderr is closed.
    pub fn new(path: &Path, config: &Config) -> Result<AlertLog, InstanceError> {
        let json = config.alert.stderr == AlertForm::Json;
        let json_of = json.then(|| config.instance.name.clone());
        let lines = Arc::new(Lines::new(true, json_of));
        let alert = AlertLog(Arc::new(Owner(lines.clone())));
        let failed = |what: &'static str| InstanceError::io(what, path);

        let (shared, file) = (lines.clone(), path.to_owned());
        let run = move || {
            let on_error = |error: &Error| _ = shared.to_stderr(&cannot_be_written(&file, error));
            sink::run(
                &shared.file,
                sink::append_to(file.clone()),
                |lost| text_line(&lines_lost(lost)),
                on_error,
            );
        };
        let started = std::thread::Builder::new().name("alert".into()).spawn(run);
        started.map_err(failed("begin the thread that writes"))?;

        let stderr = std::io::stderr().as_fd().try_clone_to_owned();
        let stderr = File::from(stderr.map_err(failed("find stderr for the lines of"))?);
        let shared = lines;
        let run = move || {
            let on_error = |error: &Error| shared.to_file(&stderr_fails(error));
            let lost = |lost| shared.form_on_stderr(&lines_lost(lost));
            sink::run(&shared.stderr, sink::write_to(stderr), lost, on_error);
        };
        let started = std::thread::Builder::new().name("alert-stderr".into()).spawn(run);
        started.map_err(failed("begin the thread that writes to stderr what goes to"))?;
        Ok(alert)
    }

    /// Writes nowhere but keeps the last lines.
    pub fn silent() -> AlertLog {
        AlertLog(Arc::new(Owner(Arc::new(Lines::new(false, None)))))
    }

    /// Reports one line with the time. Returns immediately: another thread writes it. Whatever the message contains,
    /// also a path or the name of a process, the file and the terminal get one line of printable text.
    pub fn say(&self, message: impl AsRef<str>) {
        let message = printable_line(message.as_ref(), LINE_CHARS_MAX);
        let lines = &self.0.0;
        if lines.written && lines.to_stderr(&message) == Put::FirstDropped {
            lines.to_file(STDERR_STANDS_STILL);
        }
        lines.to_file(&message);
    }

    /// Writes `text` unchanged to stderr, as far as its reader takes it.
    pub fn print(&self, text: &str) {
        self.0.0.stderr.put(text.to_owned());
    }

    /// Waits, for a limited time, until all reported lines are written.
    pub fn flush(&self) {
        if self.0.0.written {
            self.0.0.file.flush(FILE_FLUSH);
            self.0.0.stderr.flush(STDERR_FLUSH);
        }
    }

    /// The newest lines, oldest first.
    pub fn last(&self) -> Vec<String> {
        self.0.0.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// From now on a panic of a thread of this process ends the process immediately, with the reason as the last line.
    /// Sessions that wait for commits learn from the end of the process that the outcome is unknown; if the process
    /// continued without one of its threads they would wait for ever. Threads that [`serves_one_page`] names are
    /// excepted.
    pub fn end_with_any_thread(&self) {
        let alert = self.clone();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name");
            let what = panic.payload_as_str().unwrap_or("no reason is known");
            let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
            if serves_one_page(name) {
                alert.say(hint::in_one_line(
                    format_args!("a request for a page failed: panic{place}: {what}"),
                    Some("report this; the instance continues"),
                ));
                return;
            }
            alert.say(hint::in_one_line(
                format_args!("THREAD DIED: `{name}` panicked{place}: {what}"),
                Some(
                    "the instance ends at once, nothing acknowledged is lost; start it again and report this",
                ),
            ));
            alert.flush();
            std::process::abort();
        }));
    }
}

/// Such a thread holds nothing that another thread waits for, and it reads what anyone who reaches the port has sent.
/// The thread of all connections, `http`, catches a panic that a request causes and closes its connection.
fn serves_one_page(thread: &str) -> bool {
    matches!(thread, "http" | "http-get")
}

const STDERR_STANDS_STILL: &str =
    "the reader of stderr of this instance does not read: lines are dropped there and stay in the alert log";

fn stderr_fails(error: &Error) -> String {
    format!("stderr of this instance cannot be written: {error}; its lines stay in the alert log")
}

fn cannot_be_written(path: &Path, error: &Error) -> String {
    let path = path.display();
    hint::in_one_line(
        format_args!("the alert log cannot be written: {error}"),
        Some(&format!("make room at {path}; what could not be written will be counted there")),
    )
}

fn lines_lost(lost: u64) -> String {
    format!("{lost} lines before this one could not be written here")
}

fn text_line(message: &str) -> String {
    format!("{} {message}", standfast_types::utc_text(crate::state::now::now_us()))
}

impl Lines {
    fn new(written: bool, json_of: Option<String>) -> Lines {
        let (file, stderr, last) = (Queue::default(), Queue::default(), Mutex::default());
        Lines { written, json_of, file, stderr, last }
    }

    fn form_on_stderr(&self, message: &str) -> String {
        match &self.json_of {
            Some(instance) => {
                json_line(&standfast_types::utc_text(crate::state::now::now_us()), instance, message)
            }
            None => text_line(message),
        }
    }

    fn to_stderr(&self, message: &str) -> Put {
        self.stderr.put(self.form_on_stderr(message))
    }

    /// Writes to the file and to the kept lines.
    fn to_file(&self, message: &str) {
        let line = text_line(message);
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.len() == KEPT {
            last.remove(0);
        }
        last.push(line.clone());
        // Under the lock: both have the same order.
        if self.written {
            self.file.put(line);
        }
    }
}

/// Puts the remedy (`hint`) of a message into a field of its own.
fn json_line(time: &str, instance: &str, message: &str) -> String {
    let (message, hint) = hint::split(message);
    serde_json::json!({ "time": time, "instance": instance, "message": message, "hint": hint }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_alert_line_has_the_hint_in_its_own_field() {
        let read = |message: &str| -> serde_json::Value {
            let line = json_line("2026-11-22T10:00:00.000Z", "paris", message);
            assert!(!line.contains('\n'));
            serde_json::from_str(&line).unwrap()
        };
        let line = read("a gap was open | hint: none of them \"was\" acknowledged");
        assert_eq!(
            (line["instance"].as_str(), line["message"].as_str()),
            (Some("paris"), Some("a gap was open"))
        );
        assert_eq!(line["hint"], "none of them \"was\" acknowledged");
        assert_eq!(
            read("two | lines | hint: one"),
            serde_json::json!({ "time": "2026-11-22T10:00:00.000Z",
            "instance": "paris", "message": "two | lines", "hint": "one" })
        );
        assert!(read("all is well")["hint"].is_null());
    }

    #[test]
    fn alert_line_contains_no_escape_sequence_or_line_break() {
        let alert = AlertLog::silent();
        alert.say("destination x: a\n2026-01-01T00:00:00.000Z forged\r\x1b[2Jb\u{202e}c");
        let last = alert.last();
        assert!(last.len() == 1 && !last[0].contains(['\n', '\r', '\x1b', '\u{202e}']), "{last:?}");
        assert!(last[0].ends_with(r"a | 2026-01-01T00:00:00.000Z forged\r\u{1b}[2Jb\u{202e}c"), "{last:?}");
        alert.say("x".repeat(100_000));
        assert!(alert.last()[1].len() < LINE_CHARS_MAX + 100);
    }
}
