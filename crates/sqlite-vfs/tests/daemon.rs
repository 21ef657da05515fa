//! A process that becomes a daemon: it forks, closes every descriptor and opens others under their numbers.

#![allow(clippy::unwrap_used)]

#[path = "shim/fake.rs"]
mod fake;
#[allow(dead_code, reason = "shared with the other tests, which use more of it")]
#[path = "shim/support.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use support::{count, insert, load, open, protected};

/// Says to this program, started again, that it is the application, and of which database.
const APPLICATION: &str = "STANDFAST_TEST_APPLICATION";

fn application(path: &Path) -> ! {
    load();
    insert(&open(path)).unwrap();
    // SAFETY: no other thread of this process holds a lock that the child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: numbers of descriptors, which nothing in this process uses from here on.
        unsafe { (3..100).for_each(|descriptor| _ = libc::close(descriptor)) };
        let others: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null")).collect();
        let written = std::panic::catch_unwind(|| insert(&open(path)).unwrap());
        drop(others);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(written.is_err())) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    std::process::exit(i32::from(status != 0));
}

#[test]
fn a_daemon_that_closed_all_descriptors_writes_on() {
    if let Some(path) = std::env::var_os(APPLICATION) {
        application(Path::new(&path));
    }
    let (_scratch, _instance, path) = protected("daemon");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_daemon_that_closed_all_descriptors_writes_on"]).env(APPLICATION, &path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(count(&open(&path)), 2);
}
