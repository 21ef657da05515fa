//! Writing buffers to all members of a group at once; a write ends with the slowest.
//!
//! A single write is made by the caller to the first member and by a helper thread to each other one. Several
//! writes in a row can be queued, so that the caller fills the next buffer meanwhile: then a helper writes to
//! the first member too. Whatever way, the writes of a member are made one after the other, in order, and
//! none is made after one that failed. A group that has lost a member has fewer files than there are writers: the
//! last ones then have nothing to do.
//!
//! What a failed write of one member means for the log is decided by the log writer; here it is only told which failed.

use crate::groups::Member;
use standfast_io::{AlignedBuf, LogFile};
use std::cell::Cell;
use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Writes that may be queued or under way.
pub const QUEUED_MAX: usize = 3;

/// Members that do not have a write, by their place among those it was for, and why. Nothing is allocated while all
/// have it.
pub type Failures = Vec<(usize, Error)>;

struct Job {
    file: Arc<dyn LogFile>,
    data: Arc<AlignedBuf>,
    bytes: usize,
    offset: u64,
}

struct Helper {
    jobs: SyncSender<Job>,
    results: Receiver<Result<()>>,
}

/// See the module.
pub struct MemberWriters {
    /// Begun when it is needed first: most logs are never written to in a row.
    first: Option<Helper>,
    others: Vec<Helper>,
    /// On a disk that wants writes one after the other: whether the last member is next to be written first.
    in_turns: Option<Cell<bool>>,
}

impl MemberWriters {
    pub fn new(members: usize, in_turns: bool) -> Result<MemberWriters> {
        let helpers = if in_turns { 0 } else { members.saturating_sub(1) };
        let others = (0..helpers).map(|_| Helper::spawn()).collect::<Result<_>>()?;
        Ok(MemberWriters { first: None, others, in_turns: in_turns.then(Cell::default) })
    }

    /// Writes the first `bytes` bytes of `data` at `offset` of every member, durably. Nothing must be queued.
    pub fn write(&self, members: &[Member], data: &Arc<AlignedBuf>, bytes: usize, offset: u64) -> Failures {
        let mut failures = Failures::new();
        let mut note = |(index, result): (usize, Result<()>)| {
            if let Err(error) = result {
                failures.push((index, error));
            }
        };
        let write =
            |(index, member): (usize, &Member)| (index, member.file.write_durable(&data[..bytes], offset));
        if let Some(backwards) = &self.in_turns {
            match backwards.replace(!backwards.get()) {
                true => members.iter().enumerate().rev().map(write).for_each(&mut note),
                false => members.iter().enumerate().map(write).for_each(&mut note),
            }
            return failures;
        }
        let Some((first, others)) = members.split_first() else { return failures };
        for (helper, member) in self.others.iter().zip(others) {
            helper.begin(&member.file, data, bytes, offset);
        }
        note(write((0, first)));
        (1..members.len()).zip(self.others.iter().map(Helper::end)).for_each(note);
        failures
    }

    /// Whether writes can be queued, which needs one more thread.
    pub fn can_queue(&mut self) -> bool {
        if self.first.is_none() && self.in_turns.is_none() {
            self.first = Helper::spawn().ok();
        }
        self.first.is_some()
    }

    /// Begins such a write behind those that are queued, fewer than [`QUEUED_MAX`].
    pub fn queue(&self, members: &[Member], data: &Arc<AlignedBuf>, bytes: usize, offset: u64) {
        self.all().zip(members).for_each(|(helper, member)| helper.begin(&member.file, data, bytes, offset));
    }

    /// Waits for the oldest write that is queued, which is one to `members` members.
    pub fn await_oldest(&self, members: usize) -> Failures {
        let results = (0..members).zip(self.all().map(Helper::end));
        results.filter_map(|(index, result)| Some((index, result.err()?))).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Helper> {
        self.first.iter().chain(&self.others)
    }
}

impl Helper {
    fn spawn() -> Result<Helper> {
        let (jobs, incoming) = sync_channel::<Job>(QUEUED_MAX);
        let (outgoing, results) = sync_channel(QUEUED_MAX);
        std::thread::Builder::new().name("lgwr-member".into()).spawn(move || {
            // Never written again; a member that is made anew is another file.
            let mut failed: Option<Arc<dyn LogFile>> = None;
            for Job { file, data, bytes, offset } in incoming {
                let result = match &failed {
                    Some(failed) if is_same(failed, &file) => {
                        Err(Error::other("not written, because the write before it failed"))
                    }
                    _ => file.write_durable(&data[..bytes], offset),
                };
                if result.is_err() {
                    failed = Some(file);
                }
                // The buffer goes back to the log writer before it hears of the end of the write.
                drop(data);
                if outgoing.send(result).is_err() {
                    return;
                }
            }
        })?;
        Ok(Helper { jobs, results })
    }

    /// When the thread has ended, [`Helper::end`] says so.
    fn begin(&self, file: &Arc<dyn LogFile>, data: &Arc<AlignedBuf>, bytes: usize, offset: u64) {
        let _ = self.jobs.send(Job { file: file.clone(), data: data.clone(), bytes, offset });
    }

    fn end(&self) -> Result<()> {
        self.results.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// Whether it is the same open file.
fn is_same(one: &Arc<dyn LogFile>, other: &Arc<dyn LogFile>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

fn ended() -> Error {
    Error::other("a member writer has ended")
}
