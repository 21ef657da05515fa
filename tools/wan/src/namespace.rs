//! Named network namespaces, as `ip netns` has them: `ip netns exec NAME ...` works for these as well.

use crate::clock::wait_readable;
use crate::error::Doing;
use crate::{Result, WanError};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const DIRECTORY: &str = "/run/netns";
/// Time that processes get to end after SIGTERM, and again after SIGKILL.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Path of the namespace with this name.
pub fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Checks that this process may create namespaces; the error names the missing capabilities.
pub fn check() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status").doing(|| "read /proc/self/status".into())?;
    match missing_rights(&status) {
        missing if missing.is_empty() => Ok(()),
        missing => Err(WanError::refused(
            format!("network namespaces need root: {} missing", missing.join(" and ")),
            "run it as root; in a container, add the capabilities",
        )),
    }
}

fn missing_rights(status: &str) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    // Numbers of linux/capability.h.
    let needed = [("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21)];
    needed.into_iter().filter(|(_, bit)| rights >> bit & 1 == 0).map(|(name, _)| name).collect()
}

/// Creates a namespace and runs `inside` in it, on a thread that ends afterwards.
pub fn create<T: Send>(name: &str, inside: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    prepare_directory().doing(|| format!("prepare {DIRECTORY}"))?;
    let path = path(name);
    on_a_thread(|| {
        File::create_new(&path).doing(|| format!("create {}", path.display()))?;
        // SAFETY: unshare takes flags; it concerns this thread only, which ends with its namespace.
        check_call(unsafe { libc::unshare(libc::CLONE_NEWNET) })
            .doing(|| "make a network namespace".into())?;
        mount(Path::new("/proc/thread-self/ns/net"), &path, libc::MS_BIND)
            .doing(|| format!("mount the namespace on {}", path.display()))?;
        // The links carry IPv4. IPv6 packets that a node sends by itself would consume random numbers of the link. A
        // result that another test left in the TCP metrics cache would change the next one.
        for (setting, value) in [
            ("ipv6/conf/all/disable_ipv6", "1"),
            ("ipv6/conf/default/disable_ipv6", "1"),
            ("ipv4/tcp_no_metrics_save", "1"),
        ] {
            let file = Path::new("/proc/sys/net").join(setting);
            match fs::write(&file, value) {
                // A kernel without IPv6 needs no setting.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                done => done.doing(|| format!("write {}", file.display()))?,
            }
        }
        inside()
    })
}

/// Runs `inside` in a namespace, on a thread that ends afterwards. Sockets created there stay there.
pub fn within<T: Send>(name: &str, inside: impl FnOnce() -> T + Send) -> Result<T> {
    let file = open(name)?;
    on_a_thread(|| enter(&file).doing(|| format!("enter the namespace {name}")).map(|()| inside()))
}

/// Returns a command that will run in a namespace.
pub fn command(name: &str, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
    let file = open(name)?;
    let mut command = Command::new(program);
    // SAFETY: between fork and exec only setns is called, which is async-signal-safe and allocates nothing; the closure
    // owns the descriptor.
    unsafe { command.pre_exec(move || enter(&file)) };
    Ok(command)
}

fn open(name: &str) -> Result<File> {
    let path = path(name);
    File::open(&path).doing(|| format!("open {}", path.display()))
}

fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: setns takes a descriptor, which is open, and a flag; it concerns this thread only.
    check_call(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Ends all processes in a namespace and removes it. A namespace that does not exist is no error.
pub fn remove(name: &str) -> Result<()> {
    let path = path(name);
    end_processes(&path)?;
    let target = c_path(&path);
    // SAFETY: the path is a string that lives across the call. MNT_DETACH: a process that still holds the namespace
    // keeps it.
    let unmounted = check_call(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) });
    match unmounted {
        // Not mounted: its creator was killed between creating the file and the mount.
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
            Err(error).doing(|| format!("unmount {}", path.display()))?;
        }
        _ => {}
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done.doing(|| format!("remove {}", path.display())),
    }
}

/// Without this, a process in a deleted namespace would continue there unnoticed and without a network.
fn end_processes(path: &Path) -> Result<()> {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let processes = processes_in(path);
        if processes.is_empty() {
            return Ok(());
        }
        for process in &processes {
            // SAFETY: takes a descriptor, which is open, and numbers; no siginfo is passed.
            unsafe {
                let fd = process.as_raw_fd();
                libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, std::ptr::null::<libc::siginfo_t>(), 0)
            };
        }
        let until = Instant::now() + TIMEOUT;
        for process in &processes {
            let left = until.saturating_duration_since(Instant::now());
            let waited = wait_readable(&[process.as_fd()], Some(left.as_nanos() as u64));
            waited.doing(|| "wait for a process to end".into())?;
        }
    }
    match processes_in(path).len() {
        0 => Ok(()),
        left => Err(WanError::refused(
            format!("{left} processes in {} do not end", path.display()),
            "end them and start again: ip netns pids NAME",
        )),
    }
}

/// Handles of all processes in a namespace except this one.
fn processes_in(path: &Path) -> Vec<OwnedFd> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let Some(wanted) = identity(path) else { return Vec::new() };
    let Ok(listed) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let others = numbers.filter(|number| *number != std::process::id());
    let inside = |number: &u32| identity(&PathBuf::from(format!("/proc/{number}/ns/net"))) == Some(wanted);
    // Checked again with the handle open: then it is certainly the process that was meant.
    others.filter(inside).filter_map(|number| handle(number).filter(|_| inside(&number))).collect()
}

fn handle(process: u32) -> Option<OwnedFd> {
    // SAFETY: takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    // SAFETY: the descriptor was just created, and nothing else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Makes the directory a shared mount, as `ip netns` does. Otherwise a mount namespace created later keeps a copy of
/// every name, and what is removed here stays there.
fn prepare_directory() -> io::Result<()> {
    let directory = Path::new(DIRECTORY);
    fs::create_dir_all(directory)?;
    let share = || mount(Path::new(""), directory, libc::MS_SHARED | libc::MS_REC);
    match share() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            mount(directory, directory, libc::MS_BIND | libc::MS_REC)?;
            share()
        }
        done => done,
    }
}

fn mount(source: &Path, target: &Path, flags: libc::c_ulong) -> io::Result<()> {
    let (source, target) = (c_path(source), c_path(target));
    // SAFETY: the strings live across the call; binding and sharing take neither type nor data.
    check_call(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), c"none".as_ptr(), flags, std::ptr::null())
    })
}

fn c_path(path: &Path) -> CString {
    // The paths are made of checked names; a name with a zero byte would become an empty path.
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn check_call(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_reported_by_name() {
        assert_eq!(missing_rights("CapEff:\t000001ffffffffff\n"), Vec::<&str>::new());
        assert_eq!(missing_rights("CapEff:\t0000000000200000\n"), ["CAP_NET_ADMIN"]);
        assert_eq!(missing_rights(""), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
    }
}
