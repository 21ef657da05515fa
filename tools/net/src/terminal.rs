//! Output of a command. A reader that has gone is not an error of the program.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Writes to stdout immediately. When its reader has gone, the process exits with 0, since the command has no other
/// purpose.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // A pipe or a file leaves the terminal as it is, and may be slow.
    let screen = out.is_terminal().then(words_come);
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
    drop(screen);
}

/// Writes a line to stderr. Such lines accompany a command, which continues when they cannot be written.
pub fn remark(line: Arguments<'_>) {
    let _screen = words_come();
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

struct Screen {
    /// When text was last written to it.
    spoke: Option<Instant>,
    /// The last line is a status line, which the next text replaces.
    status: bool,
}

static SCREEN: Mutex<Screen> = Mutex::new(Screen { spoke: None, status: false });

impl Screen {
    fn wipe(&mut self) {
        if std::mem::take(&mut self.status) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn screen() -> MutexGuard<'static, Screen> {
    // A thread that panicked left it consistent.
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wipes the status line and returns a guard that must be held while text is written.
fn words_come() -> MutexGuard<'static, Screen> {
    let mut screen = screen();
    screen.wipe();
    screen.spoke = Some(Instant::now());
    screen
}

/// Returns whether stderr is a terminal.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Returns when text was last written to the terminal; None before the first.
pub fn spoke() -> Option<Instant> {
    screen().spoke
}

/// Writes a status line to stderr, which the next output replaces.
pub fn status(line: &str) {
    let mut screen = screen();
    let _ = write!(std::io::stderr().lock(), "\r\x1b[K{line}");
    screen.status = true;
}

pub fn wipe() {
    screen().wipe();
}

macro_rules! say {
    ($($part:tt)*) => { $crate::terminal::print(&format!("{}\n", format_args!($($part)*))) };
}

macro_rules! tell {
    ($($part:tt)*) => { $crate::terminal::remark(format_args!($($part)*)) };
}

pub(crate) use {say, tell};
