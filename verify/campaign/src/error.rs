use standfast_types::Hint;
use std::borrow::Cow;
use std::path::PathBuf;

/// Why a campaign could not continue. A violated promise is not an error but a finding: see
/// [`Findings`](crate::verify::Findings).
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// A file or process operation failed.
    #[error("cannot {what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("cannot {what}: {source}")]
    Sqlite { what: String, source: rusqlite::Error },
    /// A program that the campaign needs is missing.
    #[error("{path} is missing")]
    Missing { path: PathBuf },
    /// The program was built for users, without fault points.
    #[error("{path} has no fault points, so this test would prove nothing")]
    NoFaultPoints { path: PathBuf },
    /// The SQLites of the differential campaign are not where it looks.
    #[error("cannot understand the SQLites in {directory}: {what} is not there")]
    NoSqlites { directory: PathBuf, what: String },
    /// A program did not end as expected.
    #[error("{program}: {problem}{output}")]
    Program {
        program: String,
        problem: String,
        /// The last lines of its output.
        output: String,
    },
    /// A condition did not come true.
    #[error("waited {seconds} s for: {what}{detail}")]
    Timeout { what: String, seconds: u64, detail: String },
    /// The output of a program could not be parsed.
    #[error("cannot understand {what}: {detail}")]
    Unreadable { what: String, detail: String },
}

impl Hint for CampaignError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            CampaignError::Missing { .. } => {
                "run `cargo build --release --workspace`, or name the directory of the programs with --bin or \
                 STANDFAST_BIN".into()
            }
            CampaignError::NoFaultPoints { .. } => {
                "run `cargo build --release --workspace`; a build of single packages leaves them out".into()
            }
            CampaignError::NoSqlites { .. } => "run `scripts/sqlites.sh`, which makes them".into(),
            _ => return None,
        })
    }
}

/// Adds the name of the operation to its error.
pub trait During<T> {
    /// Wraps the error; `what` completes "cannot ...".
    ///
    /// # Errors
    /// The wrapped error.
    fn during(self, what: impl FnOnce() -> String) -> crate::Result<T>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> crate::Result<T> {
        self.map_err(|source| CampaignError::Io { what: what(), source })
    }
}

impl<T> During<T> for rusqlite::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> crate::Result<T> {
        self.map_err(|source| CampaignError::Sqlite { what: what(), source })
    }
}

/// Returns the last 12 non-empty lines of a program's output, each on a line of its own, for an error message.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].iter().map(|line| format!("\n  | {line}")).collect()
}
