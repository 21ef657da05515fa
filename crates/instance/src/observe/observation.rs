//! Everything that can be observed of this instance, in one document, with the observations of its standbys.

use crate::role::running::Running;
use crate::role::standby_observations::ask_standbys;
use standfast_instruments::{Activity, Event, History, Observation, Sample, Statistic, WaitClass};
use standfast_session::SessionWait;

/// Returns an observation. History and standbys are included only on request: the history is long, and querying the
/// standbys takes a round trip.
pub fn observe(running: &Running, history: bool, standbys: bool) -> Observation {
    Observation {
        catalog: crate::observe::catalog::catalog(running),
        history: if history { running.history().all() } else { History::default() },
        standbys: if standbys { ask_standbys(running, history) } else { Vec::new() },
        ..at_a_glance(running)
    }
}

/// Returns an observation for another instance, as JSON. It must fit into one frame, so it has only the newest part of
/// the history.
pub fn for_others(running: &Running, history: bool) -> String {
    let history = if history { running.history().newest() } else { History::default() };
    let observation = Observation { history, ..observe(running, false, false) };
    serde_json::to_string(&observation).unwrap_or_else(|_| "{}".into())
}

/// Returns the parts that change constantly, of this instance alone. Accesses no file.
pub fn at_a_glance(running: &Running) -> Observation {
    Observation {
        name: running.environment.config.instance.name.clone(),
        sample: sample(running),
        status: crate::observe::status::status(running),
        ..Observation::default()
    }
}

/// Wait events and statistics of the whole instance: those of its threads and those of sessions.
pub fn sample(running: &Running) -> Sample {
    let environment = &running.environment;
    let mut sample = environment.instruments.sample();
    environment.put_sessions_into(&mut sample);
    for kilobytes in [Statistic::RedoReadForTransport, Statistic::RedoReadMemoryForTransport] {
        sample.put_statistic(kilobytes.name(), environment.instruments.statistic(kilobytes) / 1024);
    }
    sample
}

/// Wait event that corresponds to a session's wait.
fn event_of(wait: SessionWait) -> Option<Event> {
    match wait {
        SessionWait::LogFileSync => Some(Event::LogFileSync),
        SessionWait::WriteLock => Some(Event::WriteLock),
        SessionWait::WalReset => Some(Event::WalReset),
        SessionWait::Scheduling | SessionWait::Transaction => None,
    }
}

/// Activity at this moment: sessions that wait or hold a write lock, and threads of the instance that are not idle.
pub fn activity(running: &Running, now_us: u64) -> Vec<Activity> {
    let mut all = Vec::new();
    if let Some(primary) = running.primary() {
        let shared = primary.threads.shared();
        let databases = shared.all_databases();
        for session in shared.segment.active_sessions() {
            let name = databases.iter().find(|database| database.id().0 == session.database);
            let event = session.waits_for.and_then(event_of);
            // The session holds the write lock while its application sleeps elsewhere, so it is not active in the
            // database.
            if event.is_none() && standfast_instruments::is_process_asleep(session.pid) {
                continue;
            }
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
