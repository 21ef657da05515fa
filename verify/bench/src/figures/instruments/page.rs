//! Time until the dashboard shows its first data in a browser, with many databases and sessions.

use std::process::Command;

use serde::{Deserialize, Serialize};

use super::super::transport::median;
use crate::context::need;
use crate::error::parsed;
use crate::process::run_accepting;
use crate::{BenchError, Context, Result};

const REMEDY: &str =
    "run `make figures GROUP=instruments`, which names the test of the page (tests/browser/run)";
const DATABASES: u32 = 1000;
const SESSIONS: u32 = 500;
/// Exit code of the test when there is no browser.
const NO_BROWSER: i32 = 77;

#[derive(Debug, Serialize, Deserialize)]
pub struct Page {
    databases: u32,
    sessions: u32,
    /// From the request of the address to the first data, seconds.
    page_s: Vec<f64>,
}

impl Page {
    pub(super) fn seconds(&self) -> f64 {
        median(&self.page_s)
    }
}

/// Opens the page of such an instance several times.
pub(super) fn page(context: &Context) -> Result<Page> {
    let test = need(&context.programs.browser_test, REMEDY)?;
    let mut command = Command::new(test);
    command.args(["--json", "--databases", &DATABASES.to_string(), "--sessions", &SESSIONS.to_string()]);
    command.envs(need(&context.programs.standfast, REMEDY)?.parent().map(|bin| ("STANDFAST_BIN", bin)));
    let text = run_accepting(&mut command, &[0, NO_BROWSER])?;
    if text.is_empty() {
        return Err(BenchError::Unavailable("there is no Chromium here".into()));
    }
    parsed("the output of the test of the page", &text)
}
