//! `standfast doctor`: runs a program once and says which copies of SQLite it loads, whether the shim is in each, and which of
//! its databases are protected and opened through it.
//!
//! - [`trace`]: follows the program and all processes that it starts.
//! - [`image`]: what is mapped into a process.
//! - [`elf`] and [`copy`]: which files hold a SQLite, of which version.
//! - [`report`]: what that comes to.

mod copy;
mod elf;
mod image;
mod report;
mod seccomp;
mod trace;

use report::Report;
use standfast_environment::InstanceError;
use std::ffi::OsString;
use std::io::Write;

pub const EXAMPLES: &str = "\
Examples:
  standfast doctor -- python3 app.py
  standfast doctor --json -- ./server --once | jq '.advice'
  standfast doctor -- env LD_PRELOAD=/usr/local/lib/standfast/libstandfast_preload.so python3 app.py

The program runs as it would by itself, with its own input and output, and so do all processes that it starts; the report
follows on standard output when the last of them has ended. With --json the program's standard output goes to standard
error, so that nothing else is on standard output. It is traced (ptrace): not a set-user-ID program, and not one that is
being debugged. A server has to be ended; an interrupt goes to it and not to this command.
Exit codes: 0 every database that it opened is protected, and opened through Standfast alone, 1 it cannot be run or traced,
3 something is not protected, or no SQLite was found: the report says what to do. What the program itself returned is in
the report.";

#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Returns whether everything that the program opened is protected.
///
/// # Errors
/// When the program cannot be run or traced.
pub fn doctor(args: DoctorArgs) -> Result<bool, InstanceError> {
    let observed = trace::run(&args.command, args.json).map_err(|error| {
        let command = args.command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        InstanceError::failed(
            format!("cannot run and trace {command}: {error}"),
            "see that it can be run by itself, and that this user may trace it (/proc/sys/kernel/yama/ptrace_scope, \
             CAP_SYS_PTRACE in a container)",
        )
    })?;
    let report = Report::of(observed);
    let text = match args.json {
        true => format!("{:#}\n", report.json()),
        false => report.to_string(),
    };
    // The reader may have closed stdout; that does not change the exit code.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(report.is_well())
}
