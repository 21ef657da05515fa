//! Network test servers as processes. Every test program that starts one uses a part of this.

#![allow(dead_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

pub fn standfast(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standfast"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command
}

/// A directory of a test's own. Names are unique within a test program.
pub fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("standfast-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

pub fn free_port() -> u16 {
    standfast_testkit::reserved_port().unwrap()
}

/// Starts a server and returns when it listens, with the rest of what it says.
pub fn listening(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("server started"), "{line}");
    (child, out)
}

/// What a server says is read, so that it never waits for the test.
pub fn ignore(mut out: BufReader<ChildStdout>) {
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
}

/// A server in a directory of its own; both are gone when it is dropped.
pub struct Server {
    child: Child,
    pub port: u16,
    pub directory: PathBuf,
}

impl Server {
    pub fn start(name: &str) -> Server {
        Server::start_as(name, |_| standfast(""))
    }

    /// `program` is the command line tool, started in some way; it is given the directory.
    pub fn start_as(name: &str, program: impl FnOnce(&Path) -> Command) -> Server {
        let (directory, port) = (scratch(name), free_port());
        let mut command = program(&directory);
        command.args(["net", "server", "--bind", "127.0.0.1", "--port", &port.to_string()]);
        let (child, out) = listening(command.arg(format!("--file={}", directory.join("file").display())));
        ignore(out);
        Server { child, port, directory }
    }

    /// `net VERB` against it, with more words.
    pub fn net(&self, verb: &str, words: &str) -> Command {
        standfast(&format!("net {verb} 127.0.0.1 --port {} {words}", self.port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
