//! The link model under a synthetic clock: whatever is done to a link, nothing arrives early, twice, or out of order.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use standfast_wan::chance::Chance;
use standfast_wan::link::{Fate, Link, State};
use standfast_wan::settings::{Nanos, Queue, Settings, WHOLE};

const MS: Nanos = 1_000_000;

fn link(settings: Settings) -> Link<u64> {
    Link::new(settings, Chance::new(7, 0, 1))
}

/// Offers a segment and holds it under its number; returns whether it passed.
fn send(link: &mut Link<u64>, now: Nanos, bytes: u64, number: u64) -> bool {
    match link.offer(now, bytes) {
        Fate::Passes(passage) => {
            link.hold(passage, number);
            true
        }
        Fate::Dropped => false,
    }
}

/// All arrivals as (time, number), released exactly when they are due.
fn arrivals(link: &mut Link<u64>) -> Vec<(Nanos, u64)> {
    let mut out = Vec::new();
    while let Some(due) = link.next_due() {
        let (number, late) = link.release(due).unwrap();
        assert_eq!(late, 0);
        out.push((due, number));
    }
    out
}

#[test]
fn a_packet_arrives_after_transmission_and_delay() {
    let mut link = link(Settings { delay: 10 * MS, rate: Some(12_000_000), ..Settings::default() });
    assert!(send(&mut link, 5 * MS, 1500, 1));
    assert!(send(&mut link, 5 * MS, 1500, 2));
    assert_eq!(link.release(15 * MS), None);
    assert_eq!(arrivals(&mut link), [(16 * MS, 1), (17 * MS, 2)]);
}

#[test]
fn late_release_reports_how_late_it_is() {
    let mut link = link(Settings { delay: MS, ..Settings::default() });
    send(&mut link, 0, 100, 1);
    assert_eq!(link.release(MS + 250), Some((1, 250)));
}

#[test]
fn a_full_queue_drops_and_drains_at_the_rate() {
    let settings = Settings { rate: Some(12_000_000), queue: Queue::Bytes(15_000), ..Settings::default() };
    let mut link = link(settings);
    let passed = (0..20).filter(|number| send(&mut link, 0, 1500, *number)).count();
    assert_eq!((passed, link.counts().queue_full), (10, 10));
    // One packet leaves per millisecond.
    assert!(send(&mut link, MS, 1500, 20));
    assert!(!send(&mut link, MS, 1500, 21));
}

#[test]
fn cut_link_loses_packets_in_flight_and_healing_restores_none() {
    let mut link = link(Settings { delay: MS, ..Settings::default() });
    send(&mut link, 0, 100, 1);
    link.cut();
    assert_eq!((link.state(), link.next_due(), link.held_bytes()), (State::Cut, None, 0));
    assert!(!send(&mut link, 10, 100, 2));
    link.heal(20);
    assert!(send(&mut link, 20, 100, 3));
    assert_eq!((arrivals(&mut link), link.counts().cut), (vec![(MS + 20, 3)], 2));
}

#[test]
fn a_stall_stops_time_on_the_link() {
    let settings = Settings { delay: 2 * MS, rate: Some(12_000_000), ..Settings::default() };
    let mut link = link(settings);
    send(&mut link, 0, 1500, 1);
    link.stall(MS);
    // A second stall does not move the time of the first.
    link.stall(2 * MS);
    send(&mut link, 5 * MS, 1500, 2);
    assert_eq!((link.state(), link.next_due(), link.release(100 * MS)), (State::Stalled, None, None));
    link.heal(11 * MS);
    // Ten milliseconds later than without the stall; the second packet came when the first had just been transmitted.
    assert_eq!(arrivals(&mut link), [(13 * MS, 1), (14 * MS, 2)]);
}

#[test]
fn a_stalled_link_still_has_a_limited_queue() {
    let settings = Settings { rate: Some(12_000_000), queue: Queue::Bytes(3_000), ..Settings::default() };
    let mut link = link(settings);
    link.stall(0);
    let passed = (0..5).filter(|number| send(&mut link, number * 50 * MS, 1500, *number)).count();
    assert_eq!(passed, 2);
}

#[test]
fn faster_rate_applies_to_queued_packets_not_those_in_flight() {
    let slow = Settings {
        delay: 10 * MS,
        rate: Some(1_200_000),
        queue: Queue::Bytes(1 << 20),
        ..Settings::default()
    };
    let mut link = link(slow);
    (0..4).for_each(|number| assert!(send(&mut link, 0, 1500, number)));
    // The first is transmitted after 10 ms; the others go out at ten times the rate from 15 ms on.
    link.set(15 * MS, Settings { rate: Some(12_000_000), ..slow });
    assert_eq!(arrivals(&mut link), [(20 * MS, 0), (26 * MS, 1), (27 * MS, 2), (28 * MS, 3)]);
}

#[test]
fn a_shorter_delay_does_not_let_packets_overtake() {
    let long = Settings { delay: 50 * MS, ..Settings::default() };
    let mut link = link(long);
    send(&mut link, 0, 100, 1);
    link.set(MS, Settings { delay: MS, ..long });
    send(&mut link, MS, 100, 2);
    assert_eq!(arrivals(&mut link), [(50 * MS, 1), (50 * MS, 2)]);
}

#[test]
fn overtaken_packets_arrive_later_by_the_configured_time() {
    let settings = Settings { delay: MS, reorder: WHOLE / 10, reorder_by: 5 * MS, ..Settings::default() };
    let mut link = link(settings);
    (0..1000).for_each(|number| assert!(send(&mut link, number * 10_000, 100, number)));
    let arrived = arrivals(&mut link);
    let late = arrived.iter().filter(|(at, number)| at - number * 10_000 == 6 * MS).count();
    let on_time = arrived.iter().filter(|(at, number)| at - number * 10_000 == MS).count();
    assert_eq!((late + on_time, late as u64), (1000, link.counts().overtaken));
    assert!((70..130).contains(&late), "{late}");
    assert!(!arrived.is_sorted_by_key(|(_, number)| *number));
}

#[test]
fn same_seed_drops_the_same_segments_regardless_of_timing() {
    let lossy = Settings { loss: WHOLE / 5, ..Settings::default() };
    let passed = |step: Nanos, rate| {
        let mut link = link(Settings { rate, ..lossy });
        (0..500).filter(|number| send(&mut link, number * step, 1500, *number)).collect::<Vec<u64>>()
    };
    assert_eq!(passed(10, None), passed(50 * MS, Some(1_000_000)));
    assert!(passed(10, None).len() < 450);
}

#[derive(Clone, Debug)]
enum Step {
    Send(u64),
    Wait(Nanos),
    Set(Settings),
    Cut,
    Stall,
    Heal,
}

fn settings() -> impl Strategy<Value = Settings> {
    let rate = proptest::option::of(1_000_000_u64..10_000_000_000);
    (0..20 * MS, rate, 3_000_u64..200_000, 0..WHOLE / 4, 0_u64..100).prop_map(
        |(delay, rate, queue, loss, jitter_percent)| Settings {
            delay,
            rate,
            queue: Queue::Bytes(queue),
            loss,
            jitter: delay * jitter_percent / 100,
            ..Settings::default()
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (40_u64..1500).prop_map(Step::Send),
        10 => (0..3 * MS).prop_map(Step::Wait),
        1 => settings().prop_map(Step::Set),
        1 => Just(Step::Cut),
        1 => Just(Step::Stall),
        3 => Just(Step::Heal),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn every_segment_is_counted_once_and_the_order_is_kept(first in settings(), steps in steps()) {
        let (mut link, mut now, mut sent, mut passed) = (link(first), 0, 0, 0);
        let mut arrived = Vec::new();
        for step in steps {
            match step {
                Step::Send(bytes) => {
                    passed += u64::from(send(&mut link, now, bytes, sent));
                    sent += 1;
                }
                Step::Wait(time) => {
                    now += time;
                    while let Some((number, _)) = link.release(now) {
                        arrived.push(number);
                    }
                }
                Step::Set(settings) => link.set(now, settings),
                Step::Cut => link.cut(),
                Step::Stall => link.stall(now),
                Step::Heal => link.heal(now),
            }
        }
        link.heal(now);
        arrived.extend(arrivals(&mut link).iter().map(|(_, number)| *number));
        prop_assert!(arrived.is_sorted_by(|one, next| one < next));
        let counts = link.counts();
        prop_assert_eq!(counts.segments, sent);
        prop_assert_eq!(counts.delivered_segments, arrived.len() as u64);
        prop_assert_eq!(counts.delivered_segments + counts.lost + counts.queue_full + counts.cut, sent);
        prop_assert!(counts.delivered_segments <= passed);
        prop_assert_eq!(link.held_bytes(), 0);
    }

    #[test]
    fn no_packet_arrives_early_and_every_interval_keeps_the_rate(
        settings in settings(),
        gaps in proptest::collection::vec((0..MS / 10, 40_u64..1500), 1..300),
    ) {
        let mut link = link(settings);
        let (mut now, mut sizes, mut sent_at) = (0, Vec::new(), Vec::new());
        for (number, (gap, bytes)) in gaps.iter().enumerate() {
            now += gap;
            sizes.push(*bytes);
            sent_at.push(now);
            send(&mut link, now, *bytes, number as u64);
        }
        let arrived = arrivals(&mut link);
        for (at, number) in &arrived {
            let number = *number as usize;
            let least = settings.wire_time(sizes[number]) + settings.delay - settings.jitter;
            prop_assert!(*at >= sent_at[number] + least);
            // Only its place in the queue and the jitter may come on top.
            let waits = settings.wire_time(settings.queue_bytes());
            prop_assert!(*at <= sent_at[number] + waits + settings.delay + settings.jitter + 1_000);
        }
        if settings.jitter == 0 {
            for pair in arrived.windows(2) {
                prop_assert!(pair[1].0 - pair[0].0 >= settings.wire_time(sizes[pair[1].1 as usize]));
            }
        }
    }
}
