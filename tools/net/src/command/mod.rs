//! `standfast net ...`: the modern command line over the engine.

mod advise;
mod arguments;
mod criterion;
mod diff;
mod disk;
mod html_file;
mod output;
mod progress;
mod sweep;

use crate::html::{
    self,
    client::{ClientReport, Judged},
};
use crate::loaded::{IDLE, run_loaded};
use crate::outcome::{Event, Outcome};
use crate::run::{planned_time, run};
use crate::server::{ServerPlan, TIMEOUT};
use crate::terminal::tell;
use crate::{NetError, Result, interrupt, tcptest};
pub use arguments::NetCommand;
use arguments::{ClientArgs, ServerArgs};
use html_file::ReportFile;
use output::Output;
use progress::{Progress, figure};
use standfast_page::units::Extent;
use std::time::Duration;

impl NetCommand {
    /// Runs the command and returns the exit code: 0 ok, 1 failed, 2 usage, 3 a criterion of `--fail-if` is met, a
    /// verdict is FAIL, or a result is worse, 4 refused, 130 interrupted.
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
            tell!("error: {error}");
            error.exit_code()
        })
    }
}

fn server(args: ServerArgs) -> Result<()> {
    let (host, port) = args.bind.map_or((None, None), |bind| (Some(bind.name), bind.port));
    tcptest::server(ServerPlan {
        host,
        port: port.unwrap_or(args.port),
        file: args.file,
        buffer: args.window,
        connections: args.max_connections.into(),
        timeout: TIMEOUT,
        allow: args.allow,
        key: arguments::key("--psk-file", args.psk_file.as_deref())?,
    })
}

fn client(args: &ClientArgs) -> Result<u8> {
    let (target, plan) = (args.target.target()?, args.plan()?);
    if args.html.is_some() && args.html == args.output {
        return Err(NetError::Usage("--html and --output name the same file; give two".into()));
    }
    let stop = interrupt::flag();
    let mut output = Output::new(args.format(), args.output.as_deref(), &plan)?;
    let file = args.html.as_deref().map(ReportFile::begin).transpose()?;
    let idle = if args.loaded { IDLE } else { Duration::ZERO };
    let progress = Progress::begin(planned_time(&plan).map(|time| time + idle.min(time)));
    let mut watch = |event: Event<'_>| match event {
        Event::Ready => output.begin(&plan),
        Event::Row(direction, interval) => {
            output.row(direction, interval);
            progress.doing(|| figure(direction, interval));
        }
    };
    let outcome = if args.loaded {
        tell!("round trips on the idle link for up to {:.0} s, then with the load", IDLE.as_secs_f64());
        run_loaded(&target, &plan, stop, &mut watch)
    } else {
        run(&target, &plan, stop, &mut watch)
    };
    drop(progress);
    output.end(&target, &plan, &outcome)?;
    let criteria = judged(args, &outcome);
    if let Some(file) = file {
        file.end(|identity| {
            let (target, plan, outcome, criteria) = (&target, &plan, &outcome, &criteria);
            let loaded = args.loaded;
            html::client::page_of(&ClientReport { identity, target, plan, loaded, outcome, criteria })
        })?;
    }
    let outcome = outcome?;
    if let Some(error) = outcome.error {
        return Err(error);
    }
    let mut missed = false;
    for Judged { criterion, direction, met } in criteria {
        if let Some(found) = met {
            tell!("criterion met {}: {criterion} ({found})", direction.name());
            missed = true;
        }
    }
    Ok(match (missed, outcome.interrupted && plan.duration != Extent::Endless) {
        (true, _) => 3,
        (false, true) => 130,
        (false, false) => 0,
    })
}

/// Returns the criteria in each direction of a test that ran without an error, with the figure of each that is met.
fn judged(args: &ClientArgs, outcome: &Result<Outcome>) -> Vec<Judged> {
    let outcome = outcome.as_ref().ok().filter(|outcome| outcome.error.is_none());
    let Some(outcome) = outcome else { return Vec::new() };
    let one_way = |one: &Outcome| {
        let (direction, total) = (one.direction, one.total.clone());
        args.fail_if.iter().map(move |criterion| Judged {
            criterion: criterion.to_string(),
            direction,
            met: criterion.met(&total),
        })
    };
    outcome.directions().flat_map(one_way).collect()
}
