//! `standfast reinstate`: an old primary becomes a standby of the new one.

use serde_json::json;
use standfast_environment::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_instance::role::reinstate::{Outcome, Reinstated, reinstate};
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

pub const EXAMPLES: &str = "Examples:
  standfast reinstate -D /srv/sf
  standfast reinstate -D /srv/sf --yes
  standfast reinstate -D /srv/sf --from oslo:7411 --yes

Without --yes it only prints what it would do: how many commits are only here. These are discarded in the databases; the
archived logs that hold them are kept in a directory of their own, and `standfast log dump` reads them. An interrupted
run is repeated; until it has succeeded the instance does not open. Databases that the new primary does not protect stay
where they are, unprotected.

Exit codes: 0 reinstated, 1 not reinstated (no --yes), 3 refused.";

#[derive(Clone, Debug, clap::Args)]
pub struct ReinstateArgs {
    /// HOST:PORT of the primary; default: the destination of this instance that is one.
    #[arg(long, value_name = "HOST:PORT")]
    from: Option<String>,
    /// Do it.
    #[arg(long)]
    yes: bool,
    /// Print the result as JSON: the primary, where redo follows, the pages fetched, and what is kept of the lost branch.
    #[arg(long)]
    json: bool,
}

/// Returns whether the instance was reinstated.
///
/// # Errors
/// When it cannot be.
pub fn run(directory: &Path, args: &ReinstateArgs) -> Result<bool, InstanceError> {
    let done = match reinstate(directory, args.from.as_deref(), args.yes, &mut progress())? {
        Outcome::Done(done) => done,
        Outcome::Plan(lines) => {
            if args.json {
                println!("{:#}", json!({ "plan": lines }));
            } else {
                lines.iter().for_each(|line| println!("{line}"));
            }
            eprintln!("nothing was done; --yes does it");
            return Ok(false);
        }
    };
    if args.json {
        println!("{:#}", document(&done))
    } else {
        println!("{}", text(&done))
    }
    eprintln!("next: standfast start -D {}", directory.display());
    if let Some(why) = &done.not_shipped {
        let Config { instance, .. } = Config::load(directory)?;
        eprintln!("`{}` does not ship redo to this instance yet: {why}", done.primary);
        eprintln!(
            "then, at `{}`: standfast destination add -D DIR {} {}",
            done.primary, instance.name, instance.listen
        );
    }
    Ok(true)
}

fn document(done: &Reinstated) -> serde_json::Value {
    json!({
        "primary": done.primary,
        "address": done.address,
        "not_shipped": done.not_shipped,
        "start": done.start.0,
        "pages": done.pages,
        "fetched": done.fetched,
        "fetched_bytes": done.fetched_bytes,
        "lost_logs": done.lost_logs,
        "unprotected": done.unprotected,
    })
}

fn text(done: &Reinstated) -> String {
    let mut text = format!(
        "this instance is a standby of `{}` from SCN {}; {} of {} pages were fetched",
        done.primary, done.start, done.fetched, done.pages
    );
    if let Some(directory) = &done.lost_logs {
        text += &format!("\nredo that only this instance had is in {}", directory.display());
    }
    for path in &done.unprotected {
        text += &format!("\nno longer protected, and not at `{}`: {}", done.primary, path.display());
    }
    text
}

/// Prints a line to stderr at most once a second.
fn progress() -> impl FnMut(&str, u64) -> bool {
    let mut last = Instant::now();
    let end = if std::io::stderr().is_terminal() { "\r" } else { "\n" };
    move |database, page| {
        if last.elapsed() >= Duration::from_secs(1) {
            last = Instant::now();
            eprint!("comparing {database}: page {page}{end}");
        }
        true
    }
}
