//! Any store as an arbiter.

use crate::{Replaced, Store, StoreError};
use standfast_arbitration::arbiter::{Answer, Arbiter, Ask};
use standfast_arbitration::record::Record;
use standfast_arbitration::seen::{GoneBack, Seen};

/// Makes durable how far the store had come; the text says why that failed.
pub type Keep = Box<dyn FnMut(u64) -> Result<(), String> + Send>;

pub struct StoreArbiter {
    store: Box<dyn Store>,
    seen: Seen,
    keep: Keep,
    error: Option<String>,
}

/// Why an answer does not count.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("it has an older record than before (number {}, and {} was seen): it was restored or emptied. Once \
             the target follows, or does not run, disable fast-start failover with `force` and enable it again", .0.to, .0.seen)]
    GoneBack(GoneBack),
    #[error("what it has cannot be noted here: {0}")]
    NotKept(String),
}

impl StoreArbiter {
    /// `seen`: how far the store had come when that was last made durable.
    pub fn new(store: Box<dyn Store>, seen: Seen, keep: Keep) -> StoreArbiter {
        StoreArbiter { store, seen, keep, error: None }
    }

    fn answer(&mut self, ask: &Ask) -> Result<Answer, NoAnswer> {
        let kept = match ask {
            Ask::Read { .. } => self.store.read()?,
            Ask::Replace(replace) => match self.store.replace(replace.expected.as_ref(), &replace.record)? {
                Replaced::Yes(version) => {
                    self.see(Some(&replace.record))?;
                    return Ok(Answer::Replaced { version });
                }
                Replaced::No(kept) => kept,
            },
        };
        self.see(kept.as_ref().map(|kept| &kept.record))?;
        Ok(Answer::Is { kept, votes: true })
    }

    fn see(&mut self, record: Option<&Record>) -> Result<(), NoAnswer> {
        let mut seen = self.seen.clone();
        if let Some(serial) = seen.take(record).map_err(NoAnswer::GoneBack)? {
            (self.keep)(serial).map_err(NoAnswer::NotKept)?;
        }
        self.seen = seen;
        Ok(())
    }
}

impl Arbiter for StoreArbiter {
    fn ask(&mut self, ask: &Ask) -> Answer {
        match self.answer(ask) {
            Ok(answer) => {
                self.error = None;
                answer
            }
            Err(error) => {
                self.error = Some(error.to_string());
                Answer::Nothing
            }
        }
    }

    fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}
