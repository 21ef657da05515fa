//! Instruments of commits with real processes: the parts of a commit add up, and the slow part is the right one.

use crate::support::{INSERT, Place, add_destination, await_status, must, start};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use standfast_instruments::{CommitPart, Event, HistogramCounts, Observation, Sample};
use std::time::Duration;

const COMMITS: u64 = 40;

fn observe(instance: &Instance) -> Observation {
    let text = must(instance, &["observe", "--standbys", "--history"]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn part(sample: &Sample, part: CommitPart) -> HistogramCounts {
    sample.part(part).unwrap().clone()
}

#[test]
fn commit_parts_add_up_to_the_wait_of_their_sessions() {
    let place = Place::new("parts");
    let (mut primary, _standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    (0..COMMITS).for_each(|_| drop(application.run(INSERT)));
    let observed = observe(&primary);
    add_up(&observed.sample);
    // The standby reports its figures through the primary.
    let [there] = &observed.standbys[..] else { panic!("one standby: {:?}", observed.standbys) };
    let there = there.observation.as_ref().unwrap_or_else(|| panic!("{:?}", there.error));
    assert!(there.sample.event(Event::RfsRandomIo).unwrap().count >= COMMITS);
    assert!(there.sample.event(Event::RfsWrite).unwrap().count >= 1);
    // What sessions count outlives the instance; the figures of the next instance start with it and add up as well.
    primary.kill();
    start(&mut primary);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    (0..COMMITS).for_each(|_| drop(application.run(INSERT)));
    add_up(&observe(&primary).sample);
    application.close();
}

/// Asserts that the parts add up in an instance with [`COMMITS`] commits.
fn add_up(sample: &Sample) {
    let waited = sample.event(Event::LogFileSync).unwrap();
    let of_sync = CommitPart::ALL.into_iter().filter(|part| part.is_of_log_file_sync());
    let parts: Vec<HistogramCounts> = of_sync.map(|of| part(sample, of)).collect();
    let sum: u64 = parts.iter().map(|counts| counts.time_ns).sum();
    assert_eq!(waited.count, COMMITS);
    assert!(parts.iter().all(|counts| counts.count == COMMITS), "{parts:?}");
    assert_eq!(sum, waited.time_ns, "one line of time, cut into parts");
    assert_eq!(sample.statistic("redo synch writes"), Some(COMMITS));
    assert_eq!(part(sample, CommitPart::Transaction).count, COMMITS);
    assert!(sample.event(Event::SyncRemoteWrite).unwrap().count >= 1);
    assert!(sample.event(Event::LogFileParallelWrite).unwrap().count >= 1);
}

#[test]
fn slow_disk_shows_as_remote_write_or_as_local_write() {
    const SLOW: Duration = Duration::from_millis(30);
    for (here, slow, other) in [
        (false, CommitPart::RemoteWrite, CommitPart::LocalWrite),
        (true, CommitPart::LocalWrite, CommitPart::RemoteWrite),
    ] {
        let place = Place::new(if here { "slow-here" } else { "slow-there" });
        let (mut primary, database) = place.protecting();
        let mut standby = place.standby_of(&primary, "north");
        add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
        await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
        let slowed = if here { &mut primary } else { &mut standby };
        slowed.stop().unwrap();
        slowed.faults = Some("log-write=sleep:30@1+".into());
        start(slowed);
        await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
        let before = observe(&primary).sample;
        let mut application = place.application(&database);
        (0..COMMITS).for_each(|_| drop(application.run(INSERT)));
        let interval = observe(&primary).sample.since(&before).unwrap();
        let of = |one: CommitPart| Duration::from_nanos(part(&interval, one).time_ns);
        assert_eq!(part(&interval, slow).count, COMMITS);
        assert!(of(slow) >= SLOW * COMMITS as u32, "{slow:?}: {:?}", of(slow));
        assert!(of(slow) > of(other) * 2, "{slow:?}: {:?}, {other:?}: {:?}", of(slow), of(other));
        application.close();
    }
}

#[test]
fn lag_of_a_lost_standby_is_the_age_of_the_redo_it_lacks() {
    let place = Place::new("gone");
    let (primary, mut standby, database) = place.pair(&["--net-timeout-ms", "1000"]);
    let lag = |status: &Status| status.json()["destinations"][0]["transport_lag_s"].as_f64();
    await_status(&primary, "no lag while it is heard", |status| lag(status) == Some(0.0));
    standby.kill();
    await_status(&primary, "it is missed", |status| !status.streams());
    // A checkpoint may have made redo in between, which the standby then lacks.
    let lacking = |status: &Status| status.json()["destinations"][0]["transport_lag_bytes"] != 0;
    await_status(&primary, "a lag of 0 is not claimed", |status| lag(status).is_none() || lacking(status));
    let mut application = place.application(&database);
    application.run(INSERT);
    await_status(&primary, "a lag that grows", |status| lag(status) > Some(2.0));
    let observed = observe(&primary);
    assert!(observed.standbys[0].observation.is_none() && observed.standbys[0].error.is_some());
    application.close();
}

#[test]
fn counters_never_decrease_when_destinations_come_and_go() {
    let place = Place::new("counts");
    let (primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    let mut commit = || (0..COMMITS).for_each(|_| drop(application.run(INSERT)));
    commit();
    let before = observe(&primary).sample;
    must(&primary, &["destination", "remove", "north"]);
    add_destination(&primary, &standby, &["--mode", "async"]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    commit();
    let since = observe(&primary).sample.since(&before).expect("nothing counts less than before");
    assert_eq!(since.event(Event::LogFileSync).unwrap().count, COMMITS);
    assert!(since.statistic("redo size").unwrap() > 0);
    application.close();
}
