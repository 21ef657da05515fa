//! Parts that the pages of all tests have: the mark, the head, and how the tests ended.

use crate::NetError;
use crate::report::PROGRAM;
use standfast_page::markup::{Markup, text};
use standfast_page::page::{facts, notice, remark, whole};
use standfast_page::words::utc;
use std::time::{Duration, SystemTime};

/// First bytes of every report and of no other file. A file that begins otherwise is not overwritten.
pub const SIGNATURE: &str = "<!DOCTYPE html>\n<!-- standfast network report, version 1 -->\n";

/// Where and when the tests ran.
#[derive(Clone, Debug)]
pub struct Identity {
    pub host: String,
    /// Operating system of this host, with its version.
    pub kernel: String,
    pub begun: SystemTime,
    /// Time from then until the report was written.
    pub took: Duration,
}

/// Builds a page from its head and its sections.
pub fn page(title: &str, identity: &Identity, target: &str, sections: Markup) -> String {
    let identified = facts(&[
        ("client, this host", format!("{} ({})", identity.host, identity.kernel)),
        ("server", target.to_owned()),
        ("begun", utc(identity.begun)),
        ("took", format!("{:.1} s", identity.took.as_secs_f64())),
        ("program", PROGRAM.to_owned()),
    ]);
    let main = Markup::new().leaf("h1", title).then(identified).then(sections);
    whole(SIGNATURE, &format!("{title}, {}", utc(identity.begun)), main)
}

/// Returns the content of the file while the tests run: it says that they have not ended.
pub fn placeholder(identity: &Identity) -> String {
    let printed = "The tests have not ended, or the command was killed: there are no results.";
    page("Network test without an end", identity, "-", remark("fail", "NO RESULT", printed))
}

/// Builds a box about how the tests ended, unless they ended well; `so_far` says what of them is shown.
pub fn ending(error: Option<&NetError>, interrupted: bool, so_far: &str) -> Markup {
    let more = Markup::new().leaf("p", so_far);
    match error {
        Some(NetError::Interrupted { .. }) => notice("warn", "INTERRUPTED", Markup::new(), more),
        Some(error) => notice("fail", "FAILED", text(format!("{}: {error}", error.code())), more),
        None if interrupted => notice("warn", "INTERRUPTED", Markup::new(), more),
        None => Markup::new(),
    }
}
