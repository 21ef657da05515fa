//! `standfast verify`: begins a comparison, waits for it, and says what was found.

use serde_json::Value;
use standfast_environment::InstanceError;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
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
    let run = control_client::ask(directory, &request)?["run"].clone();
    let progress = loop {
        let progress = control_client::ask(directory, &Request::Verification)?;
        if progress["run"] != run {
            return Err(InstanceError::Failed("the instance was restarted meanwhile".into()));
        }
        if !progress["ended_us"].is_null() {
            break progress;
        }
        std::thread::sleep(EVERY);
    };
    if args.json {
        println!("{progress:#}");
    } else {
        print!("{}", report(&progress));
    }
    match progress["failure"].as_str() {
        Some(why) => Err(InstanceError::Failed(format!("the comparison has ended: {why}"))),
        None => Ok(is_equal(&progress)),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether every page of every database was found equal at every standby.
fn is_equal(progress: &Value) -> bool {
    list(&progress["databases"]).iter().all(|database| {
        let destinations = list(&database["destinations"]);
        database["skipped"].is_null()
            && !destinations.is_empty()
            && destinations.iter().all(|found| found["outcome"] == "equal")
    })
}

/// What was found, a line for each database and standby, and one for each page that differs.
pub fn report(progress: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let mut lines = String::new();
    let mut line = |text: String| lines.push_str(&(text + "\n"));
    for database in list(&progress["databases"]) {
        let name = text(&database["name"]);
        if let Some(why) = database["skipped"].as_str() {
            line(format!("{name}: NOT COMPARED: {}", why.replace('\n', " | ")));
        }
        for found in list(&database["destinations"]) {
            let at = text(&found["name"]);
            match found["outcome"].as_str() {
                Some("equal") => line(format!(
                    "{name} at {at}: {} pages are equal, as of SCN {}",
                    found["compared"], database["scn"]
                )),
                Some("differs") => {
                    line(format!(
                        "{name} at {at}: {} of {} pages DIFFER",
                        found["differing"], found["compared"]
                    ));
                    for page in list(&found["pages"]) {
                        line(format!("  {name} at {at}: page {} as of SCN {}", page["page"], page["scn"]));
                    }
                    let named = list(&found["pages"]).len() as u64;
                    if let Some(more) = found["differing"].as_u64().filter(|all| *all > named) {
                        line(format!("  and {} more", more - named));
                    }
                }
                _ => line(format!("{name} at {at}: NOT COMPARED: {}", text(&found["why"]))),
            }
        }
        if let Some(sent) = database["repaired"].as_u64().filter(|sent| *sent > 0) {
            line(format!("{name}: {sent} pages sent again"));
        }
        if let Some(why) = database["not_repaired"].as_str() {
            line(format!("{name}: NOT REPAIRED: {}", why.replace('\n', " | ")));
        }
    }
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(outcome: &str) -> Value {
        json!({ "databases": [{ "name": "a.db", "pages": 50, "scn": 900, "skipped": null, "repaired": 0,
            "not_repaired": null, "destinations": [{ "name": "oslo", "outcome": outcome, "compared": 50,
            "differing": u8::from(outcome == "differs"), "why": "it was away",
            "pages": [{ "page": 7, "scn": 880, "expected": 1, "found": 2 }] }] }] })
    }

    #[test]
    fn a_page_that_differs_is_named_with_database_standby_and_scn() {
        let text = report(&found("differs"));
        assert!(text.contains("a.db at oslo: 1 of 50 pages DIFFER\n"), "{text}");
        assert!(text.contains("a.db at oslo: page 7 as of SCN 880\n"), "{text}");
    }

    #[test]
    fn only_a_compared_and_equal_database_is_good() {
        let good = |outcome| is_equal(&found(outcome));
        assert_eq!(["equal", "differs", "not-compared", "later"].map(good), [true, false, false, false]);
        let mut skipped = found("equal");
        skipped["databases"][0]["skipped"] = json!("it is offline");
        assert!(!is_equal(&skipped) && report(&skipped).contains("NOT COMPARED: it is offline"));
        let mut nowhere = found("equal");
        nowhere["databases"][0]["destinations"] = json!([]);
        assert!(!is_equal(&nowhere));
    }
}
