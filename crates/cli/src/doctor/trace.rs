//! Runs a program and follows it, and all processes that it starts, with ptrace. It stops them where they open a file,
//! execute another program, or end, so the result does not depend on timing.

use super::copy::Contents;
use super::image::{self, Loaded};
use super::seccomp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CString, OsStr, OsString, c_int, c_void};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a process did from one `execve` to the next, or to its end.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub process: i32,
    pub command: String,
    pub loaded: Loaded,
    pub databases: BTreeMap<PathBuf, Opened>,
    /// Files that were empty or missing when it opened them; they may have become databases.
    new_files: BTreeSet<PathBuf>,
}

/// How often a database was opened. A process that uses the VFS reads the marker first, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Opened right after the marker was read.
    pub with_marker: u64,
    pub without: u64,
}

#[derive(Debug, Default)]
pub struct Observed {
    /// Exit code of the program, or 128 plus the signal that ended it.
    pub code: i32,
    /// In the order in which they ended.
    pub images: Vec<Image>,
}

/// Limit of new files recorded per image; the others are not recorded.
const NEW_FILES_MAX: usize = 4096;
const DATABASE_HEADER: &[u8; 16] = b"SQLite format 3\0";
const MARKER_SUFFIX: &[u8] = b"-standfast";

/// Progress of a thread from the marker of a database to the database.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The thread read the marker of this database; the next open of it is through the VFS.
    Marked(PathBuf),
    /// The thread opened it; it will read the marker once more.
    Opened(PathBuf),
}

/// Runs `command` to its end. With `apart`, its standard output goes to standard error.
///
/// # Errors
/// When it cannot be started or traced.
pub fn run(command: &[OsString], apart: bool) -> Result<Observed> {
    let root = start(command, apart)?;
    let mut tracer = Tracer { root, ..Tracer::default() };
    tracer.follow()?;
    Ok(tracer.observed)
}

/// Starts the program, traced from its first instruction.
fn start(command: &[OsString], apart: bool) -> Result<libc::pid_t> {
    let words = command.iter().map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<std::result::Result<Vec<_>, _>>()?;
    let mut arguments: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    arguments.push(std::ptr::null());
    let program = *arguments.first().unwrap_or(&std::ptr::null());
    if program.is_null() {
        return Err(Error::from(ErrorKind::InvalidInput));
    }
    let (mut resume, mut may_go) = std::io::pipe()?;
    let (mut failed, mut failure) = std::io::pipe()?;
    // SAFETY: this process has one thread; the child calls async-signal-safe functions and execvp, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(Error::last_os_error());
    }
    if child == 0 {
        drop(may_go);
        let mut byte = [0];
        let result = resume.read_exact(&mut byte).and_then(|()| {
            // SAFETY: numbers only.
            unsafe {
                if apart {
                    libc::dup2(2, 1);
                }
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            }
            seccomp::install()
        });
        let error = match result {
            Err(error) => error,
            Ok(()) => {
                // SAFETY: C strings that end with zero, and a list of them that ends with null.
                unsafe { libc::execvp(program, arguments.as_ptr()) };
                Error::last_os_error()
            }
        };
        let _ = failure.write_all(&error.raw_os_error().unwrap_or(libc::EIO).to_ne_bytes());
        // SAFETY: ends this process, without the exit handlers of its parent.
        unsafe { libc::_exit(127) };
    }
    drop((resume, failure));
    let options = libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: a child that waits for this process; numbers only.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, child, std::ptr::null_mut::<c_void>(), options as usize) }
        != 0
    {
        let error = Error::last_os_error();
        // SAFETY: the child is not reaped yet; numbers only.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), libc::__WALL);
        }
        return Err(error);
    }
    // SAFETY: numbers only. An interrupt is meant for the program; this process ignores it, to report what the program
    // did.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
    }
    may_go.write_all(&[1])?;
    let mut code = [0; 4];
    // Waits for the exec, which closes the pipe, or for the end of the child.
    pump_until_executed(child, &mut failed, &mut code)?;
    Ok(child)
}

/// Waits until the child has executed the program, or has reported why it cannot.
fn pump_until_executed(child: libc::pid_t, failed: &mut impl Read, code: &mut [u8; 4]) -> Result<()> {
    loop {
        let Some((_, status)) = wait(child)? else { return Err(Error::from(ErrorKind::NotFound)) };
        let event = status >> 16;
        let executed = libc::WIFSTOPPED(status) && event == libc::PTRACE_EVENT_EXEC;
        if executed {
            resume(child, 0);
            return Ok(());
        }
        let ended = !libc::WIFSTOPPED(status);
        if ended {
            return match failed.read_exact(code) {
                Ok(()) => Err(Error::from_raw_os_error(i32::from_ne_bytes(*code))),
                Err(_) => Err(Error::other("it ended before it ran the program")),
            };
        }
        resume(child, if event == 0 { libc::WSTOPSIG(status) } else { 0 });
    }
}

/// Returns the next child that stopped or ended; `None` when none is left.
fn wait(which: libc::pid_t) -> Result<Option<(libc::pid_t, c_int)>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` has room for the status.
        let found = unsafe { libc::waitpid(which, &mut status, libc::__WALL) };
        if found > 0 {
            return Ok(Some((found, status)));
        }
        let error = Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(error),
        }
    }
}

/// Resumes a stopped thread, with a signal. If it was killed meanwhile, `wait` reports that.
fn resume(thread: libc::pid_t, signal: c_int) {
    // SAFETY: a traced thread; numbers only.
    unsafe { libc::ptrace(libc::PTRACE_CONT, thread, std::ptr::null_mut::<c_void>(), signal as usize) };
}

#[derive(Default)]
struct Tracer {
    root: libc::pid_t,
    contents: Contents,
    processes: HashMap<libc::pid_t, libc::pid_t>,
    running: HashMap<libc::pid_t, Image>,
    steps: HashMap<libc::pid_t, Step>,
    observed: Observed,
}

impl Tracer {
    fn follow(&mut self) -> Result<()> {
        while let Some((thread, status)) = wait(-1)? {
            if libc::WIFSTOPPED(status) {
                self.stopped(thread, libc::WSTOPSIG(status), status >> 16);
                continue;
            }
            if thread == self.root {
                self.observed.code = match libc::WIFSIGNALED(status) {
                    true => 128 + libc::WTERMSIG(status),
                    false => libc::WEXITSTATUS(status),
                };
            }
            self.steps.remove(&thread);
            if self.processes.remove(&thread) == Some(thread) {
                self.end_image(thread);
            }
        }
        let left: Vec<_> = self.running.keys().copied().collect();
        left.into_iter().for_each(|process| self.end_image(process));
        Ok(())
    }

    fn stopped(&mut self, thread: libc::pid_t, signal: c_int, event: c_int) {
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        match event {
            libc::PTRACE_EVENT_SECCOMP => self.called(thread),
            libc::PTRACE_EVENT_EXEC => {
                // From here on another program, in the main thread of the process.
                let process = self.process(thread);
                self.end_image(process);
                self.image(process);
            }
            libc::PTRACE_EVENT_EXIT => self.look(thread),
            libc::PTRACE_EVENT_STOP if stops.contains(&signal) => {
                // It stays stopped until it gets SIGCONT, as it would untraced.
                // SAFETY: a traced thread; numbers only.
                unsafe { libc::ptrace(libc::PTRACE_LISTEN, thread, std::ptr::null_mut::<c_void>(), 0usize) };
                return;
            }
            0 => return resume(thread, signal),
            _ => {}
        }
        resume(thread, 0);
    }

    fn process(&mut self, thread: libc::pid_t) -> libc::pid_t {
        *self.processes.entry(thread).or_insert_with(|| image::process_of(thread))
    }

    fn image(&mut self, process: libc::pid_t) -> &mut Image {
        self.running.entry(process).or_insert_with(|| Image {
            process,
            command: image::command_line(process),
            ..Image::default()
        })
    }

    fn look(&mut self, thread: libc::pid_t) {
        let process = self.process(thread);
        let loaded = image::look(thread, &mut self.contents);
        self.image(process).loaded.add(loaded);
    }

    fn end_image(&mut self, process: libc::pid_t) {
        let Some(mut image) = self.running.remove(&process) else { return };
        for path in std::mem::take(&mut image.new_files) {
            if is_database(&path) {
                image.databases.entry(path).or_default().without += 1;
            }
        }
        self.observed.images.push(image);
    }

    /// Handles a thread that is about to open a file, or to execute another program.
    fn called(&mut self, thread: libc::pid_t) {
        let Some((number, arguments)) = system_call(thread) else { return };
        if [libc::SYS_execve, libc::SYS_execveat].contains(&number) {
            // A successful exec unmaps what is mapped now.
            return self.look(thread);
        }
        let (directory, path) = match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => (libc::AT_FDCWD, arguments[0]),
            _ => (arguments[0] as i32, arguments[1]),
        };
        let Some(path) = text(thread, path) else { return };
        if ["/proc/", "/sys/", "/dev/"].iter().any(|system| path.starts_with(system)) {
            return;
        }
        let path = image::resolve(thread, directory, Path::new(&path));
        // SQLite opens files by their real path, without links and dots.
        let path = canonical(&path).unwrap_or(path);
        self.opens(thread, path);
    }

    fn opens(&mut self, thread: libc::pid_t, path: PathBuf) {
        if let Some(database) = path.as_os_str().as_bytes().strip_suffix(MARKER_SUFFIX) {
            let database = PathBuf::from(OsStr::from_bytes(database));
            match self.steps.remove(&thread) {
                Some(Step::Opened(opened)) if opened == database => {}
                _ => drop(self.steps.insert(thread, Step::Marked(database))),
            }
            return;
        }
        let length =
            std::fs::metadata(&path).map(|metadata| if metadata.is_file() { metadata.len() } else { 1 });
        if matches!(length, Ok(1..)) && !is_database(&path) {
            return;
        }
        let process = self.process(thread);
        if !matches!(length, Ok(1..)) {
            let image = self.image(process);
            if image.new_files.len() < NEW_FILES_MAX {
                image.new_files.insert(path);
            }
            return;
        }
        let marked = self.steps.remove(&thread) == Some(Step::Marked(path.clone()));
        if marked {
            self.steps.insert(thread, Step::Opened(path.clone()));
        }
        // Inspected now, because this SQLite may be unloaded later.
        self.look(thread);
        let opened = self.image(process).databases.entry(path).or_default();
        match marked {
            true => opened.with_marker += 1,
            false => opened.without += 1,
        }
    }
}

/// Number and arguments of the system call at which a thread is stopped.
fn system_call(thread: libc::pid_t) -> Option<(libc::c_long, [u64; 6])> {
    /// `struct ptrace_syscall_info`, in words: kind, two addresses, number, six arguments, data.
    const WORDS: usize = 11;
    let mut words = [0u64; WORDS];
    // SAFETY: `words` has room for the announced number of bytes.
    let result = unsafe {
        libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size_of_val(&words), words.as_mut_ptr())
    };
    (result > 0).then_some(())?;
    let arguments = words[4..10].first_chunk::<6>()?;
    Some((libc::c_long::try_from(words[3]).ok()?, *arguments))
}

/// Reads the C string at an address in the memory of a stopped thread.
fn text(thread: libc::pid_t, address: u64) -> Option<String> {
    const PAGE: u64 = 4096;
    let mut bytes = Vec::new();
    let mut at = address;
    // Never reads beyond the page in which the string may end, nor more than the longest path.
    while bytes.len() < libc::PATH_MAX as usize {
        let mut part = vec![0; (PAGE - at % PAGE) as usize];
        let read = image::read_memory(thread, at, &mut part).ok()?;
        if let Some(end) = part[..read].iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(&part[..end]);
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        if read < part.len() {
            return None;
        }
        bytes.extend_from_slice(&part);
        at += read as u64;
    }
    None
}

/// The path without links and dots; for a missing file, that of its directory is resolved.
fn canonical(path: &Path) -> Option<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Some(path);
    }
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

/// Whether the file begins like a database. Devices and pipes are excluded, because opening them has effects.
fn is_database(path: &Path) -> bool {
    let is_file = || std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let header = || {
        let mut header = [0; DATABASE_HEADER.len()];
        std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut header)).map(|()| header)
    };
    is_file() && header().is_ok_and(|header| header == *DATABASE_HEADER)
}
