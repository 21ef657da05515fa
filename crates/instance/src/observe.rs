//! Everything that can be observed of this instance, in one document, with what its standbys say of themselves.

use crate::running::Running;
use standfast_instruments::{
    Activity, BUCKETS, CommitPart, Event, HistogramCounts, History, Observation, Remote, Sample, Statistic,
    WaitClass,
};
use standfast_session::{Segment, SessionWait, WaitCounts};
use standfast_transport::{DestinationStatus, fetch_status};
use std::time::Duration;

/// Waits for durability that are longer than this are long, microseconds: `redo synch long waits`.
const LONG_WAIT_US: u64 = 1 << 17;

/// How long a standby may be silent when it is asked. Whoever asks here waits as long for one that is frozen.
const STANDBY_PATIENCE: Duration = Duration::from_secs(3);

/// See the module. The history is long, and the standbys take a round trip: both are there only when they are wanted.
pub fn observe(running: &Running, history: bool, standbys: bool) -> Observation {
    Observation {
        name: running.environment.config.instance.name.clone(),
        sample: sample(running),
        status: crate::status::status(running),
        catalog: crate::catalog::catalog(running),
        history: if history { running.history().lock() } else { History::default() },
        standbys: if standbys { ask_standbys(running) } else { Vec::new() },
    }
}

/// Wait events and statistics of the whole instance: what its threads count, and what sessions do.
pub fn sample(running: &Running) -> Sample {
    let mut sample = running.environment.instruments.sample();
    if let Some(primary) = running.primary() {
        let shared = primary.threads.shared();
        add_sessions(&mut sample, shared.segment);
        sample.put_statistic(
            Statistic::UserCommits.name(),
            shared.commits.load(std::sync::atomic::Ordering::Relaxed),
        );
        let sums = primary.destinations().redo_sent();
        sample.put_statistic(Statistic::RedoReadForTransport.name(), sums.from_logs / 1024);
        sample.put_statistic(
            Statistic::RedoReadMemoryForTransport.name(),
            sums.all.saturating_sub(sums.from_logs) / 1024,
        );
    }
    sample
}

fn add_sessions(sample: &mut Sample, segment: Segment) {
    let counts = |what: SessionWait| histogram(&segment.wait_counts(what));
    let (sync, scheduling) = (counts(SessionWait::LogFileSync), counts(SessionWait::Scheduling));
    let long = sync.buckets.iter().skip(LONG_WAIT_US.ilog2() as usize + 1).sum();
    let sleeps = segment.counts();
    let statistics = [
        (Statistic::RedoSynchWrites, sync.count),
        (Statistic::RedoSynchTime, sync.time_ns / 1000),
        (Statistic::RedoSynchTimeOverhead, scheduling.time_ns / 1000),
        (Statistic::RedoSynchLongWaits, long),
        (Statistic::RedoSynchPolls, sleeps.commit_waits.saturating_sub(sleeps.commit_sleeps)),
        (Statistic::BackgroundWakes, sleeps.daemon_wakes),
    ];
    for (statistic, value) in statistics {
        sample.put_statistic(statistic.name(), value);
    }
    let queue = counts(SessionWait::WriteLock);
    sample.put_event(Event::LogFileSync, sync);
    sample.put_event(Event::WriteLock, queue.clone());
    sample.put_event(Event::WalReset, counts(SessionWait::WalReset));
    sample.put_part(CommitPart::WriteLockQueue, queue);
    sample.put_part(CommitPart::Transaction, counts(SessionWait::Transaction));
    sample.put_part(CommitPart::Scheduling, scheduling);
}

fn histogram(counts: &WaitCounts) -> HistogramCounts {
    HistogramCounts {
        count: counts.buckets.iter().sum(),
        time_ns: counts.time_ns,
        max_ns: counts.max_ns,
        buckets: counts.buckets.clone(),
    }
}

const _: () = assert!(BUCKETS == standfast_session::BUCKETS);

/// The event that sessions see.
fn event_of(wait: SessionWait) -> Option<Event> {
    match wait {
        SessionWait::LogFileSync => Some(Event::LogFileSync),
        SessionWait::WriteLock => Some(Event::WriteLock),
        SessionWait::WalReset => Some(Event::WalReset),
        SessionWait::Scheduling | SessionWait::Transaction => None,
    }
}

/// Who is active at this moment: sessions that wait or hold a write lock, and threads of the instance that are not
/// idle.
pub fn activity(running: &Running, now_us: u64) -> Vec<Activity> {
    let mut all = Vec::new();
    if let Some(primary) = running.primary() {
        let shared = primary.threads.shared();
        let databases = shared.all_databases();
        for session in shared.segment.active_sessions() {
            let name = databases.iter().find(|database| database.id().0 == session.database);
            let event = session.waits_for.and_then(event_of);
            all.push(Activity {
                time_us: now_us,
                session: session.slot as u32 + 1,
                pid: session.pid,
                name: name.map(|database| database.record().name.clone()).unwrap_or_default(),
                foreground: true,
                event: event.map(|event| event.name().into()),
                class: event.map(Event::class),
                waited_us: event.map(|_| session.for_ns / 1000),
            });
        }
    }
    for thread in running.environment.instruments.sample_threads() {
        let event = thread.event.as_deref().and_then(Event::named);
        if event.is_some_and(|event| event.class() == WaitClass::Idle) {
            continue;
        }
        all.push(Activity {
            time_us: now_us,
            session: 0,
            pid: std::process::id(),
            name: thread.name,
            foreground: false,
            event: thread.event,
            class: event.map(Event::class),
            waited_us: thread.waited_us,
        });
    }
    all
}

/// All destinations are asked at the same time: one that is away does not hold the others up.
fn ask_standbys(running: &Running) -> Vec<Remote> {
    let Some(primary) = running.primary() else { return Vec::new() };
    let destinations = primary.destinations().status();
    std::thread::scope(|scope| {
        let ask = |(destination, _): &(DestinationStatus, bool)| {
            let (name, address) = (destination.name.clone(), destination.address.clone());
            let security = running.environment.security();
            scope.spawn(move || {
                let answer =
                    fetch_status(&address, &security, STANDBY_PATIENCE).map_err(|error| error.to_string());
                let answer = answer.and_then(|text| {
                    serde_json::from_str::<Observation>(&text).map_err(|error| error.to_string())
                });
                let (observation, error) = match answer {
                    Ok(observation) => (Some(Box::new(observation)), None),
                    Err(error) => (None, Some(error)),
                };
                Remote { name, observation, error, asked_us: crate::now_us() }
            })
        };
        let asked: Vec<_> = destinations.iter().map(ask).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
    })
}
