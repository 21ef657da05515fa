//! Engines that compare and set, as arbiters of fast-start failover in place of an observer.
//!
//! ```text
//! arbiter: asks any store, and trusts none that has gone back  ->  etcd: the store  ->  client: HTTP
//! ```

pub mod arbiter;
pub mod client;
pub mod etcd;

use standfast_arbitration::record::{Kept, Record, Version};

/// A store that keeps the record. Linearizable, and durable before it answers.
pub trait Store: Send {
    /// Reads the record; `None`: there is none.
    ///
    /// # Errors
    /// When the store does not answer, or has something else under the record's name.
    fn read(&mut self) -> Result<Option<Kept>, StoreError>;

    /// Replaces the record if the store has this version of it; `None`: if it has none.
    ///
    /// # Errors
    /// When the store does not answer. It may have carried out the request, or may do so later.
    fn replace(&mut self, expected: Option<&Version>, record: &Record) -> Result<Replaced, StoreError>;
}

/// The answer of a store to a request to replace its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    Yes(Version),
    /// The store has this one.
    No(Option<Kept>),
}

/// Why a store could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("{path}: {what}")]
    Content { path: String, what: &'static str },
    /// Secrets and the record would cross the network as plain text.
    #[error("{endpoint} is not encrypted, and [arbiter] insecure is false")]
    Plain { endpoint: String },
    #[error("{endpoint}: {source}")]
    Request { endpoint: String, source: ureq::Error },
    #[error("{endpoint} does not answer in time")]
    Silent { endpoint: String },
    #[error("{endpoint} answers {status}: {text}")]
    Status { endpoint: String, status: u16, text: String },
    #[error("{endpoint} answers with what is no {what}")]
    Answer { endpoint: String, what: &'static str },
    #[error("{0}")]
    Secret(String),
}

impl StoreError {
    /// Whether another server would answer no better: this instance has no access, or the request was refused. A server that is
    /// a learner, has no quorum, is full, or a proxy without one, says so in other ways.
    fn is_the_same_everywhere(&self) -> bool {
        match self {
            StoreError::Request { .. } | StoreError::Silent { .. } | StoreError::Answer { .. } => false,
            StoreError::Status { status, .. } => (400..500).contains(status) && ![404, 429].contains(status),
            StoreError::File { .. }
            | StoreError::Content { .. }
            | StoreError::Plain { .. }
            | StoreError::Secret(_) => true,
        }
    }
}
