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

/// A test's own directory. Names are unique within a test program.
pub fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("standfast-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

pub fn free_port() -> u16 {
    standfast_testkit::reserved_port().unwrap()
}

/// Starts a server; returns it once it listens, with the rest of its output.
pub fn listening(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("server started"), "{line}");
    (child, out)
}

/// Discards the output of a server, so that the server never blocks on a full pipe.
pub fn ignore(mut out: BufReader<ChildStdout>) {
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
}

/// A server in a directory of its own; dropping it removes both.
pub struct Server {
    child: Child,
    pub port: u16,
    pub directory: PathBuf,
}

impl Server {
    pub fn start(name: &str) -> Server {
        Server::start_as(name, |_| standfast(""))
    }

    /// `program` builds the command that runs the tool; it is given the directory.
    pub fn start_as(name: &str, program: impl FnOnce(&Path) -> Command) -> Server {
        let (directory, port) = (scratch(name), free_port());
        let mut command = program(&directory);
        command.args(["net", "server", "--bind", "127.0.0.1", "--port", &port.to_string()]);
        let (child, out) = listening(command.arg(format!("--file={}", directory.join("file").display())));
        ignore(out);
        Server { child, port, directory }
    }

    /// `net VERB` against this server, with more arguments.
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
