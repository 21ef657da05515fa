//! A log that holds redo is switched when it reaches the archive lag target, and no commit waits for that
//! switch.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_primary::commit::archive_lag::ArchiveLag;
use standfast_primary::commit::primary::NoShipping;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::{commit, small_primary};
use standfast_testkit::SimClock;
use standfast_types::DatabaseId;
use std::sync::Arc;
use std::time::Duration;

const TARGET_S: u64 = 60;

/// Does the log writer's check of every iteration. Returns whether the log was switched.
fn look(host: &mut PrimaryHost, lag: &mut ArchiveLag, clock: &SimClock) -> bool {
    let (sequence, holds_redo) = (host.primary.writer().sequence(), host.primary.log_holds_redo());
    let due = lag.is_due(Duration::from_micros(clock.now_us()), sequence, holds_redo);
    due && host.primary.try_switch_log().unwrap()
}

#[test]
fn lag_target_switches_a_log_with_redo_and_no_idle_log() {
    let (machine, _geometry, _segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    let (mut lag, clock) = (ArchiveLag::new(TARGET_S), machine.clock().clone());
    host.drain().unwrap();
    host.switch_log().unwrap();
    host.checkpoint().unwrap();
    host.archive().unwrap();
    assert!(!host.primary.log_holds_redo(), "only the notes with which a log begins");
    for _ in 0..10 {
        clock.advance(30_000_000);
        assert!(!look(&mut host, &mut lag, &clock));
    }
    commit(&machine, &host, DatabaseId(1));
    host.drain().unwrap();
    let captured = host.shared.buffer.captured();
    assert!(!look(&mut host, &mut lag, &clock));
    clock.advance(TARGET_S * 1_000_000 - 1);
    assert!(!look(&mut host, &mut lag, &clock));
    clock.advance(1);
    assert!(look(&mut host, &mut lag, &clock));
    host.archive().unwrap();
    let archived = host.source.redo_log().archived();
    assert!(archived.iter().any(|log| log.header.next_scn == Some(captured)), "it is in an archived log");
    for _ in 0..10 {
        clock.advance(TARGET_S * 1_000_000);
        assert!(!look(&mut host, &mut lag, &clock));
    }
}

#[test]
fn log_due_for_switch_is_not_switched_while_it_would_wait() {
    let (machine, _geometry, _segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    let (mut lag, clock) = (ArchiveLag::new(TARGET_S), machine.clock().clone());
    host.switch_log().unwrap();
    commit(&machine, &host, DatabaseId(1));
    host.drain().unwrap();
    assert!(!look(&mut host, &mut lag, &clock));
    clock.advance(TARGET_S * 1_000_000);
    // The other one of the two groups is not archived yet; a switch that waited for it would wait for ever here.
    assert!(host.primary.writer().switch_blocked().is_some());
    assert!(!look(&mut host, &mut lag, &clock));
    assert_eq!(host.shared.waiting_for(), "");
    host.checkpoint().unwrap();
    host.archive().unwrap();
    assert!(look(&mut host, &mut lag, &clock));
}
