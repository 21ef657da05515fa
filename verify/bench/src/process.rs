//! Processes and scratch directories that end with the value that owns them.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::During;
use crate::{BenchError, Result, interrupt, processes};

/// How long a process may take to end on request before it is killed.
const GRACE: Duration = Duration::from_secs(15);

/// A running process. Dropping it sends its end signal, waits, and kills it when it does not end in time.
pub struct Process {
    child: Child,
    handle: OwnedFd,
    name: String,
    log: Option<PathBuf>,
    end_signal: libc::c_int,
    reaped: bool,
}

impl Process {
    /// Starts `command`; its standard error (and standard output, unless the command pipes it) goes to `log`.
    /// `end_signal` makes the program clean up and end.
    pub fn start(mut command: Command, log: Option<&Path>, end_signal: libc::c_int) -> Result<Process> {
        let name = describe(&command);
        if let Some(log) = log {
            let file = File::create(log).during(|| format!("create {}", log.display()))?;
            command.stderr(file.try_clone().during(|| "duplicate a descriptor".into())?);
            command.stdout(file).stdin(Stdio::null());
        }
        die_with_parent(&mut command);
        let child = command.spawn().during(|| format!("start {name}"))?;
        let pid = child.id() as libc::pid_t;
        // SAFETY: the call takes no pointers; pid is our unreaped child.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if descriptor < 0 {
            let source = std::io::Error::last_os_error();
            interrupt::send(pid, libc::SIGKILL);
            return Err(BenchError::Io { what: "open a process descriptor".into(), source });
        }
        interrupt::register(pid, end_signal);
        // SAFETY: pidfd_open returned a new descriptor that nothing else owns.
        let handle = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Process { child, handle, name, log: log.map(Path::to_owned), end_signal, reaped: false })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the end of the process, at most for `limit`; returns false when it still runs.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&mut poll, 1, limit.as_millis().min(i32::MAX as u128) as i32) == 1 }
    }

    pub fn signal(&self, signal: libc::c_int) {
        interrupt::send(self.pid() as libc::pid_t, signal);
    }

    /// Sends the end signal and waits. Fails when the process had to be killed.
    pub fn stop(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        if self.reaped {
            return Ok(());
        }
        let pid = self.pid() as libc::pid_t;
        interrupt::send(pid, self.end_signal);
        let in_time = self.wait(GRACE);
        if !in_time {
            interrupt::send(pid, libc::SIGKILL);
        }
        interrupt::forget(pid);
        let waited = self.child.wait();
        self.reaped = true;
        if in_time {
            return waited.map(|_| ()).during(|| format!("wait for {}", self.name));
        }
        Err(self.failed(&format!("did not end within {} s and was killed", GRACE.as_secs())))
    }

    /// Makes an error about this process, with the last lines of its log.
    pub fn failed(&self, problem: &str) -> BenchError {
        let output = self.log.as_ref().and_then(|log| std::fs::read_to_string(log).ok()).unwrap_or_default();
        BenchError::Program {
            program: self.name.clone(),
            problem: problem.into(),
            output: last_lines(&output),
        }
    }

    /// Waits until `ready` returns true. Fails when the process ends first, or `limit` passes.
    pub fn await_ready(
        &self,
        what: &str,
        limit: Duration,
        mut ready: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        interrupt::await_other(what, limit, || {
            if self.wait(Duration::ZERO) {
                interrupt::check()?;
                return Err(self.failed("ended by itself"));
            }
            ready()
        })
        .map_err(|error| match error {
            BenchError::Program { problem, .. } if problem.starts_with("not so") => {
                self.failed(&format!("{what}: {problem}"))
            }
            other => other,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            eprintln!("note: {error}");
        }
    }
}

/// Makes the kernel kill the child when this process dies. The kernel ties this to the thread that started the child,
/// so processes are started from threads that live as long as the measurement.
fn die_with_parent(command: &mut Command) {
    // A process group of its own: Ctrl-C in the terminal reaches only this process, which ends its children in order.
    command.process_group(0);
    // SAFETY: all three calls are async-signal-safe and touch only the set, which is initialised first.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // The child inherits the signals that this process blocks in order to wait for them. A program that only
            // installs a handler would then never end.
            let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            Ok(())
        });
    }
}

/// Runs a command to its end and returns its standard output. Fails when the command does.
pub fn run(command: &mut Command) -> Result<String> {
    run_accepting(command, &[0])
}

/// Runs a command like [`run`]; every exit code in `codes` is success.
pub fn run_accepting(command: &mut Command, codes: &[i32]) -> Result<String> {
    interrupt::check()?;
    let name = describe(command);
    die_with_parent(command);
    let output = command.stdin(Stdio::null()).output().during(|| format!("start {name}"))?;
    interrupt::check()?;
    if output.status.code().is_some_and(|code| codes.contains(&code)) {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(BenchError::Program { program: name, problem: output.status.to_string(), output: both(&output) })
}

fn both(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    last_lines(&text)
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].iter().map(|line| format!("\n  | {line}")).collect()
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = command.get_args().map(|word| word.to_string_lossy());
    words.fold(program.to_string_lossy().into_owned(), |all, word| {
        if all.len() + word.len() > 120 { all } else { all + " " + &word }
    })
}

/// Creates `directory` if it is missing. Fails when it is on a file system in memory.
pub fn make_on_disk(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).during(|| format!("create {}", directory.display()))?;
    if processes::is_in_memory(directory) {
        return Err(BenchError::InMemory(directory.to_owned()));
    }
    Ok(())
}

/// A directory that is removed with its content when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a new directory under `base`, which must be on a real disk.
    pub fn new(base: &Path) -> Result<Scratch> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        make_on_disk(base)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("standfast-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).during(|| format!("create {}", path.display()))?;
        Ok(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).during(|| format!("create {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("note: cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> Scratch {
        Scratch::new(Path::new("/var/tmp")).unwrap()
    }

    #[test]
    fn scratch_directory_is_removed_with_its_owner() {
        let scratch = scratch();
        let path = scratch.directory("a/b").unwrap();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn a_process_ends_with_its_owner() {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped());
        let process = Process::start(command, None, libc::SIGTERM).unwrap();
        let pid = process.pid();
        assert!(!process.wait(Duration::ZERO));
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn awaited_signals_are_not_blocked_in_child_processes() {
        interrupt::install();
        let status = run(Command::new("grep").args(["SigBlk", "/proc/self/status"])).unwrap();
        assert_eq!(status.split_whitespace().last(), Some("0000000000000000"));
    }

    #[test]
    fn a_failure_shows_what_the_program_wrote() {
        let error = run(Command::new("sh").args(["-c", "echo out; echo why >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status: 3") && text.contains("| why"), "{text}");
        let code = |accepted: &[i32]| run_accepting(Command::new("sh").args(["-c", "exit 3"]), accepted);
        assert!(code(&[0, 3]).is_ok() && code(&[0, 2]).is_err());
        let error = run(&mut Command::new("/nonexistent/program")).unwrap_err();
        assert!(error.to_string().starts_with("start program"), "{error}");
    }

    #[test]
    fn a_process_that_dies_while_awaited_is_reported_with_its_log() {
        let scratch = scratch();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no licence >&2; exit 1"]);
        let process = Process::start(command, Some(&scratch.path().join("log")), libc::SIGTERM).unwrap();
        let error = process.await_ready("ready", Duration::from_secs(20), || Ok(false)).unwrap_err();
        assert!(error.to_string().contains("no licence"), "{error}");
    }
}
