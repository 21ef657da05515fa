use std::path::PathBuf;

/// Why a campaign could not go on. A violated promise is not an error but a finding: see
/// [`Findings`](crate::verify::Findings).
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// A file or process operation.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Cause.
        source: std::io::Error,
    },
    /// SQLite.
    #[error("cannot {what}: {source}")]
    Sqlite {
        /// What was being done.
        what: String,
        /// Cause.
        source: rusqlite::Error,
    },
    /// A program that the campaign needs is not there.
    #[error(
        "{path} is missing\nhint: run `cargo build --release --workspace`, or name the directory of the programs \
         with --bin or STANDFAST_BIN"
    )]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The program was built for users.
    #[error(
        "{path} has no fault points, so this test would prove nothing\nhint: run `cargo build --release --workspace`; a \
         build of single packages leaves them out"
    )]
    NoFaultPoints {
        /// The program.
        path: PathBuf,
    },
    /// A program ended otherwise than it should.
    #[error("{program}: {problem}{output}")]
    Program {
        /// Its name and arguments.
        program: String,
        /// What is wrong.
        problem: String,
        /// The last lines of its output.
        output: String,
    },
    /// A condition did not come true.
    #[error("waited {seconds} s for: {what}{detail}")]
    Timeout {
        /// The condition.
        what: String,
        /// How long.
        seconds: u64,
        /// What was the case instead.
        detail: String,
    },
    /// A program wrote something that cannot be understood.
    #[error("cannot understand {what}: {detail}")]
    Unreadable {
        /// What was read.
        what: String,
        /// Why not.
        detail: String,
    },
}

/// Says what was being done when an operation failed.
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

/// The last non-empty lines of a program's output, each on a line of its own, for an error message.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].iter().map(|line| format!("\n  | {line}")).collect()
}
