//! What a command prints. A reader that went away is no error of the program.

use std::fmt::Arguments;
use std::io::Write;

/// To stdout, at once. Nobody reads any more: the command is not worth more than that, and the process ends.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// A line to stderr. What is said there accompanies a command, which goes on when nobody hears it.
pub fn remark(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
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
