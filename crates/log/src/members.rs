//! Writes buffers to all members of a group in parallel; a write ends with the slowest member.
//!
//! The caller makes a single write to the first member, and a helper thread makes it to each other one. Writes can also
//! be begun one behind the other, up to [`IN_FLIGHT_MAX`], so that the caller fills the next buffer meanwhile. Helpers
//! then write to all members, in two alternating lanes: while one write is made, the next one is handed to the device.
//! Such writes begin in order and may end in any order; the caller receives their results in order. After a power loss
//! any of the writes in flight may be on disk, as may any part of a single write.
//!
//! No write is made behind a write to the same member that is known to have failed. A group that has lost a member has
//! fewer files than there are writers; the last writers are then idle.
//!
//! The log writer decides what a failed write to one member means for the log; this module only reports which one
//! failed.

use crate::groups::Member;
use standfast_io::{AlignedBuf, LogFile};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{Error, Result};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of writes that are begun and not awaited.
pub const IN_FLIGHT_MAX: usize = 3;

/// Number of begun writes that are made at the same time.
const LANES: usize = 2;

/// Members that lack a write, by their index among those it was for, and why. Nothing is allocated while all have it.
pub type Failures = Vec<(usize, Error)>;

struct Write {
    members: Vec<Arc<dyn LogFile>>,
    data: Arc<AlignedBuf>,
    bytes: usize,
    offset: u64,
}

pub struct MemberWriters {
    members: Vec<MemberWriter>,
    /// Number of writes so far, and of those that were awaited.
    begun: usize,
    awaited: usize,
    /// Set on a disk that wants writes one after the other.
    in_turns: Option<InTurns>,
}

/// Makes writes one after the other. Two writes that are in flight together end alternately in either order, so that a
/// simulation meets both.
#[derive(Default)]
struct InTurns {
    /// Whether the last one, of members or of writes, is made first next time.
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

    /// Creates writers up to this number of members.
    pub fn provide_for(&mut self, members: usize) -> Result<()> {
        while self.members.len() < members {
            let mut writer = MemberWriter::default();
            // The caller itself makes a single write to the first member.
            if !self.members.is_empty() && self.in_turns.is_none() {
                writer.lanes[0] = Some(Helper::spawn(&writer.failed)?);
            }
            self.members.push(writer);
        }
        Ok(())
    }

    /// Writes the first `bytes` bytes of `data` at `offset` of every member, durably. No write may be in flight.
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

    /// Returns whether writes can be begun one behind the other. Spawns the threads for this when they are first
    /// needed: most logs are never written in this way.
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

    /// Begins a write behind those in flight, of which there must be fewer than [`IN_FLIGHT_MAX`].
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

    /// Waits for the oldest write in flight, which goes to `members` members.
    pub fn await_oldest(&mut self, members: usize) -> Failures {
        let nth = self.awaited;
        self.awaited += 1;
        if let Some(in_turns) = &mut self.in_turns {
            return in_turns.end_oldest();
        }
        let results = (0..members).zip(lane(&self.members, nth).map(Helper::end));
        results.filter_map(|(index, result)| Some((index, result.err()?))).collect()
    }

    /// Returns whether [`MemberWriters::await_oldest`] would not wait. On a disk that wants writes one after the other
    /// no write ends by itself.
    pub fn oldest_has_ended(&mut self, members: usize) -> bool {
        let lane = self.awaited % LANES;
        let mut writers = self.members.iter_mut().take(members);
        self.in_turns.is_none()
            && writers.all(|member| member.lanes[lane].as_mut().is_none_or(Helper::has_ended))
    }
}

/// Helpers of the lane of this write.
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

#[derive(Default)]
struct MemberWriter {
    lanes: [Option<Helper>; LANES],
    failed: Arc<Failed>,
}

/// The file to which a write has failed, if any, and the number of that write. No later write to that file is made; a
/// member that is recreated is another file.
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

/// Returns whether both are the same open file.
fn is_same(one: &Arc<dyn LogFile>, other: &Arc<dyn LogFile>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

struct Job {
    /// Writes are numbered in the order in which they begin.
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
    /// A result that was received and not taken yet.
    seen: Cell<Option<Result<()>>>,
}

impl Helper {
    fn spawn(failed: &Arc<Failed>) -> Result<Helper> {
        let (jobs, incoming) = sync_channel::<Job>(IN_FLIGHT_MAX);
        let (outgoing, results) = sync_channel(IN_FLIGHT_MAX);
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
                // Release the buffer before the log writer learns that the write has ended.
                drop(job);
                if outgoing.send(result).is_err() {
                    return;
                }
            }
        })?;
        Ok(Helper { jobs, results, seen: Cell::new(None) })
    }

    /// Queues a job. If the thread has ended, [`Helper::end`] reports it.
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
