//! Which thread waits for what, and for how long: the counts of an instance and the state of its threads.
//!
//! A thread belongs to one instance ([`Instruments::enter_thread`]); from then on [`waiting`] counts for that instance.
//! A thread that belongs to none (a simulation, a tool) counts nothing and needs no special case.

use crate::anatomy::{CommitPart, Parts};
use crate::event::{Event, WaitClass};
use crate::histogram::{Histogram, HistogramCounts};
use crate::sample::{EventTotals, PartTotals, Sample, StatisticValue, ThreadSample};
use crate::statistic::Statistic;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

/// Number of nested waits that are shown; deeper ones are counted, but not shown while they last.
const DEPTH: usize = 4;
/// Event number of a thread that waits for nothing.
const NONE: usize = usize::MAX;

thread_local! {
    static CURRENT: RefCell<Option<Arc<ThreadState>>> = const { RefCell::new(None) };
}

#[derive(Debug)]
pub struct Instruments {
    origin: Instant,
    started_us: u64,
    events: [Histogram; Event::ALL.len()],
    statistics: [AtomicU64; Statistic::ALL.len()],
    parts: [Histogram; CommitPart::ALL.len()],
    threads: Mutex<Vec<Weak<ThreadState>>>,
}

impl Default for Instruments {
    fn default() -> Instruments {
        Instruments {
            origin: Instant::now(),
            started_us: now_us(),
            events: std::array::from_fn(|_| Histogram::default()),
            statistics: std::array::from_fn(|_| AtomicU64::new(0)),
            parts: std::array::from_fn(|_| Histogram::default()),
            threads: Mutex::default(),
        }
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

impl Instruments {
    /// Makes the calling thread count here from now on, under this name.
    pub fn enter_thread(self: &Arc<Self>, name: impl Into<String>) {
        let state = Arc::new(ThreadState {
            name: name.into(),
            tid: this_thread(),
            instruments: self.clone(),
            depth: AtomicUsize::new(0),
            stack: std::array::from_fn(|_| Level::default()),
        });
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&state));
        CURRENT.with_borrow_mut(|current| *current = Some(state));
    }

    /// Counts a wait that has ended.
    pub fn record(&self, event: Event, time: Duration) {
        if !cfg!(feature = "off") {
            self.events[event.index()].record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Counts the parts of a commit, except those that sessions count in the shared memory.
    pub fn record_commit(&self, parts: &Parts) {
        for part in CommitPart::ALL.into_iter().filter(|part| part.is_of_log_file_sync()) {
            if part != CommitPart::Scheduling {
                self.parts[part.index()].record(parts.of(part));
            }
        }
    }

    pub fn add(&self, statistic: Statistic, amount: u64) {
        if !cfg!(feature = "off") {
            self.statistics[statistic.index()].fetch_add(amount, Relaxed);
        }
    }

    pub fn statistic(&self, statistic: Statistic) -> u64 {
        self.statistics[statistic.index()].load(Relaxed)
    }

    /// Returns the event of class Configuration that some thread of the instance waits for now, if any: something that
    /// a configuration could provide, such as space or a next log.
    pub fn held_up_by(&self) -> Option<Event> {
        let threads = self.threads();
        let mut waits = threads.iter().flat_map(|thread| thread.waits()).map(|(event, _)| event);
        waits.find(|event| event.class() == WaitClass::Configuration)
    }

    fn threads(&self) -> Vec<Arc<ThreadState>> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().filter_map(Weak::upgrade).collect()
    }

    pub fn event(&self, event: Event) -> HistogramCounts {
        self.events[event.index()].counts()
    }

    /// Takes a sample of everything. Waits in progress are in the threads' states, not in the counts.
    pub fn sample(&self) -> Sample {
        let event = |event: &Event| EventTotals {
            event: event.name().into(),
            class: event.class(),
            foreground: event.is_foreground(),
            counts: self.event(*event),
        };
        let statistic = |statistic: &Statistic| StatisticValue {
            name: statistic.name().into(),
            value: self.statistics[statistic.index()].load(Relaxed),
        };
        let part = |part: CommitPart| PartTotals { part, counts: self.parts[part.index()].counts() };
        Sample {
            time_us: now_us(),
            started_us: self.started_us,
            events: Event::ALL.iter().map(event).collect(),
            statistics: Statistic::ALL.iter().map(statistic).collect(),
            parts: CommitPart::ALL.into_iter().map(part).collect(),
            threads: self.sample_threads(),
        }
    }

    /// Samples what each thread does at this moment.
    pub fn sample_threads(&self) -> Vec<ThreadSample> {
        let thread = |thread: &Arc<ThreadState>| {
            let wait = thread.waits().pop();
            // A thread that sleeps without a named wait has nothing to do: it does not work.
            let idle = wait.is_none() && thread.tid.is_some_and(|tid| is_asleep(std::process::id(), tid));
            let event = wait.map(|(event, _)| event).or(idle.then_some(Event::RdbmsIpcMessage));
            ThreadSample {
                name: thread.name.clone(),
                event: event.map(|event| event.name().into()),
                waited_us: wait.map(|(_, waited)| waited.as_micros() as u64),
            }
        };
        self.threads().iter().map(thread).collect()
    }
}

/// Kernel thread id of the calling thread.
fn this_thread() -> Option<u32> {
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// Returns whether the thread sleeps, so that it uses no processor. False when that is not known.
fn is_asleep(pid: u32, tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"));
    stat.is_ok_and(|stat| state_of(&stat) == Some('S'))
}

/// Returns the state in a line of `/proc/PID/stat`. The name before it is in parentheses and may contain anything.
fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns whether all threads of the process sleep. False when that is not known.
pub fn is_process_asleep(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let tids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    let mut tids = tids.peekable();
    tids.peek().is_some() && tids.all(|tid: u32| is_asleep(pid, tid))
}

#[derive(Debug)]
struct Level {
    event: AtomicUsize,
    since_ns: AtomicU64,
}

impl Default for Level {
    fn default() -> Level {
        Level { event: AtomicUsize::new(NONE), since_ns: AtomicU64::new(0) }
    }
}

/// A thread of an instance, and what it waits for. Only that thread writes it; others read it.
#[derive(Debug)]
pub struct ThreadState {
    name: String,
    /// Kernel thread id; `None` where it is not known.
    tid: Option<u32>,
    instruments: Arc<Instruments>,
    depth: AtomicUsize,
    stack: [Level; DEPTH],
}

impl ThreadState {
    fn waits(&self) -> Vec<(Event, Duration)> {
        let now = self.instruments.origin.elapsed();
        let wait = |level: &Level| {
            let event = Event::from_index(level.event.load(Relaxed))?;
            Some((event, now.saturating_sub(Duration::from_nanos(level.since_ns.load(Relaxed)))))
        };
        self.stack.iter().map_while(wait).collect()
    }

    fn begin(&self, event: Event, since: Instant) {
        let depth = self.depth.load(Relaxed);
        if let Some(level) = self.stack.get(depth) {
            let since = since.saturating_duration_since(self.instruments.origin);
            level.since_ns.store(since.as_nanos() as u64, Relaxed);
            level.event.store(event.index(), Relaxed);
        }
        self.depth.store(depth + 1, Relaxed);
    }

    fn end(&self) {
        let depth = self.depth.load(Relaxed).saturating_sub(1);
        if let Some(level) = self.stack.get(depth) {
            level.event.store(NONE, Relaxed);
        }
        self.depth.store(depth, Relaxed);
    }
}

/// Counts a wait that has ended, of the calling thread or of a peer that reported it.
pub fn record(event: Event, time: Duration) {
    CURRENT.with_borrow(|state| {
        if let Some(state) = state {
            state.instruments.record(event, time);
        }
    });
}

/// Adds to a statistic of the calling thread's instance.
pub fn count(statistic: Statistic, amount: u64) {
    CURRENT.with_borrow(|state| {
        if let Some(state) = state {
            state.instruments.add(statistic, amount);
        }
    });
}

/// Nanoseconds of CLOCK_MONOTONIC, comparable between the processes of a host.
pub fn monotonic_ns() -> u64 {
    standfast_session::monotonic_ns()
}

/// A wait in progress; it ends, and is counted, when this is dropped.
#[must_use = "the wait ends when this is dropped"]
#[derive(Debug)]
pub struct Waiting {
    /// `None` with the feature `off`, and on a thread that has not been entered.
    of: Option<(Arc<ThreadState>, Event, Instant)>,
}

/// Begins a wait of the calling thread for `event`, until the result is dropped.
pub fn waiting(event: Event) -> Waiting {
    if cfg!(feature = "off") {
        return Waiting { of: None };
    }
    let state = CURRENT.with_borrow(Clone::clone);
    Waiting {
        of: state.map(|state| {
            let since = Instant::now();
            state.begin(event, since);
            (state, event, since)
        }),
    }
}

impl Waiting {
    /// Ends the wait and begins one for `event`; does nothing when the event is the same.
    pub fn become_one_for(&mut self, event: Event) {
        if let Some((state, current, since)) = &mut self.of
            && *current != event
        {
            let now = Instant::now();
            state.instruments.record(*current, now - *since);
            state.end();
            state.begin(event, now);
            (*current, *since) = (event, now);
        }
    }

    /// Ends the wait without counting it.
    pub fn forget(mut self) {
        if let Some((state, ..)) = self.of.take() {
            state.end();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((state, event, since)) = self.of.take() {
            state.end();
            state.instruments.record(event, since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(instruments: &Instruments, event: Event) -> u64 {
        instruments.events[event.index()].counts().count
    }

    /// Returns what the thread with that name waits for now, the outermost wait first.
    fn waits_of(instruments: &Instruments, name: &str) -> Vec<Event> {
        let threads = instruments.threads();
        let thread = threads.iter().find(|thread| thread.name == name);
        thread.iter().flat_map(|thread| thread.waits()).map(|(event, _)| event).collect()
    }

    #[test]
    fn thread_waits_count_only_for_their_own_instance() {
        let (mine, other) = (Arc::new(Instruments::default()), Arc::new(Instruments::default()));
        std::thread::spawn({
            let mine = mine.clone();
            move || {
                drop(waiting(Event::LogFileParallelWrite));
                mine.enter_thread("lgwr");
                drop(waiting(Event::LogFileParallelWrite));
            }
        })
        .join()
        .unwrap();
        assert_eq!(count(&mine, Event::LogFileParallelWrite), 1);
        assert_eq!(count(&other, Event::LogFileParallelWrite), 0);
        assert!(mine.sample().threads.is_empty(), "it has ended");
    }

    #[test]
    fn sleeping_thread_without_a_wait_is_not_on_the_cpu() {
        let instruments = Arc::new(Instruments::default());
        let stop = std::sync::atomic::AtomicBool::new(false);
        let end = std::sync::Barrier::new(2);
        let event_of = |name: &str| {
            let threads = instruments.sample_threads();
            threads.into_iter().find(|thread| thread.name == name).map(|thread| thread.event)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                instruments.enter_thread("sleeps");
                end.wait();
            });
            scope.spawn(|| {
                instruments.enter_thread("works");
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let idle = Some(Some(Event::RdbmsIpcMessage.name().to_owned()));
            while event_of("sleeps") != idle || event_of("works") != Some(None) {
                std::thread::yield_now();
            }
            stop.store(true, Relaxed);
            end.wait();
        });
        assert_eq!(state_of("12 (a) b) S 1 2"), Some('S'), "names may hold parentheses");
        assert!(!is_process_asleep(std::process::id()), "this thread runs");
    }

    #[test]
    fn counting_does_not_wait_for_a_thread_that_takes_a_sample() {
        let instruments = Arc::new(Instruments::default());
        let (counted, all_counted) = std::sync::mpsc::channel();
        let (entered, is_entered) = std::sync::mpsc::channel();
        let (begin, begun) = std::sync::mpsc::channel();
        let shared = instruments.clone();
        let thread = std::thread::spawn(move || {
            shared.enter_thread("lgwr");
            entered.send(()).unwrap();
            begun.recv().unwrap();
            drop(waiting(Event::LogFileParallelWrite));
            record(Event::LogBufferSpace, Duration::from_micros(1));
            super::count(Statistic::RedoSize, 5);
            shared.record_commit(&Parts::default());
            counted.send(()).unwrap();
        });
        is_entered.recv().unwrap();
        {
            let _sampling = instruments.threads.lock().unwrap();
            begin.send(()).unwrap();
            all_counted.recv_timeout(Duration::from_secs(30)).expect("it counts while a sample is taken");
        }
        thread.join().unwrap();
        assert_eq!(instruments.statistic(Statistic::RedoSize), 5);
    }

    #[test]
    fn waits_in_progress_are_shown_and_counted_when_they_end() {
        let instruments = Arc::new(Instruments::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                instruments.enter_thread("lgwr");
                let mut outer = waiting(Event::LogBufferSpace);
                {
                    let _inner = waiting(Event::LogFileParallelWrite);
                    assert_eq!(
                        waits_of(&instruments, "lgwr"),
                        [Event::LogBufferSpace, Event::LogFileParallelWrite]
                    );
                    let shown = &instruments.sample().threads[0];
                    assert_eq!(shown.event.as_deref(), Some("log file parallel write"));
                }
                outer.become_one_for(Event::LogBufferSpace);
                assert_eq!(count(&instruments, Event::LogBufferSpace), 0);
                outer.become_one_for(Event::SwitchArchivingNeeded);
                assert_eq!(count(&instruments, Event::LogBufferSpace), 1);
                assert_eq!(waits_of(&instruments, "lgwr"), [Event::SwitchArchivingNeeded]);
                assert_eq!(instruments.held_up_by(), Some(Event::SwitchArchivingNeeded));
                outer.forget();
                assert!(waits_of(&instruments, "lgwr").is_empty());
            });
        });
        assert_eq!(count(&instruments, Event::SwitchArchivingNeeded), 0);
        assert_eq!(count(&instruments, Event::LogFileParallelWrite), 1);
    }

    #[test]
    fn waits_nested_too_deep_to_show_are_still_counted() {
        let instruments = Arc::new(Instruments::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                instruments.enter_thread("deep");
                let all: Vec<Waiting> = (0..DEPTH + 3).map(|_| waiting(Event::RfsWrite)).collect();
                assert_eq!(waits_of(&instruments, "deep").len(), DEPTH);
                all.into_iter().rev().for_each(drop);
                assert!(waits_of(&instruments, "deep").is_empty());
            });
        });
        assert_eq!(count(&instruments, Event::RfsWrite), DEPTH as u64 + 3);
    }

    #[test]
    fn statistics_add_up() {
        let instruments = Instruments::default();
        instruments.add(Statistic::RedoSize, 40);
        instruments.add(Statistic::RedoSize, 2);
        let sample = instruments.sample();
        assert_eq!(sample.statistic(Statistic::RedoSize.name()), Some(42));
        assert_eq!(sample.statistic("no such statistic"), None);
    }
}
