//! What can go wrong, with the exit code of each.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An error of a test, its server, or its command line. The text names cause and remedy.
#[derive(Debug, Error)]
pub enum NetError {
    /// An option that cannot be used as given.
    #[error("{option}: {value:?} is not possible; allowed: {allowed}")]
    Option {
        /// The option as it is spelled on the command line.
        option: String,
        /// What was given.
        value: String,
        /// The forms that are possible.
        allowed: String,
    },
    /// Options that do not fit together, or one that is missing.
    #[error("{0}")]
    Usage(String),
    /// The server answered, and does not take the test.
    #[error("the server refused the test: {0}")]
    Refused(String),
    /// The server does not know this client, or the client not the server.
    #[error("not authorised: {0}")]
    NotAuthorised(String),
    /// The test file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause and remedy.
        reason: String,
    },
    /// No connection.
    #[error(
        "cannot connect to {address}: {source}; is the server started, and does a firewall let the port through?"
    )]
    Connect {
        /// HOST:PORT.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// No such host.
    #[error("cannot find the host {host}: {source}; check its name, or give its address")]
    Lookup {
        /// Its name.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The port cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose a free port of this host with -port or --bind")]
    Listen {
        /// HOST:PORT.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The other side is no test server, or one of another version.
    #[error("{0}")]
    Protocol(String),
    /// The connection ended in the middle of a test.
    #[error("the connection was cut while {doing}: {source}")]
    Cut {
        /// What was going on.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// No progress for as long as the caller allowed.
    #[error(
        "no progress for {seconds} s while {doing}; the link or the server stands still (-timeout, --timeout)"
    )]
    Timeout {
        /// What was going on.
        doing: &'static str,
        /// How long it was waited for.
        seconds: f64,
    },
    /// The test was interrupted while waiting.
    #[error("interrupted while {doing}")]
    Interrupted {
        /// What was going on.
        doing: &'static str,
    },
    /// The server could not write what it received.
    #[error("the server could not write to its file: {0}")]
    FarDisk(io::Error),
    /// Anything else of the system.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl NetError {
    /// Exit code of a command that ends with this error: 1 failed, 2 usage, 4 refused, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            NetError::Option { .. } | NetError::Usage(_) => 2,
            NetError::Refused(_) | NetError::NotAuthorised(_) | NetError::File { .. } => 4,
            NetError::Interrupted { .. } => 130,
            _ => 1,
        }
    }

    /// A short name of the kind, for machines.
    pub fn code(&self) -> &'static str {
        match self {
            NetError::Option { .. } | NetError::Usage(_) => "usage",
            NetError::Refused(_) => "refused",
            NetError::NotAuthorised(_) => "not_authorised",
            NetError::File { .. } => "file",
            NetError::Connect { .. } | NetError::Lookup { .. } => "connect",
            NetError::Listen { .. } => "listen",
            NetError::Protocol(_) => "protocol",
            NetError::Cut { .. } => "cut",
            NetError::Timeout { .. } => "timeout",
            NetError::Interrupted { .. } => "interrupted",
            NetError::FarDisk(_) => "far_disk",
            NetError::System { .. } => "system",
        }
    }

    /// An option that cannot be used as given.
    pub fn option(option: &str, value: &str, allowed: &str) -> NetError {
        NetError::Option { option: option.into(), value: value.into(), allowed: allowed.into() }
    }

    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> NetError {
        NetError::System { what: what.into(), source }
    }
}

/// The result of most functions here.
pub type Result<T> = std::result::Result<T, NetError>;
