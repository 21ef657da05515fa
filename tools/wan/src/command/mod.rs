//! `standfast wan ...`.

mod arguments;
mod lateness;
mod run;
mod show;

use crate::control::{Request, ask};
use crate::settings::Change;
use crate::{Result, WanError, namespace, place, wan};
pub use arguments::WanCommand;
use arguments::{ExecArgs, SetArgs, StatsArgs};
use lateness::late;
use standfast_types::Hint;
use std::os::unix::process::CommandExt;

impl WanCommand {
    /// Carries out the command and returns the exit code: 0 ok, 1 failed, 2 usage, 3 released too late, 4 refused;
    /// `run` and `exec` with a command return that command's code.
    pub fn main(self) -> u8 {
        let done = match self {
            WanCommand::Run(args) => run::main(&args),
            WanCommand::Exec(args) => Err(exec(&args)),
            WanCommand::Set(args) => set(args),
            WanCommand::Cut(args) => tell(&args.name, &Request::Cut { links: args.links }),
            WanCommand::Stall(args) => tell(&args.name, &Request::Stall { links: args.links }),
            WanCommand::Heal(args) => tell(&args.name, &Request::Heal { links: args.links }),
            WanCommand::Stats(args) => stats(&args),
            WanCommand::Stop(args) => tell(&args.name, &Request::Stop),
            WanCommand::List => list(),
        };
        done.unwrap_or_else(|error| {
            eprintln!("error: {}", error.for_terminal());
            error.exit_code()
        })
    }
}

fn tell(name: &str, request: &Request) -> Result<u8> {
    ask(name, request).map(|_| 0)
}

fn set(args: SetArgs) -> Result<u8> {
    let change = args.shape.change();
    if change == Change::default() {
        return Err(WanError::usage("nothing to set", "give one of the options: standfast wan set --help"));
    }
    tell(&args.links.name, &Request::Set { links: args.links.links, change })
}

/// Replaces this process with the command; returns only an error.
fn exec(args: &ExecArgs) -> WanError {
    let become_it = || {
        let (nodes, _) = place::find(&args.name)?;
        let node = wan::find_node(&nodes, &args.node)?;
        // clap requires the command, so the default is not used.
        let (program, words) =
            args.command.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        let source = namespace::command(&node.namespace, program)?.args(words).exec();
        Err(WanError::System { what: format!("run {program}"), source })
    };
    match become_it() {
        Ok(never) => never,
        Err(error) => error,
    }
}

fn stats(args: &StatsArgs) -> Result<u8> {
    let Some(stats) = ask(&args.name, &Request::Stats { reset: args.reset })? else {
        return Err(WanError::Answer("no statistics came back".into()));
    };
    if args.json {
        show::json(&stats);
    } else {
        show::print(&show::table(&stats));
    }
    Ok(late(&stats, args.fail_late))
}

fn list() -> Result<u8> {
    for name in place::running()? {
        show::print(&format!("{name}\n"));
    }
    Ok(0)
}
