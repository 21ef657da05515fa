//! `standfast net ...`: the modern spelling of the engine.

mod advise;
mod arguments;
mod criterion;
mod diff;
mod disk;
mod output;
mod sweep;

use crate::loaded::{IDLE, run_loaded};
use crate::run::{Event, run};
use crate::server::{PATIENCE, ServerPlan};
use crate::units::Extent;
use crate::{Result, interrupt, tcptest};
pub use arguments::NetCommand;
use arguments::{ClientArgs, ServerArgs, split_port};
use output::Output;

impl NetCommand {
    /// Carries it out and returns the exit code: 0 ok, 1 failed, 2 usage, 3 a criterion or verdict is not met,
    /// 4 refused, 130 interrupted.
    pub fn main(self) -> u8 {
        let done = match self {
            NetCommand::Server(args) => server(args).map(|()| 0),
            NetCommand::Client(args) => client(&args),
            NetCommand::Disk(args) => disk::main(&args),
            NetCommand::Sweep(args) => sweep::main(&args),
            NetCommand::Advise(args) => advise::main(&args),
            NetCommand::Diff(args) => diff::main(&args),
        };
        done.unwrap_or_else(|error| {
            eprintln!("error: {error}");
            error.exit_code()
        })
    }
}

fn server(args: ServerArgs) -> Result<()> {
    let bind = args.bind.as_deref().map(split_port);
    tcptest::server(ServerPlan {
        host: bind.map(|(host, _)| host.to_owned()),
        port: bind.and_then(|(_, port)| port).unwrap_or(args.port),
        file: args.file,
        buffer: args.window,
        connections: args.max_connections.into(),
        patience: PATIENCE,
        allow: args.allow,
        key: arguments::key("--psk-file", args.psk_file.as_deref())?,
    })
}

fn client(args: &ClientArgs) -> Result<u8> {
    let (target, plan) = (args.target.target()?, args.plan()?);
    let stop = interrupt::flag();
    let mut output = Output::new(args.format(), args.output.as_deref(), &plan)?;
    let mut watch = |event: Event<'_>| match event {
        Event::Ready => output.begin(&plan),
        Event::Row(direction, interval) => output.row(direction, interval),
    };
    let outcome = if args.loaded {
        eprintln!("round trips on the idle link for up to {:.0} s, then with the load", IDLE.as_secs_f64());
        run_loaded(&target, &plan, stop, &mut watch)
    } else {
        run(&target, &plan, stop, &mut watch)
    };
    output.end(&target, &plan, &outcome)?;
    let outcome = outcome?;
    if let Some(trouble) = outcome.trouble {
        return Err(trouble);
    }
    let mut missed = false;
    for criterion in &args.fail_if {
        for one in outcome.directions() {
            if let Some(found) = criterion.met(&one.total) {
                eprintln!("criterion met {}: {criterion} ({found})", one.direction.name());
                missed = true;
            }
        }
    }
    Ok(match (missed, outcome.interrupted && plan.duration != Extent::Endless) {
        (true, _) => 3,
        (false, true) => 130,
        (false, false) => 0,
    })
}
