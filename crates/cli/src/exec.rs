//! `standfast exec --when-primary`: runs a program while the instance is the primary.

mod supervisor;

use standfast_environment::InstanceError;
use standfast_environment::state::process::{
    await_end, block_stop_signals, signal_child, wait_for_signal, with_signals,
};
use standfast_instance::role::serving::Serving;
use standfast_instance::server::answer::Served;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use supervisor::{Action, Event, Supervisor};

pub const EXAMPLES: &str = "Examples:
  standfast exec -D /srv/sf --when-primary -- gunicorn app.wsgi
  standfast exec -D /srv/sf --when-primary --stop-timeout 30 -- node server.js

The program is started when the instance becomes the primary, and ended with SIGTERM when it is that no longer. While the
instance does not answer, the program stays as it is: writes are refused to it if another instance is the primary. SIGTERM
and SIGINT end the program, then this command. A service manager restarts this command when the program ends by itself.

Exit codes: that of the program, 128 and the number of the signal that ended it, 0 for a stop while it did not run, 2 when it
cannot be started.";

/// How long to wait before an instance that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
const NOT_STARTED: u8 = 2;

#[derive(Clone, Debug, clap::Args)]
pub struct ExecArgs {
    /// Run the program only while the instance is the primary.
    #[arg(long, required = true)]
    when_primary: bool,
    /// How long the program may take to end after SIGTERM, seconds; then it is killed.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    stop_timeout: u64,
    /// Do not wait: run the program if the instance is the primary now, else exit with code 3.
    #[arg(long)]
    once: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

/// Returns the exit code.
///
/// # Errors
/// With `once`, when the instance does not answer or is not the primary.
pub fn run(directory: &Path, args: &ExecArgs) -> Result<u8, InstanceError> {
    if args.once {
        let Served { serving, .. } = ask(directory, None)?;
        if !is_primary(&serving) {
            return Err(InstanceError::refused(
                format!("this instance is not the primary: {serving}"),
                "run it where the primary is",
            ));
        }
    }
    let signals = block_stop_signals();
    let (events, happened) = channel();
    watch_role(directory, &events);
    watch_signals(signals, &events);
    let stop_timeout = Duration::from_secs(args.stop_timeout);
    Ok(Running { command: &args.command, stop_timeout, child: None, until: None, events }
        .supervise(&happened))
}

fn is_primary(serving: &str) -> bool {
    serving == Serving::Primary.text()
}

fn ask(directory: &Path, unless: Option<String>) -> Result<Served, InstanceError> {
    control_client::ask_for(directory, &Request::Serving { unless })
}

fn watch_role(directory: &Path, events: &Sender<Event>) {
    let (directory, events) = (directory.to_owned(), events.clone());
    std::thread::spawn(move || {
        let mut known = None;
        loop {
            let role = match ask(&directory, known.take()) {
                Ok(Served { serving, changing }) => {
                    let is_primary = is_primary(&serving);
                    known = Some(serving);
                    (!changing).then_some(is_primary)
                }
                Err(_) => None,
            };
            if events.send(Event::Role(role)).is_err() {
                return;
            }
            if known.is_none() {
                std::thread::park_timeout(ASK_AGAIN);
            }
        }
    });
}

fn watch_signals(signals: libc::sigset_t, events: &Sender<Event>) {
    let events = events.clone();
    std::thread::spawn(move || {
        loop {
            // A closed terminal ends what was started in it.
            let _ = wait_for_signal(&signals);
            if events.send(Event::Stop).is_err() {
                return;
            }
        }
    });
}

/// The program, as the supervisor has it run.
struct Running<'a> {
    command: &'a [std::ffi::OsString],
    stop_timeout: Duration,
    child: Option<Child>,
    /// Until when the program may take to end.
    until: Option<Instant>,
    events: Sender<Event>,
}

impl Running<'_> {
    fn supervise(mut self, happened: &Receiver<Event>) -> u8 {
        let mut supervisor = Supervisor::new();
        loop {
            let event = self.next(happened);
            let code = if event == Event::Ended { self.reap() } else { 0 };
            match supervisor.take(event) {
                Action::Nothing => {}
                Action::Start => {
                    if let Err(error) = self.start() {
                        eprintln!("{} cannot be started: {error}", self.command[0].display());
                        return NOT_STARTED;
                    }
                }
                Action::Terminate => {
                    self.until = Instant::now().checked_add(self.stop_timeout);
                    self.signal(libc::SIGTERM);
                }
                Action::Kill => self.signal(libc::SIGKILL),
                Action::Exit => return code,
            }
        }
    }

    fn next(&mut self, happened: &Receiver<Event>) -> Event {
        // The sender in `self` keeps the channel open.
        let Some(until) = self.until else { return happened.recv().unwrap_or(Event::Stop) };
        match happened.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => {
                self.until = None;
                Event::Overdue
            }
            Err(RecvTimeoutError::Disconnected) => Event::Stop,
        }
    }

    fn start(&mut self) -> std::io::Result<()> {
        let child = with_signals(Command::new(&self.command[0]).args(&self.command[1..]))?;
        let (pid, events) = (child.id(), self.events.clone());
        self.child = Some(child);
        std::thread::spawn(move || {
            await_end(pid);
            let _ = events.send(Event::Ended);
        });
        Ok(())
    }

    fn signal(&self, signal: libc::c_int) {
        if let Some(child) = &self.child {
            signal_child(child, signal);
        }
    }

    /// Returns the exit code of the program, which has ended.
    fn reap(&mut self) -> u8 {
        self.until = None;
        let ended = self.child.take().map(|mut child| child.wait());
        ended.and_then(Result::ok).map_or(NOT_STARTED, exit_code)
    }
}

/// As a shell reports it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
