//! Writing buffers to all members of a group at once; a write ends with the slowest.
//!
//! A single write is made by the caller to the first member and by a helper thread to each other one. Several
//! writes in a row can be queued, so that the caller fills the next buffer meanwhile: then a helper writes to
//! the first member too. Whatever way, the writes of a member are made one after the other, in order, and
//! none is made after one that failed. A group that has lost a member has fewer files than there are writers: the
//! last ones then have nothing to do.

use standfast_io::{AlignedBuf, LogFile};
use std::cell::Cell;
use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Writes that may be queued or under way.
pub const QUEUED_MAX: usize = 3;

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

    /// Writes the first `bytes` bytes of `data` at `offset` of every file, durably. Nothing must be queued.
    pub fn write(
        &self,
        files: &[Arc<dyn LogFile>],
        data: &Arc<AlignedBuf>,
        bytes: usize,
        offset: u64,
    ) -> Result<()> {
        if let Some(backwards) = &self.in_turns {
            let write = |file: &Arc<dyn LogFile>| file.write_durable(&data[..bytes], offset);
            return match backwards.replace(!backwards.get()) {
                true => files.iter().rev().map(write).fold(Ok(()), Result::and),
                false => files.iter().map(write).fold(Ok(()), Result::and),
            };
        }
        let Some((first, others)) = files.split_first() else { return Ok(()) };
        for (helper, file) in self.others.iter().zip(others) {
            helper.begin(file, data, bytes, offset)?;
        }
        let first = first.write_durable(&data[..bytes], offset);
        self.others.iter().zip(others).map(|(helper, _)| helper.end()).fold(first, Result::and)
    }

    /// Whether writes can be queued, which needs one more thread.
    pub fn can_queue(&mut self) -> bool {
        if self.first.is_none() && self.in_turns.is_none() {
            self.first = Helper::spawn().ok();
        }
        self.first.is_some()
    }

    /// Begins such a write behind those that are queued, fewer than [`QUEUED_MAX`].
    pub fn queue(
        &self,
        files: &[Arc<dyn LogFile>],
        data: &Arc<AlignedBuf>,
        bytes: usize,
        offset: u64,
    ) -> Result<()> {
        self.all().zip(files).try_for_each(|(helper, file)| helper.begin(file, data, bytes, offset))
    }

    /// Waits for the oldest write that is queued, which is one to `files` files.
    pub fn await_oldest(&self, files: usize) -> Result<()> {
        self.all().take(files).map(Helper::end).fold(Ok(()), Result::and)
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
            let mut failed = false;
            for Job { file, data, bytes, offset } in incoming {
                let result = match failed {
                    true => Err(Error::other("not written, because the write before it failed")),
                    false => file.write_durable(&data[..bytes], offset),
                };
                failed = result.is_err();
                // The buffer goes back to the log writer before it hears of the end of the write.
                drop(data);
                if outgoing.send(result).is_err() {
                    return;
                }
            }
        })?;
        Ok(Helper { jobs, results })
    }

    fn begin(
        &self,
        file: &Arc<dyn LogFile>,
        data: &Arc<AlignedBuf>,
        bytes: usize,
        offset: u64,
    ) -> Result<()> {
        let job = Job { file: file.clone(), data: data.clone(), bytes, offset };
        self.jobs.send(job).map_err(|_| ended())
    }

    fn end(&self) -> Result<()> {
        self.results.recv().unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> Error {
    Error::other("a member writer has ended")
}
