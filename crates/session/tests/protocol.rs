//! Sessions and instance over one segment, as threads of one process.

#![allow(clippy::unwrap_used)]

use standfast_session::{
    CommitMode, DatabaseState, Segment, SegmentConfig, SegmentError, Session, SessionWait, Target,
    WaitOutcome, Waiters, monotonic_ns, own_user, published_path,
};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

const CONFIG: SegmentConfig =
    SegmentConfig { commit_mode: 0, durable_visibility: false, write_wait_ms: 100, commit_wait_ms: 100 };

fn segment(name: &str) -> (Segment, PathBuf) {
    let path = PathBuf::from(format!("/dev/shm/standfast-test-{name}-{}", std::process::id()));
    Segment::remove(&path);
    let (segment, new) = Segment::create(&path, [7; 16], 0o600).unwrap();
    assert!(new);
    segment.set_running(true, &CONFIG);
    segment.set_state(3, DatabaseState::Open);
    (segment, path)
}

/// What a session waits for that has committed a frame, when the instance has captured something of its generation.
fn committed(segment: Segment, session: Session, salts: [u32; 2], frame: u32) -> Target {
    segment.announce_generation(session.database(), salts);
    session.position_under_write_lock(salts, frame).unwrap()
}

fn publish(segment: Segment, position: u64, posted: &mut dyn FnMut(u64, u64)) {
    let mut waiters = Waiters::default();
    segment.publish_durable(3, position, &mut waiters, posted);
    segment.wake(&mut waiters);
}

#[test]
fn waiter_is_released_only_at_its_own_position() {
    let (segment, path) = segment("release");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let target = committed(segment, session, [1, 2], 10);
    let waiter = std::thread::spawn(move || session.wait_durable(target, &|| true));
    while !segment.has_commit_waiters(3) {
        std::thread::yield_now();
    }
    publish(segment, target.position() - 1, &mut |_, _| {});
    assert!(segment.has_commit_waiters(3), "released one frame too early");
    publish(segment, target.position(), &mut |_, _| {});
    assert_eq!(waiter.join().unwrap(), WaitOutcome::Durable);
    assert!(!segment.has_commit_waiters(3));
    Segment::remove(&path);
}

/// The trap of design 1.1: after a reset both salts are random; a position made of salts and frame could compare lower
/// than what was durable before the reset, and be acknowledged immediately.
#[test]
fn commit_after_a_wal_reset_is_not_covered_by_earlier_positions() {
    let (segment, path) = segment("epoch");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let before = committed(segment, session, [0xFFFF_FFFF, 0xFFFF_FFFF], 14_000);
    publish(segment, before.position(), &mut |_, _| {});
    let after = committed(segment, session, [0, 1], 2);
    assert!(after.position() > before.position());
    assert_eq!(session.wait_durable_for_test(after), WaitOutcome::Unknown, "acknowledged too early");
    publish(segment, after.position(), &mut |_, _| {});
    assert_eq!(session.wait_durable_for_test(after), WaitOutcome::Durable);
    assert!(segment.position_for_reader(session.database(), [0xFFFF_FFFF, 0xFFFF_FFFF], 9).is_none());
    Segment::remove(&path);
}

trait WaitForTest {
    fn wait_durable_for_test(&self, target: Target) -> WaitOutcome;
}

impl WaitForTest for Session {
    /// Reports the instance as dead, so that a wait that is not over ends with Unknown.
    fn wait_durable_for_test(&self, target: Target) -> WaitOutcome {
        self.wait_durable(target, &|| false)
    }
}

#[test]
fn notifications_are_taken_once_and_wake_the_instance() {
    let (segment, path) = segment("notice");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let other = Session::attach(segment, 700, 1, 1).unwrap();
    session.notice(false);
    session.notice(false);
    other.notice(true);
    assert_eq!(segment.take_dirty().iter().collect::<Vec<_>>(), [3, 700]);
    assert!(segment.take_dirty().is_empty());
    assert!(segment.take_batch() && !segment.take_batch());
    let waiter = std::thread::spawn(move || {
        while segment.take_dirty().is_empty() {
            segment.sleep(Duration::from_secs(60));
        }
    });
    session.notice(false);
    waiter.join().unwrap();
    Segment::remove(&path);
}

#[test]
fn lock_grants_reach_every_session() {
    const SESSIONS: usize = 4;
    const TURNS: u64 = 5_000;
    /// Grants of each session, at least.
    const FAIR: u64 = 20;
    /// This many take longer than a busy machine keeps a thread from its processor.
    const TURNS_MAX: u64 = 5_000_000;
    let (segment, path) = segment("queue");
    let (lock, start) = (Mutex::new(()), Barrier::new(SESSIONS));
    let turns: [AtomicU64; SESSIONS] = Default::default();
    let all = || turns.each_ref().map(|turns| turns.load(Relaxed));
    let resumes = || {
        let (all, begun) = (all(), all().iter().sum::<u64>());
        begun < TURNS || begun < TURNS_MAX && all.iter().any(|turns| *turns <= FAIR)
    };
    let take_turns = &|session: Session, turns: &AtomicU64| {
        start.wait();
        while resumes() {
            if session.try_turn() {
                let guard = lock.try_lock().expect("two owners at once");
                session.lock_taken();
                turns.fetch_add(1, Relaxed);
                std::hint::black_box((0..2000u64).map(std::hint::black_box).sum::<u64>());
                drop(guard);
                session.release_turn();
            } else {
                session.enqueue().sleep(Duration::from_millis(20));
            }
        }
    };
    std::thread::scope(|scope| {
        for turns in &turns {
            let session = Session::attach(segment, 3, 1, 1).unwrap();
            scope.spawn(move || take_turns(session, turns));
        }
    });
    assert!(all().iter().all(|turns| *turns > FAIR), "a session starved: {:?}", all());
    Segment::remove(&path);
}

/// Between the release of the fcntl lock and that of the grant, a session without a grant may take the lock.
#[test]
fn lock_taken_without_a_grant_is_not_granted_to_another() {
    let (segment, path) = segment("passed");
    let [first, second, third] = [(); 3].map(|()| Session::attach(segment, 3, 1, 1).unwrap());
    assert!(first.try_turn());
    first.lock_taken();
    second.force_turn();
    first.release_turn();
    assert!(!third.try_turn(), "two owners at once");
    second.release_turn();
    assert!(third.try_turn());
    // It is slow to take the lock, and another session has had it meanwhile.
    second.force_turn();
    third.lock_taken();
    second.release_turn();
    assert!(!first.try_turn(), "two owners at once");
    third.release_turn();
    assert!(first.try_turn());
    Segment::remove(&path);
}

#[test]
fn a_dead_session_leaves_nothing_behind() {
    let (segment, path) = segment("reap");
    // SAFETY: the child only takes a session and ends; no other thread of this process holds a lock that it needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let session = Session::attach(segment, 3, 4242, 99);
        let is_there = session.is_ok_and(|it| it.try_turn()) && segment.sessions().eq([(0, 4242, 99)]);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!is_there)) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    assert!(segment.owned(3) && segment.sessions().next().is_none());
    assert_eq!((segment.reap_dead(), segment.reap_dead()), (1, 0));
    assert!(!segment.owned(3));
    assert_eq!(segment.take_dirty().iter().collect::<Vec<_>>(), [3]);
    Segment::remove(&path);
}

#[test]
fn segment_of_another_instance_is_refused_until_recreated() {
    let (old, path) = segment("replace");
    assert!(Segment::open(&path, [8; 16], &[own_user()]).is_err());
    let (new, fresh) = Segment::create(&path, [8; 16], 0o600).unwrap();
    assert!(fresh && old.retired() && !new.retired());
    Segment::remove(&path);
}

/// Sessions that have it mapped are of that release, and read the same place.
#[test]
fn segment_of_another_release_is_named_and_retired() {
    let (_, path) = segment("other-release");
    let bytes = std::fs::read(&path).unwrap();
    for length in [4096, bytes.len(), bytes.len() + 4096] {
        Segment::remove(&path);
        let mut old = bytes[..4096].to_vec();
        old[8..12].copy_from_slice(&4u32.to_ne_bytes());
        old.resize(length, 0);
        std::fs::write(&path, old).unwrap();
        let mapped = std::fs::File::open(&path).unwrap();
        assert!(matches!(
            Segment::open(&path, [7; 16], &[own_user()]),
            Err(SegmentError::Version { found: 4 })
        ));
        let (_, fresh) = Segment::create(&path, [7; 16], 0o600).unwrap();
        let mut head = [0; 16];
        mapped.read_exact_at(&mut head, 0).unwrap();
        assert!(fresh && head[12..] == 1u32.to_ne_bytes(), "it was not reported");
    }
    Segment::remove(&path);
}

#[test]
fn waiter_notices_that_its_segment_was_recreated() {
    let (old, path) = segment("removed");
    let session = Session::attach(old, 3, 1, 1).unwrap();
    let target = committed(old, session, [1, 2], 10);
    Segment::remove(&path);
    old.check_path(&path);
    assert!(!old.retired(), "a living instance may still serve what has no name any more");
    let (new, fresh) = Segment::create(&path, [7; 16], 0o600).unwrap();
    assert!(fresh);
    // The instance lives and runs, as far as the old segment can tell.
    let attends = || {
        old.check_path(&path);
        true
    };
    assert_eq!(session.wait_durable(target, &attends), WaitOutcome::Replaced);
    new.check_path(&path);
    assert!(old.retired() && !new.retired());
    Segment::remove(&path);
}

#[test]
fn a_segment_has_the_configured_permissions_whatever_the_umask() {
    let (_, path) = segment("mode");
    let mode_of = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    let mode = || mode_of(&path);
    assert_eq!((mode(), mode_of(&published_path(&path))), (0o600, 0o400));
    // Configured differently before a start that finds it, and at one that makes it.
    assert!(!Segment::create(&path, [7; 16], 0o662).unwrap().1);
    assert_eq!(
        (mode(), mode_of(&published_path(&path))),
        (0o662, 0o440),
        "only the instance writes what is published"
    );
    Segment::remove(&path);
    assert!(Segment::create(&path, [7; 16], 0o662).unwrap().1);
    assert_eq!(mode(), 0o662);
    Segment::remove(&path);
}

#[test]
fn commit_modes_roundtrip_through_their_bits() {
    for bits in 0..4 {
        assert_eq!(CommitMode::from_bits(bits).bits(), bits);
    }
}

fn count(segment: Segment, what: SessionWait) -> (u64, u64) {
    let counts = segment.wait_counts(what);
    (counts.buckets.iter().sum(), counts.time_ns)
}

#[test]
fn waited_commit_is_counted_and_its_release_reported_once() {
    let (segment, path) = segment("counted");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let began = monotonic_ns();
    let target = committed(segment, session, [7, 7], 4);
    session.notice_commit(false, began, Some(target));
    let waiter = std::thread::spawn(move || session.wait_commit(target, &|| true));
    let active = loop {
        let active = segment.active_sessions();
        if !active.is_empty() {
            break active;
        }
        std::thread::yield_now();
    };
    assert_eq!(active.iter().map(|one| one.waits_for).collect::<Vec<_>>(), [Some(SessionWait::LogFileSync)]);
    let mut posted = Vec::new();
    publish(segment, target.position(), &mut |noticed, at| posted.push((noticed, at)));
    assert_eq!(waiter.join().unwrap(), WaitOutcome::Durable);
    let [(noticed, at)] = posted[..] else { panic!("one commit waited: {posted:?}") };
    assert!(began <= noticed && noticed < at && at <= monotonic_ns());
    let ((waits, waited), (scheduled, scheduling)) =
        (count(segment, SessionWait::LogFileSync), count(segment, SessionWait::Scheduling));
    assert_eq!((waits, scheduled, count(segment, SessionWait::Transaction).0), (1, 1, 1));
    assert_eq!(waited, at - noticed + scheduling, "the parts add up");
    assert!(segment.active_sessions().is_empty());
    Segment::remove(&path);
}

#[test]
fn commit_durable_before_its_session_asks_is_counted_as_waited() {
    let (segment, path) = segment("kept-from-asking");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let target = committed(segment, session, [7, 7], 4);
    session.notice_commit(false, monotonic_ns(), Some(target));
    assert_eq!(segment.commit_waiters(3), 1);
    let mut posted = Vec::new();
    for position in [target.position(), target.position() + 1] {
        publish(segment, position, &mut |noticed, at| posted.push((noticed, at)));
        assert!(!segment.has_commit_waiters(3));
    }
    assert_eq!(session.wait_commit(target, &|| true), WaitOutcome::Durable);
    let [(noticed, at)] = posted[..] else { panic!("posted once: {posted:?}") };
    let ((waits, waited), (scheduled, scheduling)) =
        (count(segment, SessionWait::LogFileSync), count(segment, SessionWait::Scheduling));
    assert_eq!((waits, scheduled), (1, 1));
    assert_eq!(waited, at - noticed + scheduling);
    Segment::remove(&path);
}

#[test]
fn commit_without_a_waiter_reports_no_release() {
    let (segment, path) = segment("not-waited");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let target = committed(segment, session, [7, 7], 4);
    let mut no_waiters = |_, _| panic!("no commit waits");
    session.notice_commit(false, monotonic_ns(), None);
    assert!(!segment.has_commit_waiters(3), "NOWAIT");
    publish(segment, target.position(), &mut no_waiters);
    // Made durable by another session's notification, before its own.
    session.notice_commit(false, monotonic_ns(), Some(target));
    assert_eq!(session.wait_commit(target, &|| true), WaitOutcome::Durable);
    assert_eq!(count(segment, SessionWait::LogFileSync).0, 0);
    // A reader.
    let later = committed(segment, session, [7, 7], 5);
    let reader = std::thread::spawn(move || session.wait_durable(later, &|| true));
    while !segment.has_commit_waiters(3) {
        std::thread::yield_now();
    }
    publish(segment, later.position(), &mut no_waiters);
    assert_eq!(reader.join().unwrap(), WaitOutcome::Durable);
    assert_eq!(count(segment, SessionWait::LogFileSync).0, 0);
    Segment::remove(&path);
}

#[test]
fn commit_that_waits_after_all_is_woken() {
    let (segment, path) = segment("after-all");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let target = committed(segment, session, [7, 7], 4);
    session.notice_commit(false, monotonic_ns(), None);
    let waiter = std::thread::spawn(move || session.wait_commit(target, &|| true));
    while !segment.has_commit_waiters(3) {
        std::thread::yield_now();
    }
    let mut posted = 0;
    publish(segment, target.position(), &mut |_, _| posted += 1);
    assert_eq!(waiter.join().unwrap(), WaitOutcome::Durable);
    assert_eq!((posted, count(segment, SessionWait::LogFileSync).0), (1, 1));
    Segment::remove(&path);
}

#[test]
fn nested_wait_is_visible_but_counted_as_the_outer_one() {
    let (segment, path) = segment("nested");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let seen = || segment.active_sessions().first().and_then(|one| one.waits_for);
    let began = monotonic_ns();
    let nothing = session.begin_wait(SessionWait::WriteLock, began);
    let outer = session.begin_wait(SessionWait::WalReset, monotonic_ns());
    assert_eq!(seen(), Some(SessionWait::WalReset));
    session.end_wait(SessionWait::WalReset, began, outer);
    assert_eq!((seen(), count(segment, SessionWait::WalReset).0), (Some(SessionWait::WriteLock), 0));
    session.end_wait(SessionWait::WriteLock, began, nothing);
    assert_eq!((seen(), count(segment, SessionWait::WriteLock).0), (None, 1));
    Segment::remove(&path);
}

#[test]
fn wait_counts_once_at_its_end_however_often_it_slept() {
    let (segment, path) = segment("sleeps");
    let session = Session::attach(segment, 3, 1, 1).unwrap();
    let target = committed(segment, session, [7, 7], 4);
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    let alive = || LOOKS.fetch_add(1, Relaxed) < u64::MAX;
    let waiter = std::thread::spawn(move || session.wait_durable(target, &alive));
    while LOOKS.load(Relaxed) < 3 {
        std::thread::yield_now();
    }
    let counts = || (segment.counts().commit_polls, segment.counts().commit_sleeps);
    assert_eq!(counts(), (0, 0), "it lasts");
    publish(segment, target.position(), &mut |_, _| {});
    waiter.join().unwrap();
    assert_eq!(counts(), (0, 1));
    Segment::remove(&path);
}
