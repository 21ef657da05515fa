//! Writing buffers to all members of a group at once; a write ends with the slowest.
//!
//! A single write is made by the caller to the first member and by a helper thread to each other one. Writes can also
//! be begun one behind the other, up to [`UNDER_WAY_MAX`], so that the caller fills the next buffer meanwhile. Then
//! helpers write to all members, in two lanes in turn: while one write is made, the next one is handed to the device.
//! Such writes are begun in order and may end in any; the caller hears of them in order. After a power loss any of
//! those under way may be there, as any part of a single write may.
//!
//! None is made behind one of the same member that is known to have failed. A group that has lost a member has fewer files
//! than there are writers: the last ones then have nothing to do.
//!
//! What a failed write of one member means for the log is decided by the log writer; here it is only told which failed.

use crate::groups::Member;
use standfast_io::{AlignedBuf, LogFile};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{Error, Result};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Writes that may be begun and not awaited.
pub const UNDER_WAY_MAX: usize = 3;

/// Writes that are made at a time, of those begun.
const LANES: usize = 2;

/// Members that do not have a write, by their place among those it was for, and why. Nothing is allocated while all
/// have it.
pub type Failures = Vec<(usize, Error)>;

/// A write to all members.
struct Write {
    members: Vec<Arc<dyn LogFile>>,
    data: Arc<AlignedBuf>,
    bytes: usize,
    offset: u64,
}

/// See the module.
pub struct MemberWriters {
    members: Vec<MemberWriter>,
    /// Writes so far, and those of them that were awaited.
    begun: usize,
    awaited: usize,
    /// On a disk that wants writes one after the other.
    in_turns: Option<InTurns>,
}

/// Two writes that are under way together end in the one order and in the other, so that a simulation meets both.
#[derive(Default)]
struct InTurns {
    /// Whether the last one, of members or writes, is next to be made first.
    backwards: Cell<bool>,
    begun: VecDeque<Write>,
    ended: VecDeque<Failures>,
}

impl MemberWriters {
    pub fn new(members: usize, in_turns: bool) -> Result<MemberWriters> {
        let in_turns = in_turns.then(InTurns::default);
        let mut writers = MemberWriters { members: Vec::new(), begun: 0, awaited: 0, in_turns };
        writers.provide_for(members)?;
        Ok(writers)
    }

    /// Makes room for so many members.
    pub fn provide_for(&mut self, members: usize) -> Result<()> {
        while self.members.len() < members {
            let mut writer = MemberWriter::default();
            // The first member's part of a single write is the caller's.
            if !self.members.is_empty() && self.in_turns.is_none() {
                writer.lanes[0] = Some(Helper::spawn(&writer.failed)?);
            }
            self.members.push(writer);
        }
        Ok(())
    }

    /// Writes the first `bytes` bytes of `data` at `offset` of every member, durably. Nothing must be under way.
    pub fn write(
        &mut self,
        members: &[Member],
        data: &Arc<AlignedBuf>,
        bytes: usize,
        offset: u64,
    ) -> Failures {
        let nth = self.begun;
        (self.begun, self.awaited) = (nth + 1, nth + 1);
        if let Some(in_turns) = &self.in_turns {
            return in_turns.make(members.iter().map(|member| &member.file), &data[..bytes], offset);
        }
        let mut failures = Failures::new();
        let mut note = |(index, result): (usize, Result<()>)| {
            if let Err(error) = result {
                failures.push((index, error));
            }
        };
        let Some((first, others)) = members.split_first() else { return failures };
        let helpers = || self.members.iter().skip(1).filter_map(|member| member.lanes[0].as_ref());
        for (helper, member) in helpers().zip(others) {
            helper.begin(Job::new(nth, &member.file, data, bytes, offset));
        }
        note((0, first.file.write_durable(&data[..bytes], offset)));
        (1..members.len()).zip(helpers().map(Helper::end)).for_each(note);
        failures
    }

    /// Whether writes can be begun one behind the other, for which threads are begun when it is needed first: most logs
    /// are never written to in such a way.
    pub fn can_begin(&mut self) -> bool {
        let ready = |member: &mut MemberWriter| {
            member.lanes.iter_mut().all(|lane| {
                if lane.is_none() {
                    *lane = Helper::spawn(&member.failed).ok();
                }
                lane.is_some()
            })
        };
        self.in_turns.is_some() || self.members.iter_mut().all(ready)
    }

    /// Begins such a write behind those under way, fewer than [`UNDER_WAY_MAX`].
    pub fn begin(&mut self, members: &[Member], data: &Arc<AlignedBuf>, bytes: usize, offset: u64) {
        match &mut self.in_turns {
            Some(in_turns) => {
                let members = members.iter().map(|member| member.file.clone()).collect();
                in_turns.begun.push_back(Write { members, data: data.clone(), bytes, offset });
            }
            None => {
                for (helper, member) in lane(&self.members, self.begun).zip(members) {
                    helper.begin(Job::new(self.begun, &member.file, data, bytes, offset));
                }
            }
        }
        self.begun += 1;
    }

    /// Waits for the oldest write that was begun, which is one to `members` members.
    pub fn await_oldest(&mut self, members: usize) -> Failures {
        let nth = self.awaited;
        self.awaited += 1;
        if let Some(in_turns) = &mut self.in_turns {
            return in_turns.end_oldest();
        }
        let results = (0..members).zip(lane(&self.members, nth).map(Helper::end));
        results.filter_map(|(index, result)| Some((index, result.err()?))).collect()
    }

    /// Whether [`MemberWriters::await_oldest`] would not wait. Where writes are made in turns nothing ends by itself.
    pub fn oldest_has_ended(&mut self, members: usize) -> bool {
        let lane = self.awaited % LANES;
        let mut writers = self.members.iter_mut().take(members);
        self.in_turns.is_none()
            && writers.all(|member| member.lanes[lane].as_mut().is_none_or(Helper::has_ended))
    }
}

/// The helpers of the lane of that write.
fn lane(members: &[MemberWriter], nth: usize) -> impl Iterator<Item = &Helper> {
    members.iter().filter_map(move |member| member.lanes[nth % LANES].as_ref())
}

impl InTurns {
    fn make<'f>(
        &self,
        members: impl DoubleEndedIterator<Item = &'f Arc<dyn LogFile>> + ExactSizeIterator,
        data: &[u8],
        offset: u64,
    ) -> Failures {
        let write = |(index, file): (usize, &Arc<dyn LogFile>)| {
            Some((index, file.write_durable(data, offset).err()?))
        };
        match self.backwards.replace(!self.backwards.get()) {
            true => members.enumerate().rev().filter_map(write).collect(),
            false => members.enumerate().filter_map(write).collect(),
        }
    }

    fn end_oldest(&mut self) -> Failures {
        if self.ended.is_empty() {
            let backwards = self.backwards.get();
            while let Some(write) = if backwards { self.begun.pop_back() } else { self.begun.pop_front() } {
                let failures = self.make(write.members.iter(), &write.data[..write.bytes], write.offset);
                match backwards {
                    true => self.ended.push_front(failures),
                    false => self.ended.push_back(failures),
                }
            }
        }
        self.ended.pop_front().unwrap_or_default()
    }
}

/// The helpers of one member.
#[derive(Default)]
struct MemberWriter {
    lanes: [Option<Helper>; LANES],
    failed: Arc<Failed>,
}

/// The file to which a write has failed, if any, and which one. None behind that one is made; a member that is made anew is
/// another file.
#[derive(Default)]
struct Failed(Mutex<Option<(Arc<dyn LogFile>, usize)>>);

impl Failed {
    fn is_before(&self, job: &Job) -> bool {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().is_some_and(|(file, nth)| *nth < job.nth && is_same(file, &job.file))
    }

    fn note(&self, job: &Job) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = failed.as_ref().is_some_and(|(file, nth)| *nth < job.nth && is_same(file, &job.file));
        if !known {
            *failed = Some((job.file.clone(), job.nth));
        }
    }
}

/// Whether it is the same open file.
fn is_same(one: &Arc<dyn LogFile>, other: &Arc<dyn LogFile>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

struct Job {
    /// Number of the write.
    nth: usize,
    file: Arc<dyn LogFile>,
    data: Arc<AlignedBuf>,
    bytes: usize,
    offset: u64,
}

impl Job {
    fn new(nth: usize, file: &Arc<dyn LogFile>, data: &Arc<AlignedBuf>, bytes: usize, offset: u64) -> Job {
        Job { nth, file: file.clone(), data: data.clone(), bytes, offset }
    }
}

struct Helper {
    jobs: SyncSender<Job>,
    results: Receiver<Result<()>>,
    /// A result that has been looked at and not taken.
    seen: Cell<Option<Result<()>>>,
}

impl Helper {
    fn spawn(failed: &Arc<Failed>) -> Result<Helper> {
        let (jobs, incoming) = sync_channel::<Job>(UNDER_WAY_MAX);
        let (outgoing, results) = sync_channel(UNDER_WAY_MAX);
        let failed = failed.clone();
        std::thread::Builder::new().name("lgwr-member".into()).spawn(move || {
            for job in incoming {
                let result = match failed.is_before(&job) {
                    true => Err(Error::other("not written, because a write before it failed")),
                    false => job.file.write_durable(&job.data[..job.bytes], job.offset),
                };
                if result.is_err() {
                    failed.note(&job);
                }
                // The buffer goes back to the log writer before it hears of the end of the write.
                drop(job);
                if outgoing.send(result).is_err() {
                    return;
                }
            }
        })?;
        Ok(Helper { jobs, results, seen: Cell::new(None) })
    }

    /// When the thread has ended, [`Helper::end`] says so.
    fn begin(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    fn has_ended(&mut self) -> bool {
        if self.seen.get_mut().is_none() {
            let seen = match self.results.try_recv() {
                Ok(result) => Some(result),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Err(ended())),
            };
            self.seen.set(seen);
        }
        self.seen.get_mut().is_some()
    }

    fn end(&self) -> Result<()> {
        self.seen.take().unwrap_or_else(|| self.results.recv().unwrap_or_else(|_| Err(ended())))
    }
}

fn ended() -> Error {
    Error::other("a member writer has ended")
}
