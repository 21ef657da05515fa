//! What `standfast net` shows while a document is awaited: a line on the terminal, and nothing without one.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Server, standfast};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr::{null, null_mut};

/// A pseudo-terminal: the user's side, and the program's.
fn terminal() -> (File, OwnedFd) {
    let (mut near, mut far) = (-1, -1);
    // SAFETY: both places are writable; nothing else is asked for.
    assert_eq!(unsafe { libc::openpty(&mut near, &mut far, null_mut(), null(), null()) }, 0);
    for fd in [near, far] {
        // SAFETY: only sets a flag of a descriptor that this test owns. A server of another test must not keep it open.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
    }
    // SAFETY: both were opened just now, and nothing else owns them.
    unsafe { (File::from_raw_fd(near), OwnedFd::from_raw_fd(far)) }
}

/// All output on a terminal until its last program ended; Linux then returns EIO.
fn appeared(mut near: File) -> String {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(bytes @ 1..) = near.read(&mut buffer) {
        all.extend_from_slice(&buffer[..bytes]);
    }
    String::from_utf8(all).unwrap()
}

/// Stdout, and what a terminal as stderr showed.
fn with_a_terminal(mut command: Command) -> (String, String) {
    let (near, far) = terminal();
    let mut child = command.stdout(Stdio::piped()).stderr(far).spawn().unwrap();
    // Closes this process's copy of the program's side.
    drop(command);
    let mut out = child.stdout.take().unwrap();
    let looking = std::thread::spawn(move || appeared(near));
    let mut printed = String::new();
    out.read_to_string(&mut printed).unwrap();
    assert!(child.wait().unwrap().success());
    (printed, looking.join().unwrap())
}

#[test]
fn progress_is_shown_on_the_terminal_and_not_in_the_result() {
    let server = Server::start("terminal");
    let client =
        format!("net client 127.0.0.1 --port {} --rate 1MiB/s --length 8k --duration 3s", server.port);
    for format in ["--json", "--format ndjson", "--format csv --interval 500ms"] {
        let (printed, shown) = with_a_terminal(standfast(&format!("{client} {format}")));
        assert!(shown.contains("s of 3 s, to server: "), "{format}: {shown:?}");
        assert!(shown.ends_with("\r\x1b[K"), "the line is taken away at the end: {shown:?}");
        assert!(!printed.contains('\x1b') && !printed.contains(" of 3 s"), "{format}: {printed}");
    }
    let (printed, _) = with_a_terminal(standfast(&format!("{client} --json")));
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["status"], "ok");
}

#[test]
fn searches_and_disk_tests_show_their_current_step() {
    let server = Server::start("searches");
    let sweep = format!(
        "net sweep 127.0.0.1 --port {} --duration 1s --max-window 64k --max-streams 1 --json",
        server.port
    );
    let (printed, shown) = with_a_terminal(standfast(&sweep));
    assert!(shown.contains("connections to server: "), "{shown:?}");
    assert!(serde_json::from_str::<Value>(&printed).is_ok(), "{printed}");
    let disk = format!("net disk --dir {} --length 4k --duration 2500ms --json", server.directory.display());
    let (printed, shown) = with_a_terminal(standfast(&disk));
    assert!(shown.contains(" of 5 s, writes of 4 kbytes, members: "), "{shown:?}");
    assert!(serde_json::from_str::<Value>(&printed).is_ok(), "{printed}");
}

#[test]
fn no_progress_is_shown_without_a_terminal() {
    let server = Server::start("pipe");
    let words = format!("net client 127.0.0.1 --port {} --length 0 --duration 2500ms --json", server.port);
    let output = standfast(&words).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
