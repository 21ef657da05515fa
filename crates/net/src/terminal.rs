//! What a command prints. A reader that went away is no error of the program.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// To stdout, at once. Nobody reads any more: the command is not worth more than that, and the process ends.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // A pipe or a file leaves the terminal as it is, and may take its time.
    let screen = out.is_terminal().then(words_come);
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
    drop(screen);
}

/// A line to stderr. What is said there accompanies a command, which goes on when nobody hears it.
pub fn remark(line: Arguments<'_>) {
    let _screen = words_come();
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// What stands on the terminal.
struct Screen {
    /// When something was said there.
    spoke: Option<Instant>,
    /// The last line is a status, which gives way to words.
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
    // A thread that panicked has left it whole.
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// To be held while words are printed.
fn words_come() -> MutexGuard<'static, Screen> {
    let mut screen = screen();
    screen.wipe();
    screen.spoke = Some(Instant::now());
    screen
}

/// Whether somebody looks at what is said to stderr.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// When words stood on the terminal last.
pub fn spoke() -> Option<Instant> {
    screen().spoke
}

/// A line to stderr that gives way to the next one.
pub fn status(line: &str) {
    let mut screen = screen();
    let _ = write!(std::io::stderr().lock(), "\r\x1b[K{line}");
    screen.status = true;
}

/// Takes the status away.
pub fn wipe() {
    screen().wipe();
}

/// As `println!`, see [`print`].
macro_rules! say {
    ($($part:tt)*) => { $crate::terminal::print(&format!("{}\n", format_args!($($part)*))) };
}

/// As `eprintln!`, see [`remark`].
macro_rules! tell {
    ($($part:tt)*) => { $crate::terminal::remark(format_args!($($part)*)) };
}

pub(crate) use {say, tell};
