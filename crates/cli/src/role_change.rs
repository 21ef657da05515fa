//! Carries out `standfast failover` and `standfast switchover`, and the same commands of `standfast dg`.

use crate::printable::printable_lines;
use serde_json::json;
use standfast_environment::InstanceError;
use standfast_instance::server::answer::{FailedOver, SwitchedOver};
use standfast_instance::server::control_client::ask_for;
use standfast_instance::server::request::Request;
use standfast_types::hint;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Exit code of a failover after which it is not known that everything acknowledged is here.
const DONE_WITH_LOSS: u8 = 6;

/// Sends the request, and prints what is missing or not known to be here.
///
/// # Errors
/// Those of the instance.
pub fn failover(directory: &Path, request: &Request, json: bool) -> Result<ExitCode, InstanceError> {
    let began = Instant::now();
    let answer: FailedOver = ask_for(directory, request)?;
    let mut complete = true;
    let mut say = |is_well: bool, text: &str| {
        complete &= is_well;
        let word = if is_well { "" } else { "warning: " };
        eprintln!("{word}{}", hint::lines(text, ""));
    };
    for found in [&answer.drained, &answer.known].into_iter().flatten() {
        say(found.complete, &found.text);
    }
    for database in &answer.offline {
        let text = format!("OFFLINE: {}", database.text);
        say(false, &hint::for_terminal(text, Some(&database.remedy)));
    }
    for text in &answer.differing {
        say(false, &format!("PAGES DIFFER: {text}"));
    }
    if json {
        println!("{:#}", json!(answer));
    } else {
        println!("primary from SCN {} after {:.1} s", answer.branch, began.elapsed().as_secs_f64());
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(DONE_WITH_LOSS) })
}

/// Sends the request, and prints which instance is the primary.
///
/// # Errors
/// Those of the instance.
pub fn switchover(directory: &Path, request: &Request, json: bool) -> Result<(), InstanceError> {
    let answer: SwitchedOver = ask_for(directory, request)?;
    if json {
        println!("{:#}", json!(answer));
    } else {
        println!(
            "{} is the primary from SCN {}, this instance is its standby; writers waited {:.1} s",
            printable_lines(&answer.primary),
            answer.branch,
            answer.unavailable_ms as f64 / 1000.0
        );
    }
    Ok(())
}
