//! Summary of a run for the alert log.

use standfast_documents::verification::{Outcome, VerificationRun};
use standfast_types::hint;

/// Summary of a run for the alert log.
pub(super) fn summary(progress: &VerificationRun) -> String {
    let pages: u64 = progress.databases.iter().map(|database| database.pages).sum();
    let repaired: u64 = progress.databases.iter().map(|database| database.repaired).sum();
    let of = |wanted: Outcome| {
        let destinations = progress.databases.iter().flat_map(|database| &database.destinations);
        destinations.filter(|found| found.outcome == wanted).count()
    };
    let skipped = progress.databases.iter().filter(|database| database.skipped.is_some()).count();
    let mut text =
        format!("verification: {} databases, {pages} pages compared", progress.databases.len() - skipped);
    let differing = of(Outcome::Differs);
    match differing {
        0 => text += ", no difference found",
        copies => text += &format!(", DIFFERENCES in {copies} copies"),
    }
    if repaired > 0 {
        text += &format!(", {repaired} pages sent again");
    }
    let missed = of(Outcome::NotCompared) + of(Outcome::Later) + skipped;
    if missed > 0 {
        text += &format!("; not compared: {missed}");
    }
    if differing + missed > 0 {
        return hint::in_one_line(text, Some("`standfast status` says what"));
    }
    text
}
