//! `standfast verify`: begins a comparison, waits for it, and says what was found.

use serde_json::json;
use standfast_documents::verification::{DatabaseResult, DestinationResult, Outcome, VerificationRun};
use standfast_environment::InstanceError;
use standfast_instance::server::answer::VerificationBegun;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use standfast_types::Scn;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two questions how far it is.
const EVERY: Duration = Duration::from_millis(100);

pub const EXAMPLES: &str = "\
Examples:
  standfast verify -D /srv/sf
  standfast verify -D /srv/sf orders.db --rate 1048576
  standfast verify -D /srv/sf --repair
  standfast verify -D /srv/sf --json | jq '.databases[].destinations[]'

--repair sends the pages that differ to the standbys, whole. It takes the pages here to be right: it is refused for a
database that `PRAGMA quick_check` finds damaged here, and for pages that two standbys hold alike. Ending this command
does not end the comparison. Exit codes: 0 everything is equal, 1 something differs or was not compared, 3 refused (no
standby, or a comparison is in progress), 4 the instance does not run.";

#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// Name or file of a database; default: all.
    database: Option<String>,
    /// Send the pages that differ to the standbys.
    #[arg(long)]
    repair: bool,
    /// Bytes read a second, here and at each standby; default: [verify] bytes_per_s of the configuration.
    #[arg(long, value_name = "BYTES")]
    rate: Option<u64>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Returns whether everything is equal.
///
/// # Errors
/// What the instance says, and that a run has failed.
pub fn verify(directory: &Path, args: VerifyArgs) -> Result<bool, InstanceError> {
    let as_path = |name: String| {
        let path: PathBuf = Path::new(&name).canonicalize().unwrap_or_else(|_| name.clone().into());
        path.to_str().map_or(name, str::to_owned)
    };
    let database = args.database.map(as_path);
    let request = Request::Verify { database, repair: args.repair, bytes_per_s: args.rate };
    let begun: VerificationBegun = control_client::ask_for(directory, &request)?;
    let progress = loop {
        let progress: VerificationRun = control_client::ask_for(directory, &Request::Verification)?;
        if begun.run != progress.run {
            return Err(InstanceError::Failed("the instance was restarted meanwhile".into()));
        }
        if progress.ended_us.is_some() {
            break progress;
        }
        std::thread::sleep(EVERY);
    };
    if args.json {
        println!("{:#}", json!(progress));
    } else {
        print!("{}", report(&progress));
    }
    match &progress.failure {
        Some(why) => Err(InstanceError::of_text(&format!("the comparison has ended: {why}"))),
        None => Ok(progress.is_equal()),
    }
}

/// What was found, a line for each database and standby, and one for each page that differs.
pub fn report(run: &VerificationRun) -> String {
    run.databases.iter().map(of_database).collect()
}

fn of_database(database: &DatabaseResult) -> String {
    let name = &database.name;
    let mut lines = String::new();
    if let Some(why) = &database.skipped {
        lines += &format!("{name}: NOT COMPARED: {}\n", why.replace('\n', " | "));
    }
    for found in &database.destinations {
        lines += &at_standby(name, database.scn, found);
    }
    if database.repaired > 0 {
        lines += &format!("{name}: {} pages sent again\n", database.repaired);
    }
    if let Some(why) = &database.not_repaired {
        lines += &format!("{name}: NOT REPAIRED: {}\n", why.replace('\n', " | "));
    }
    lines
}

fn at_standby(name: &str, scn: Option<Scn>, found: &DestinationResult) -> String {
    let (at, compared, differing) = (&found.name, found.compared, found.differing);
    let number = |of: Option<u64>| of.map_or_else(|| "unknown".to_owned(), |of| of.to_string());
    match found.outcome {
        Outcome::Equal => {
            let scn = number(scn.map(|scn| scn.0));
            format!("{name} at {at}: {compared} pages are equal, as of SCN {scn}\n")
        }
        Outcome::Differs => {
            let mut lines = format!("{name} at {at}: {differing} of {compared} pages DIFFER\n");
            for page in &found.pages {
                let (page, scn) = (number(page.page), number(page.scn));
                lines += &format!("  {name} at {at}: page {page} as of SCN {scn}\n");
            }
            if let Some(more) = differing.checked_sub(found.pages.len() as u64).filter(|more| *more > 0) {
                lines += &format!("  and {more} more\n");
            }
            lines
        }
        Outcome::NotCompared | Outcome::Later => {
            format!("{name} at {at}: NOT COMPARED: {}\n", found.why.as_deref().unwrap_or("unknown"))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(outcome: &str) -> VerificationRun {
        let run = json!({ "run": 1, "state": "done", "ended_us": 2, "scheduled": false, "repair": false,
            "pages": 50, "pages_read": 50, "failure": null, "databases": [{ "name": "a.db", "pages": 50, "scn": 900, "skipped": null, "repaired": 0,
            "not_repaired": null, "destinations": [{ "name": "oslo", "outcome": outcome, "compared": 50,
            "differing": u8::from(outcome == "differs"), "why": "it was away",
            "pages": [{ "page": 7, "scn": 880, "expected": 1, "found": 2 }] }] }] });
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn a_page_that_differs_is_named_with_database_standby_and_scn() {
        let text = report(&found("differs"));
        assert!(text.contains("a.db at oslo: 1 of 50 pages DIFFER\n"), "{text}");
        assert!(text.contains("a.db at oslo: page 7 as of SCN 880\n"), "{text}");
    }

    #[test]
    fn only_a_compared_and_equal_database_is_good() {
        let good = |outcome| found(outcome).is_equal();
        assert_eq!(["equal", "differs", "not-compared", "later"].map(good), [true, false, false, false]);
        let mut skipped = found("equal");
        skipped.databases[0].skipped = Some("it is offline".into());
        assert!(!skipped.is_equal() && report(&skipped).contains("NOT COMPARED: it is offline"));
        let mut nowhere = found("equal");
        nowhere.databases[0].destinations.clear();
        assert!(!nowhere.is_equal());
    }
}
