//! Readers of the instance's output that do not read or are gone, signals of a terminal, and threads that die.

use crate::support::{INSERT, Place, await_alert, must, start};
use standfast_campaign::instance::Instance;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

/// The minimum capacity of a pipe.
const PIPE_BYTES: libc::c_int = 4096;

/// Makes stderr of `instance` a pipe and returns its read end.
fn pipe_as_stderr(instance: &Instance) -> File {
    let path = instance.output_path();
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let _ = std::fs::remove_file(&path);
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    // SAFETY: the descriptor is open and is a pipe.
    assert_eq!(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) }, PIPE_BYTES);
    reader
}

fn hang_up(instance: &Instance) {
    let pid = instance.process().unwrap().pid();
    // SAFETY: kill has no memory preconditions; the child is not reaped before the instance is stopped.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGHUP) }, 0);
}

#[test]
fn unread_stderr_and_a_hangup_do_not_block_an_instance() {
    let place = Place::new("readers");
    let mut primary = place.instance("south");
    let reader = pipe_as_stderr(&primary);
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    // One line each: together more than the pipe holds.
    for number in 1..=100 {
        hang_up(&primary);
        let lines = |instance: &Instance| instance.alerts().matches(" SIGHUP: ").count();
        let what = format!("{number} lines of SIGHUP");
        standfast_campaign::process::await_condition(&what, crate::support::TIMEOUT, || {
            let found = lines(&primary);
            Ok(if found >= number { Ok(()) } else { Err(found.to_string()) })
        })
        .unwrap_or_else(|error| panic!("{error}"));
    }
    // Also a line of the log writer's thread.
    application.run(INSERT);
    must(&primary, &["switch-logfile"]);
    application.run(INSERT);
    drop(reader);
    must(&primary, &["switch-logfile"]);
    await_alert(&primary, "stderr of this instance cannot be written: Broken pipe");
    application.run(INSERT);
    must(&primary, &["checkpoint"]);
    application.close();
    primary.stop().unwrap();
}

#[test]
fn a_thread_that_dies_ends_the_instance_with_its_reason() {
    let place = Place::new("dead-thread");
    let mut primary = place.instance("south");
    primary.faults = Some("database-sync=panic".into());
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert!(!primary.run(&["checkpoint"]).unwrap().stderr.is_empty());
    let process = primary.take_process().unwrap();
    assert!(!process.wait_for_end(crate::support::TIMEOUT).unwrap().success());
    await_alert(&primary, "THREAD DIED: `ckpt` panicked");
    primary.faults = None;
    start(&mut primary);
    application.run(INSERT);
    assert_eq!(application.run("SELECT count(*) FROM t")[0][0], 3);
}
