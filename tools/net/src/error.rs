//! Errors, and the exit code of each.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An error of a test, its server, or its command line. The text names cause and remedy.
#[derive(Debug, Error)]
pub enum NetError {
    /// An option value that cannot be used.
    #[error("{option}: {value:?} is not possible; allowed: {allowed}")]
    Option {
        /// The option as spelled on the command line.
        option: String,
        value: String,
        allowed: String,
    },
    /// Options that do not fit together, or a missing one.
    #[error("{0}")]
    Usage(String),
    /// The server answered and refused the test.
    #[error("the server refused the test: {0}")]
    Refused(String),
    /// The server does not accept this client, or the client does not accept the server.
    #[error("not authorised: {0}")]
    NotAuthorised(String),
    /// The test file cannot be used.
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error(
        "cannot connect to {address}: {source}; is the server started, and does a firewall let the port through?"
    )]
    Connect { address: String, source: io::Error },
    /// The host name has no address.
    #[error("cannot find the host {host}: {source}; check its name, or give its address")]
    Lookup { host: String, source: io::Error },
    #[error("cannot listen on {address}: {source}; choose a free port of this host with -port or --bind")]
    Listen { address: String, source: io::Error },
    /// The other side is not a test server, or sent something that the protocol does not allow.
    #[error("{0}")]
    Protocol(String),
    /// The connection ended in the middle of a test.
    #[error("the connection was cut while {doing}: {source}")]
    Cut { doing: &'static str, source: io::Error },
    #[error(
        "no progress for {seconds} s while {doing}; the link or the server stands still (-timeout, --timeout)"
    )]
    Timeout { doing: &'static str, seconds: f64 },
    /// The test was interrupted while waiting.
    #[error("interrupted while {doing}")]
    Interrupted { doing: &'static str },
    /// The server could not write what it received.
    #[error("the server could not write to its file: {0}")]
    FarDisk(io::Error),
    /// Any other error of the system.
    #[error("{what}: {source}")]
    System { what: String, source: io::Error },
}

impl NetError {
    /// Returns the exit code of a command that ends with this error: 1 failed, 2 usage, 4 refused, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            NetError::Option { .. } | NetError::Usage(_) => 2,
            NetError::Refused(_) | NetError::NotAuthorised(_) | NetError::File { .. } => 4,
            NetError::Interrupted { .. } => 130,
            _ => 1,
        }
    }

    /// Returns a short name of the kind, for machines.
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

    /// Returns an error for an option value that cannot be used.
    pub fn option(option: &str, value: &str, allowed: &str) -> NetError {
        NetError::Option { option: option.into(), value: value.into(), allowed: allowed.into() }
    }

    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> NetError {
        NetError::System { what: what.into(), source }
    }
}

pub type Result<T> = std::result::Result<T, NetError>;
