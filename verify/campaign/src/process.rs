//! Child processes that can be killed, are waited for with a timeout, and never outlive their owner.

use crate::error::last_lines;
use crate::{CampaignError, During, Result};
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Timeout for the end of a program that was asked to end.
pub const GRACE: Duration = Duration::from_secs(30);
/// Timeout for a command of the command line.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);

/// A running child process with its output in a file. Killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Readable once the process has ended; immune to the reuse of process ids.
    handle: OwnedFd,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `command` and appends its output to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Result<Process> {
        let name = describe(&command);
        let file = OpenOptions::new().create(true).append(true).open(log);
        let file = file.during(|| format!("open {}", log.display()))?;
        let errors = file.try_clone().during(|| "duplicate a descriptor".into())?;
        die_with_parent(&mut command);
        let spawned = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        let mut child = spawned.during(|| format!("start {name}"))?;
        match pidfd(&child) {
            Ok(handle) => Ok(Process { child, handle, name, log: log.to_owned() }),
            Err(source) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(CampaignError::Io { what: "open a process descriptor".into(), source })
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and returns when the process is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Both fail only when the process was already waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the process (`true`) or lets it continue. When this returns after a stop, none of its threads runs.
    pub fn freeze(&self, frozen: bool) {
        if !frozen {
            return self.signal(libc::SIGCONT);
        }
        self.signal(libc::SIGSTOP);
        // One thread takes the signal when it is scheduled; until then the other threads continue.
        let events = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        loop {
            let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: there is room for the answer; the child is not reaped before `self` is consumed, nor by this
            // call.
            let stopped = unsafe { libc::waitid(libc::P_PID, self.child.id(), info.as_mut_ptr(), events) };
            let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
            if stopped == 0 || !interrupted {
                return;
            }
        }
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill has no memory preconditions; the child is not reaped before `self` is consumed.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Asks the process to end with SIGTERM, and waits.
    ///
    /// # Errors
    /// When it does not end within [`GRACE`]; it is killed then.
    pub fn terminate(self) -> Result<ExitStatus> {
        self.signal(libc::SIGTERM);
        self.wait_for_end(GRACE)
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Errors
    /// When it has not after `limit`; it is killed then.
    pub fn wait_for_end(mut self, limit: Duration) -> Result<ExitStatus> {
        if self.ended_within(limit) {
            return self.child.wait().during(|| format!("wait for {}", self.name));
        }
        let error = self.failed(&format!("did not end within {} s", limit.as_secs()));
        self.end();
        Err(error)
    }

    /// Whether the process ends within `limit`.
    pub fn ended_within(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&mut poll, 1, limit.as_millis().min(i32::MAX as u128) as i32) == 1 }
    }

    /// Returns an error about this process, with the last lines of its output.
    pub fn failed(&self, problem: &str) -> CampaignError {
        let output = last_lines(&std::fs::read_to_string(&self.log).unwrap_or_default());
        CampaignError::Program { program: self.name.clone(), problem: problem.into(), output }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn pidfd(child: &Child) -> std::io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers; the child is not reaped yet.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id() as libc::pid_t, 0) } as i32;
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: pidfd_open returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Kills the child when this process is killed. The kernel ties this to the thread that starts the child, which
/// therefore must live as long as the child is needed.
fn die_with_parent(command: &mut Command) {
    command.env_remove("NOTIFY_SOCKET");
    // SAFETY: prctl is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

#[derive(Clone, Debug, Default)]
pub struct Finished {
    program: String,
    /// Exit code; 128 plus the signal when it was killed, as in shells.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Returns the standard output of a program that succeeded.
    ///
    /// # Errors
    /// When its exit code is not 0.
    pub fn ok(self) -> Result<String> {
        if self.code == 0 {
            return Ok(self.stdout);
        }
        let output = last_lines(&format!("{}\n{}", self.stdout, self.stderr));
        Err(CampaignError::Program {
            program: self.program,
            problem: format!("exit code {}", self.code),
            output,
        })
    }
}

/// Runs a program to its end.
///
/// # Errors
/// When it cannot be started or takes longer than the limit of 90 s; it is killed then.
pub fn run(command: Command) -> Result<Finished> {
    run_with_input(command, Stdio::null())
}

/// Runs a program to its end, with this standard input.
///
/// # Errors
/// Those of [`run`].
pub fn run_with_input(mut command: Command, input: Stdio) -> Result<Finished> {
    let program = describe(&command);
    die_with_parent(&mut command);
    let child = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.during(|| format!("start {program}"))?;
    let pid = child.id();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(child.wait_with_output()));
    let output = match receive.recv_timeout(COMMAND_LIMIT) {
        Ok(output) => output.during(|| format!("wait for {program}"))?,
        Err(_) => {
            // SAFETY: kill has no memory preconditions; the thread has not reaped the child, or it would have sent its
            // output, and that at most an instant ago.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
            let problem = format!("did not end within {} s and was killed", COMMAND_LIMIT.as_secs());
            return Err(CampaignError::Program { program, problem, output: String::new() });
        }
    };
    let code = output.status.code().or(output.status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Finished { program, code, stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = command.get_args().map(|word| word.to_string_lossy());
    words.fold(program.to_string_lossy().into_owned(), |all, word| {
        if all.len() + word.len() > 160 { all } else { all + " " + &word }
    })
}

/// Polls until `ready` returns `Ok(Ok(()))`. For conditions of other processes, which offer nothing to wait on.
///
/// # Errors
/// What `ready` returns, or a timeout that names `what` and what `ready` saw last (its `Err` within `Ok`).
pub fn await_condition(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> Result<std::result::Result<(), String>>,
) -> Result<()> {
    let start = Instant::now();
    loop {
        match ready()? {
            Ok(()) => return Ok(()),
            Err(detail) if start.elapsed() >= limit => {
                let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
                return Err(CampaignError::Timeout { what: what.into(), seconds: limit.as_secs(), detail });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> (standfast_testkit::TempDir, PathBuf) {
        let directory = standfast_testkit::TempDir::new(name).unwrap();
        let path = directory.join("log");
        (directory, path)
    }

    #[test]
    fn a_process_ends_with_its_owner_and_reports_what_it_wrote() {
        let (_directory, log) = log("process");
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; exec sleep 600"]);
        let process = Process::start(command, &log).unwrap();
        let pid = process.pid();
        assert!(!process.ended_within(Duration::ZERO));
        await_condition("the first line", Duration::from_secs(10), || {
            let written = std::fs::read_to_string(&log).unwrap_or_default();
            Ok(if written.contains("started") { Ok(()) } else { Err(written) })
        })
        .unwrap();
        assert!(process.failed("is tested").to_string().contains("| started"));
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn frozen_process_is_stopped_when_freeze_returns() {
        let (_directory, log) = log("frozen");
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let process = Process::start(command, &log).unwrap();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
            stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        for _ in 0..20 {
            process.freeze(true);
            assert_eq!(state(), 'T');
            process.freeze(false);
            assert_ne!(state(), 'T');
        }
    }

    #[test]
    fn exit_codes_and_timeouts_give_different_errors() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo why >&2; exit 3"]);
        let finished = run(command).unwrap();
        assert_eq!((finished.code, finished.stderr.as_str()), (3, "why\n"));
        assert!(finished.ok().unwrap_err().to_string().contains("| why"));
        let error = await_condition("never", Duration::ZERO, || Ok(Err("as it was".into()))).unwrap_err();
        assert_eq!(error.to_string(), "waited 0 s for: never (as it was)");
    }
}
