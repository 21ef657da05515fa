//! One destination, event by event. Destinations together: `destination_set`; under time: `tests/timeouts.rs`.

use super::*;
use crate::destination_config::{OnTimeout, TransportMode};
use crate::stopped::StoppedDatabase;
use crate::verified::{PageDifference, VerifiedDatabase};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn config() -> DestinationConfig {
    DestinationConfig {
        name: "oslo".into(),
        mode: TransportMode::SyncAffirm,
        net_timeout: s(30),
        reopen: s(60),
        max_failure: 0,
        grouped: false,
        on_timeout: OnTimeout::Degrade,
        sync_latency: Duration::ZERO,
    }
}

/// Required, and streaming from 100.
fn streaming(config: DestinationConfig) -> Destination {
    let mut destination = Destination::new(config, true, s(0));
    destination.connected(s(0));
    destination.resolved(s(0), Scn(100), Scn(100), Scn(100), Scn(100));
    destination.take_events();
    destination
}

fn reasons(destination: &mut Destination) -> Vec<String> {
    let of = |event| match event {
        SenderEvent::Disconnected { reason } => Some(reason),
        _ => None,
    };
    destination.take_events().into_iter().filter_map(of).collect()
}

#[test]
fn primary_promises_a_standby_to_wait_only_as_long_as_it_will() {
    let wait = |config: DestinationConfig| streaming(config).shortest_wait();
    assert_eq!(wait(config()), s(30));
    assert_eq!(wait(DestinationConfig { sync_latency: s(2), ..config() }), s(2));
    assert_eq!(wait(DestinationConfig { sync_latency: s(40), ..config() }), s(30));
    // A lost connection may be enough.
    assert_eq!(wait(DestinationConfig { max_failure: 1, ..config() }), s(0));
    assert_eq!(wait(DestinationConfig { grouped: true, ..config() }), s(0));
    assert_eq!(wait(DestinationConfig { mode: TransportMode::Async, ..config() }), s(0));
    let mut ended = streaming(config());
    assert!(ended.is_synchronised());
    ended.end();
    assert_eq!(ended.shortest_wait(), s(0));
    assert!(!ended.is_synchronised());
}

#[test]
fn destination_that_has_never_answered_was_never_heard() {
    let mut destination = Destination::new(config(), true, s(5));
    assert_eq!(destination.last_heard(), None);
    destination.connected(s(6));
    assert_eq!(destination.last_heard(), None, "it has not reported what it has");
    destination.resolved(s(7), Scn(100), Scn(100), Scn(100), Scn(100));
    assert_eq!(destination.last_heard(), Some(s(7)));
    destination.acked(s(9), Scn(120), Scn(110), Scn(100), Scn(120));
    destination.lost(s(10), "gone");
    assert_eq!(destination.last_heard(), Some(s(9)));
}

#[test]
fn redo_that_a_forwarding_standby_has_not_forwarded_does_not_count() {
    let mut destination = Destination::new(config(), true, s(0));
    destination.connected(s(0));
    destination.set_cascade_limit(Some(Scn(80)));
    destination.resolved(s(0), Scn(100), Scn(100), Scn(60), Scn(100));
    assert_eq!((destination.acknowledged(), destination.positions()), (Scn(80), (Scn(80), Scn(80), Scn(60))));
    destination.lost(s(1), "gone");
    destination.connected(s(2));
    destination.set_cascade_limit(None);
    destination.resolved(s(2), Scn(100), Scn(100), Scn(60), Scn(100));
    assert_eq!(destination.acknowledged(), Scn(100));
}

#[test]
fn each_reason_of_an_outage_is_reported_once_and_again_in_the_next_outage() {
    let mut destination = streaming(config());
    for (now, reason) in [(1, "reset"), (2, "refused"), (3, "refused"), (4, "no route"), (5, "refused")] {
        destination.lost(s(now), reason);
    }
    assert_eq!(reasons(&mut destination), ["reset", "refused", "no route"]);
    for (now, reason) in [(6, "a"), (7, "b"), (8, "c")] {
        destination.lost(s(now), reason);
    }
    assert_eq!(reasons(&mut destination), ["a"], "not more than four");
    // A connection that is made begins another outage, though nothing was acknowledged over it.
    destination.connected(s(9));
    destination.lost(s(10), "refused");
    assert_eq!(reasons(&mut destination), ["refused"]);
}

#[test]
fn own_reason_to_begin_another_stream_is_reported_with_each_stream_and_once_without() {
    let mut destination = streaming(config());
    destination.restarts_stream(s(1), "the list has changed");
    assert_eq!(reasons(&mut destination), ["the list has changed"]);
    // No stream has begun since.
    destination.connected(s(2));
    destination.restarts_stream(s(2), "the list has changed");
    assert_eq!(reasons(&mut destination), Vec::<String>::new());
    destination.restarts_stream(s(3), "its own log cannot be read");
    assert_eq!(reasons(&mut destination), ["its own log cannot be read"]);
    // The end of a stream is reported every time.
    destination.connected(s(4));
    destination.resolved(s(4), Scn(100), Scn(100), Scn(100), Scn(100));
    destination.restarts_stream(s(5), "its own log cannot be read");
    assert_eq!(reasons(&mut destination), ["its own log cannot be read"]);
    assert_eq!((destination.failures(), destination.standing()), (0, Standing::Required), "no failure of it");
}

#[test]
fn changed_policy_holds_for_the_commit_that_waits() {
    for (policy, standing) in
        [(OnTimeout::Stall, Standing::Stalled), (OnTimeout::Degrade, Standing::Degraded)]
    {
        let before = if policy == OnTimeout::Stall { OnTimeout::Degrade } else { OnTimeout::Stall };
        let mut destination = streaming(DestinationConfig { on_timeout: before, ..config() });
        destination.tick(s(1), Scn(200));
        destination.set_policy(policy, s(7));
        assert_eq!(destination.shortest_wait(), s(7));
        destination.tick(s(40), Scn(200));
        assert_eq!(destination.standing(), standing);
    }
}

#[test]
fn destination_that_stalls_commits_lets_them_go_once_the_policy_allows_it() {
    let stall = DestinationConfig { on_timeout: OnTimeout::Stall, ..config() };
    let mut silent = streaming(stall.clone());
    silent.tick(s(1), Scn(200));
    silent.tick(s(31), Scn(200));
    assert_eq!(silent.standing(), Standing::Stalled);
    silent.set_policy(OnTimeout::Degrade, Duration::ZERO);
    silent.tick(s(32), Scn(200));
    assert_eq!(silent.standing(), Standing::Degraded);
    // One that leaves is let go at once, not after its net timeout.
    let mut leaving = streaming(stall);
    leaving.refused(s(1), Refusal::new(RefuseCode::Stopping, "it stops"));
    leaving.tick(s(2), Scn(100));
    assert!(leaving.has_left() && leaving.standing() == Standing::Required);
    leaving.set_policy(OnTimeout::Degrade, Duration::ZERO);
    leaving.tick(s(3), Scn(100));
    assert_eq!(leaving.standing(), Standing::Degraded);
    leaving.connected(s(4));
    leaving.resolved(s(4), Scn(100), Scn(100), Scn(100), Scn(100));
    assert!(!leaving.has_left());
}

#[test]
fn oldest_commit_has_waited_since_its_redo_was_captured() {
    let mut destination = streaming(config());
    destination.tick(s(1), Scn(100));
    assert_eq!(destination.waited_for_since(), None, "it has all that was captured");
    destination.tick(s(3), Scn(200));
    assert_eq!(destination.waited_for_since(), Some(s(3)));
    // Times are kept about two seconds apart: a sixteenth of the net timeout.
    destination.tick(s(4), Scn(300));
    destination.tick(s(5), Scn(400));
    destination.tick(s(6), Scn(500));
    destination.acked(s(7), Scn(200), Scn(200), Scn(100), Scn(500));
    assert_eq!(destination.waited_for_since(), Some(s(5)));
    destination.acked(s(8), Scn(500), Scn(399), Scn(100), Scn(500));
    assert_eq!(destination.waited_for_since(), Some(s(5)), "received is not hardened");
    destination.acked(s(9), Scn(500), Scn(400), Scn(100), Scn(500));
    assert_eq!(destination.waited_for_since(), None, "nothing older than the next mark");
}

#[test]
fn what_the_standby_reports_of_its_databases_is_an_event_once_and_kept_over_connections() {
    let mut destination = streaming(config());
    let stopped = StoppedDatabase { database: "a.db".into(), applied: None, reason: "a bad page".into() };
    let of_stopped = StoppedDatabases { total: 1, databases: vec![stopped.clone()] };
    let page = PageDifference { page: 3, scn: Scn(90), expected: 1, found: None };
    let verified = VerifiedDatabase {
        database: "b.db".into(),
        differing: 1,
        pages: vec![page],
        ..VerifiedDatabase::default()
    };
    let of_verified = VerifiedDatabases { differing: 1, databases: vec![verified] };
    for _ in 0..2 {
        destination.stopped(of_stopped.clone());
        destination.verified(of_verified.clone());
    }
    assert_eq!(
        destination.take_events(),
        [
            SenderEvent::ApplyStopped(stopped),
            SenderEvent::PagesDiffer { database: "b.db".into(), pages: 1, first: page }
        ]
    );
    destination.lost(s(1), "gone");
    assert_eq!(destination.stopped_databases(), &of_stopped);
    assert_eq!(destination.verified_databases(), &of_verified);
}

#[test]
fn refusals_are_failures_of_the_destination_and_an_answer_ends_their_row() {
    let mut destination = streaming(DestinationConfig { max_failure: 3, ..config() });
    let cannot_write = Refusal::new(RefuseCode::StandbyLog, "no space");
    destination.refused(s(1), cannot_write.clone());
    destination.refused(s(2), cannot_write.clone());
    assert_eq!(destination.failures(), 2);
    destination.lost(s(3), "gone");
    assert_eq!(destination.phase(), &Phase::Failed { code: None, retry_at: None });
    assert!(destination.take_events().contains(&SenderEvent::GaveUp { failures: 3 }));
    destination.enable(s(4));
    assert_eq!(destination.failures(), 0);
    destination.refused(s(5), cannot_write);
    destination.connected(s(6));
    destination.resolved(s(6), Scn(100), Scn(100), Scn(100), Scn(100));
    assert_eq!(destination.failures(), 1);
    destination.acked(s(7), Scn(100), Scn(100), Scn(100), Scn(100));
    assert_eq!(destination.failures(), 0);
}
