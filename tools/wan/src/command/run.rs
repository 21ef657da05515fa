//! `standfast wan run`: an emulator in the foreground.

use super::arguments::RunArgs;
use super::lateness::late;
use super::show;
use crate::clock::wait_readable;
use crate::error::Doing;
use crate::signals::Signals;
use crate::wan::Wan;
use crate::{Result, WanError};
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

/// Emulates until a signal, `wan stop`, or the end of the command; returns the exit code.
pub fn main(args: &RunArgs) -> Result<u8> {
    let ready = args.ready_fd.map(ready_file).transpose()?;
    // Before any thread starts, so that all of them inherit the signal mask.
    let signals = Signals::catch().doing(|| "catch signals".into())?;
    let wan = Wan::start(args.config()?)?;
    announce(&wan, ready, args)?;
    let code = match args.command.split_first() {
        None => wait(&wan, &signals, None)?,
        Some((program, words)) => {
            let spawned = wan.command(&wan.nodes()[0].name, program)?.args(words).spawn();
            let mut child = spawned.doing(|| format!("run {program}"))?;
            wait(&wan, &signals, Some(&mut child))?
        }
    };
    let stats = wan.control().stats(false);
    drop(wan);
    match (args.json, args.command.is_empty()) {
        (true, _) => show::json(&stats),
        (false, true) => eprint!("{}", show::table(&stats)),
        (false, false) => {}
    }
    match (code, late(&stats, args.fail_late)) {
        (0, late) => Ok(late),
        (code, _) => Ok(code),
    }
}

/// Takes over the descriptor that the caller opened for this process.
fn ready_file(number: i32) -> Result<File> {
    // SAFETY: only queries whether the descriptor is open.
    let open = number > 2 && unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    if !open {
        return Err(WanError::usage(
            format!("--ready-fd: {number} is not an open file descriptor above 2"),
            "open it for the command: standfast wan run lab --ready-fd 3 3>FILE",
        ));
    }
    // SAFETY: the caller opened it for this purpose, nothing else here uses it, and it is taken once. This process has
    // no descriptors of its own yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) }.into())
}

/// Announces on all configured channels that the nodes can be used.
fn announce(wan: &Wan, ready: Option<File>, args: &RunArgs) -> Result<()> {
    if let Some(mut file) = ready {
        file.write_all(b"ready\n").doing(|| "write to the descriptor of --ready-fd".into())?;
    }
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        notify(&path).doing(|| "notify the service manager".into())?;
    }
    let emulator = wan.control();
    if args.json {
        show::print(&format!("{}\n", json!({ "ready": emulator.name, "nodes": wan.nodes() })));
    } else if args.command.is_empty() {
        let nodes = wan.nodes().iter().map(|node| format!(" {}={}", node.name, node.address));
        show::print(&format!("ready {}{}\n", emulator.name, nodes.collect::<String>()));
    }
    Ok(())
}

fn notify(path: &std::ffi::OsStr) -> io::Result<()> {
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(|_| ())
}

/// Waits for the end and returns the exit code so far. With a command, signals are forwarded to it.
fn wait(wan: &Wan, signals: &Signals, mut child: Option<&mut Child>) -> Result<u8> {
    loop {
        let descriptors = [signals.as_fd(), wan.stop_asked().as_fd()];
        wait_readable(&descriptors, None).doing(|| "wait for the end".into())?;
        if wan.stop_asked().take() {
            return Ok(0);
        }
        if let Some(child) = &mut child
            && let Some(status) = child.try_wait().doing(|| "wait for the command".into())?
        {
            return Ok(exit_code(status));
        }
        match (signals.take(), &child) {
            (None, _) => {}
            (Some(signal), _) if signal.number == libc::SIGCHLD => {}
            (Some(signal), Some(child)) => signal.forward(child.id()),
            (Some(_), None) => return Ok(0),
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or_else(signal) as u8
}
