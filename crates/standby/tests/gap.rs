//! How a standby log continues beyond missing redo, and what remains if archived logs do not fill the gap, on a
//! simulated machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_environment::state::control::{GapRecord, Incarnation};
use standfast_io::Disk;
use standfast_log::{ArchivedLog, verify_archived};
use standfast_simulation::rig::Pair;
use standfast_simulation::site::paths;
use standfast_simulation::standby::StandbyHost;
use standfast_standby::received_log::ReceivedLog;
use standfast_transport::{ArchivedLogInfo, Gap, GivenUp, LogSwitch, OpenedGap, RedoSource, StandbyLog};
use standfast_types::{IncarnationId, Scn};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a standby waits for its archiver.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(30);
const LOGS: usize = 4;
const ROWS_PER_LOG: u32 = 3;
const ROWS: u32 = ROWS_PER_LOG * LOGS as u32 + 1;

/// A primary with three commits in each archived log and one in the current log, and a standby created before them.
struct Rig {
    pair: Pair,
    /// Where the second log and each later one begins.
    switches: Vec<LogSwitch>,
}

impl Rig {
    fn new() -> Rig {
        let mut pair = Pair::new(0);
        let start = pair.primary.source.durable();
        for row in 1..=ROWS {
            pair.commit();
            if row % ROWS_PER_LOG == 0 {
                pair.primary.switch_log().unwrap();
                pair.primary.checkpoint().unwrap();
                pair.primary.archive().unwrap();
            }
        }
        let switches = pair.primary.source.switches(start, Scn(u64::MAX));
        assert_eq!(switches.len(), LOGS);
        Rig { pair, switches }
    }

    /// Where log `number` begins, counted from 1.
    fn log(&self, number: usize) -> LogSwitch {
        self.switches[number - 2]
    }

    fn end(&self) -> Scn {
        self.pair.ends[ROWS as usize - 1]
    }

    /// Hands over the redo from the end of the log on, up to `upto`, without confirming it.
    fn receive(&self, log: &mut ReceivedLog, upto: Scn) {
        while log.received_end() < upto {
            let at = log.received_end();
            if let Some(switch) = self.switches.iter().find(|switch| switch.first_scn == at) {
                log.switch(switch).unwrap();
            }
            let later = self.switches.iter().map(|switch| switch.first_scn).filter(|first| *first > at);
            self.pair.send(log, later.min().unwrap_or(upto).min(upto)).unwrap();
        }
    }

    /// The gap from `from` to the log `number`.
    fn gap(&self, from: Scn, number: usize) -> Gap {
        let (mut logs, _) = self.pair.primary.source.archived_from(from).unwrap().unwrap();
        let to = self.log(number).first_scn;
        logs.retain(|log| log.next_scn > from && log.next_scn <= to);
        let crc = self.pair.primary.source.stream_crc(to).unwrap().unwrap().0;
        Gap { from, to, crc, logs, unit_bytes: 1 << 20, per_log: 1, connections: 2 }
    }

    /// Opens the gap from the end of the log to the log `number`.
    fn open_gap(&self, log: &mut ReceivedLog, number: usize) -> (Gap, OpenedGap) {
        let gap = self.gap(log.received_end(), number);
        let opened = log.open_gap(&gap, &self.log(number)).unwrap();
        (gap, opened)
    }

    fn archived(&self, info: &ArchivedLogInfo) -> Vec<u8> {
        let log = self.pair.primary.source.redo_log();
        let path = log.archive_path(info.incarnation, info.incarnation_id, info.sequence);
        self.pair.primary.machine.disk().read(&path).unwrap()
    }

    /// Transfers an archived log of the gap.
    fn fetch(&self, opened: &OpenedGap, info: &ArchivedLogInfo) {
        let part = opened.store.create(info).unwrap();
        part.write(0, &self.archived(info)).unwrap();
        assert!(part.complete().unwrap(), "log {} is not the one that is missing", info.sequence);
    }

    /// Puts archived logs of the primary into the archive of the standby, without its knowledge.
    fn put_into_archive(&self, logs: &[ArchivedLogInfo]) {
        for info in logs {
            let log = self.pair.primary.source.redo_log();
            let path = log.archive_path(info.incarnation, info.incarnation_id, info.sequence);
            let path = paths().archive.join(path.file_name().unwrap());
            self.pair.machine.disk().replace(&path, &self.archived(info)).unwrap();
        }
    }

    /// The standby takes everything that is left, applies it, and holds it after a power loss.
    fn complete(&self, standby: StandbyHost) {
        for end in &self.pair.ends {
            let mut log = standby.log();
            self.receive(&mut log, *end);
            let confirmed = log.received_end();
            log.confirm(confirmed).unwrap();
        }
        assert_eq!(self.pair.applied_rows(&standby), ROWS);
        let standby = self.pair.lose_power_and_open(standby);
        let log = standby.log();
        assert_eq!((log.received_end(), log.shared().confirmed()), (self.end(), self.end()));
        drop(log);
        assert_eq!(self.pair.applied_rows(&standby), ROWS);
    }
}

/// Sequences of the archived logs that the standby knows.
fn sequences(log: &ReceivedLog) -> Vec<u64> {
    log.shared().log.archived().iter().map(|archived| archived.header.sequence).collect()
}

#[test]
fn redo_beyond_a_gap_counts_once_archived_logs_fill_it() {
    for confirmed_beyond in [false, true] {
        let rig = Rig::new();
        let standby = rig.pair.open();
        let mut log = standby.log();
        let from = rig.pair.ends[0];
        rig.receive(&mut log, from);
        assert!(log.shared().confirmed() < from);
        let (gap, opened) = rig.open_gap(&mut log, 4);
        let to = gap.to;
        assert_eq!(opened.held, [false; 3]);
        assert_eq!(log.shared().confirmed(), from, "the source has archived later redo");
        assert_eq!((log.received_end(), log.contiguous_end()), (to, from));
        assert_eq!(sequences(&log), [0; 0], "the archived log begins earlier than the one here");
        let record = GapRecord { from, to, low_sequence: 1, high_sequence: 3 };
        assert_eq!(standby.environment.control().gap, Some(record));
        rig.receive(&mut log, rig.end());
        if confirmed_beyond {
            log.confirm(rig.pair.ends[9]).unwrap();
        }
        let shared = log.shared().clone();
        assert_eq!((shared.hardened(), shared.confirmed()), (from, from), "nothing beyond counts");
        drop(log);
        assert_eq!(rig.pair.applied_rows(&standby), 1);
        let mut log = standby.log();
        for info in &gap.logs {
            rig.fetch(&opened, info);
            assert_eq!(log.contiguous_end(), info.next_scn);
        }
        log.fill_gap().unwrap();
        assert_eq!(standby.environment.control().gap, None);
        let confirmed = if confirmed_beyond { rig.pair.ends[9] } else { to };
        assert_eq!((shared.hardened(), shared.confirmed()), (rig.end(), confirmed));
        drop((log, shared));
        rig.complete(standby);
    }
}

#[test]
fn gap_that_is_not_filled_leaves_the_redo_before_it() {
    let rig = Rig::new();
    let standby = rig.pair.open();
    let mut log = standby.log();
    let from = rig.pair.ends[0];
    rig.receive(&mut log, from);
    assert_eq!(log.give_up_gap().unwrap(), None, "no gap is open");
    let (gap, opened) = rig.open_gap(&mut log, 3);
    rig.fetch(&opened, &gap.logs[1]);
    let received = rig.pair.ends[9];
    rig.receive(&mut log, received);
    log.confirm(rig.log(4).first_scn).unwrap();
    drop(log);
    standby.archive().unwrap();
    let mut log = standby.log();
    assert_eq!(sequences(&log), [2, 3]);
    let given_up = GivenUp { end: from, to: gap.to, received };
    assert_eq!(log.give_up_gap().unwrap(), Some(given_up));
    assert_eq!((log.received_end(), log.contiguous_end()), (from, from));
    assert_eq!(sequences(&log), [2], "what lay beyond is sent again");
    assert_eq!(standby.environment.control().gap, None);
    drop(log);
    assert_eq!(rig.pair.applied_rows(&standby), 1);
    rig.complete(standby);
}

#[test]
fn logs_that_arrived_before_the_gap_was_given_up_are_taken_over() {
    let rig = Rig::new();
    let standby = rig.pair.open();
    let mut log = standby.log();
    rig.receive(&mut log, rig.pair.ends[0]);
    let (gap, opened) = rig.open_gap(&mut log, 4);
    rig.receive(&mut log, rig.end());
    rig.fetch(&opened, &gap.logs[0]);
    rig.fetch(&opened, &gap.logs[1]);
    let given_up = log.give_up_gap().unwrap().unwrap();
    let next = rig.log(3);
    assert_eq!(given_up, GivenUp { end: next.first_scn, to: gap.to, received: rig.end() });
    let shared = log.shared().clone();
    assert_eq!((shared.hardened(), shared.confirmed()), (next.first_scn, next.first_scn));
    let writer = log.writer();
    assert_eq!((writer.sequence(), writer.first_record()), (next.sequence, 0));
    drop((log, shared));
    assert_eq!(rig.pair.applied_rows(&standby), 6);
    rig.complete(standby);
}

#[test]
fn only_complete_logs_of_the_gap_are_kept_beyond_the_end() {
    let rig = Rig::new();
    let standby = rig.pair.open();
    let mut log = standby.log();
    // The first log ends where the gap begins, and is archived here.
    let from = rig.log(2).first_scn;
    rig.receive(&mut log, from);
    log.switch(&rig.log(2)).unwrap();
    log.confirm(from).unwrap();
    drop(log);
    standby.archive().unwrap();
    let mut log = standby.log();
    assert_eq!(sequences(&log), [1]);
    let (gap, opened) = rig.open_gap(&mut log, 5);
    assert_eq!(opened.held, [false; 3]);
    rig.fetch(&opened, &gap.logs[1]);
    rig.fetch(&opened, &gap.logs[2]);
    log.give_up_gap().unwrap();
    assert_eq!(sequences(&log), [1, 3, 4]);
    // The next gap ends earlier.
    let (_, opened) = rig.open_gap(&mut log, 4);
    assert_eq!(opened.held, [false, true]);
    assert_eq!(sequences(&log), [1, 3]);
    log.give_up_gap().unwrap();
    let redo = log.shared().log.clone();
    let third = redo.archived().pop().unwrap();
    let mut bytes = rig.pair.machine.disk().read(&third.path).unwrap();
    bytes[512..612].fill(0xEE);
    rig.pair.machine.disk().replace(&third.path, &bytes).unwrap();
    let (gap, opened) = rig.open_gap(&mut log, 4);
    assert_eq!(opened.held, [false, false], "it is damaged");
    assert_eq!(sequences(&log), [1]);
    gap.logs.iter().for_each(|info| rig.fetch(&opened, info));
    log.fill_gap().unwrap();
    drop((log, redo));
    rig.complete(standby);
}

#[test]
fn gap_with_a_log_of_another_branch_is_refused() {
    let rig = Rig::new();
    let standby = rig.pair.open();
    let mut log = standby.log();
    rig.receive(&mut log, rig.pair.ends[0]);
    let mut gap = rig.gap(rig.pair.ends[0], 4);
    gap.logs[1].incarnation_id = IncarnationId([2; 8]);
    let Err(error) = log.open_gap(&gap, &rig.log(4)) else { panic!("it was opened") };
    assert!(error.to_string().contains("log 2 of the gap is not of this stream"), "{error}");
    assert_eq!((log.received_end(), standby.environment.control().gap), (rig.pair.ends[0], None));
    drop(log);
    rig.complete(standby);
}

/// A cascading standby may have joined the stream within a log: its archived log of that name begins there.
#[test]
fn beginning_that_the_fetched_log_lacks_is_archived_here() {
    for (first_fetched, checkpoint, is_kept) in [(0, false, true), (0, true, false), (1, false, true)] {
        let rig = Rig::new();
        let standby = rig.pair.open();
        let mut log = standby.log();
        let (from, first) = (rig.pair.ends[1], log.shared().log.current_first());
        rig.receive(&mut log, from);
        if checkpoint {
            log.shared().log.set_checkpoint(rig.pair.ends[first_fetched]);
        }
        let mut gap = rig.gap(from, 4);
        gap.logs[0].first_scn = rig.pair.ends[first_fetched];
        log.open_gap(&gap, &rig.log(4)).unwrap();
        let archived = log.shared().log.archived();
        let kept: Vec<_> = archived.iter().map(|log| (log.header.first_scn, log.header.next_scn)).collect();
        let expected = if is_kept { vec![(first, Some(from))] } else { Vec::new() };
        assert_eq!(kept, expected, "recovery needs it only from the checkpoint on");
        log.give_up_gap().unwrap();
        drop(log);
        rig.complete(standby);
    }
}

#[test]
fn log_that_ends_where_a_gap_begins_is_archived_here() {
    for is_switched in [false, true] {
        let rig = Rig::new();
        let standby = rig.pair.open();
        let mut log = standby.log();
        rig.receive(&mut log, rig.log(2).first_scn);
        if is_switched {
            log.switch(&rig.log(2)).unwrap();
        }
        let (gap, opened) = rig.open_gap(&mut log, 4);
        assert_eq!(gap.logs.len(), 2);
        assert_eq!(sequences(&log), [1], "no log of the gap holds it");
        assert_eq!(log.shared().confirmed(), gap.from);
        gap.logs.iter().for_each(|info| rig.fetch(&opened, info));
        log.fill_gap().unwrap();
        drop(log);
        let standby = rig.pair.lose_power_and_open(standby);
        assert_eq!(standby.log().received_end(), gap.to);
        assert_eq!(rig.pair.applied_rows(&standby), 9);
        rig.complete(standby);
    }
}

#[test]
fn gap_waits_for_the_archiver_and_ends_with_the_standby() {
    let rig = Rig::new();
    let standby = rig.pair.open();
    let mut log = standby.log();
    rig.receive(&mut log, rig.pair.ends[3]);
    let shared = log.shared().clone();
    log.when_full(Arc::new(move || shared.stop()));
    let gap = rig.gap(rig.pair.ends[3], 4);
    let begun = Instant::now();
    let Err(error) = log.open_gap(&gap, &rig.log(4)) else { panic!("log 1 is not archived") };
    assert!(error.to_string().contains("the logs before the gap are not archived"), "{error}");
    assert!(begun.elapsed() < ARCHIVE_TIMEOUT / 2, "it did not wait for an archiver that has ended");
    assert_eq!(standby.environment.control().gap, None, "nothing was written beyond it");
}

#[test]
fn start_continues_at_the_end_of_the_archived_logs_that_lead_on() {
    let rig = Rig::new();
    let standby = rig.pair.open();
    let mut log = standby.log();
    // Log 1 is full and not archived yet.
    rig.receive(&mut log, rig.pair.ends[3]);
    let gap = rig.gap(rig.pair.ends[3], 4);
    drop(log);
    rig.put_into_archive(&gap.logs);
    let standby = rig.pair.lose_power_and_open(standby);
    let mut log = standby.log();
    assert_eq!((log.received_end(), log.shared().confirmed()), (gap.to, gap.to));
    assert_eq!(sequences(&log), [1, 2, 3]);
    let writer = log.writer();
    assert_eq!((writer.sequence(), writer.first_record()), (4, 0));
    assert_eq!(log.lead_on().unwrap(), 0, "there are no more");
    drop(log);
    assert_eq!(rig.pair.applied_rows(&standby), 9);
    rig.complete(standby);
}

#[test]
fn logs_of_an_abandoned_branch_do_not_lead_on() {
    let rig = Rig::new();
    let standby = rig.pair.open();
    let mut log = standby.log();
    let end = rig.log(3).first_scn;
    rig.receive(&mut log, end);
    log.switch(&rig.log(3)).unwrap();
    log.confirm(end).unwrap();
    drop(log);
    standby.archive().unwrap();
    assert_eq!(sequences(&standby.log()), [1, 2]);
    // A failover at the end of the second log: what the old primary had beyond is not of the stream any more.
    let newer = Incarnation { number: 2, id: IncarnationId([2; 8]), branch: end, time_us: 0 };
    standby.environment.update_control(|control| control.incarnations.push(newer)).unwrap();
    let gap = rig.gap(end, 4);
    rig.put_into_archive(&gap.logs);
    let mut log = standby.log();
    let redo = log.shared().log.clone();
    for info in &gap.logs {
        let path = redo.archive_path(info.incarnation, info.incarnation_id, info.sequence);
        let header = verify_archived(&rig.pair.machine.disk(), &path, end).unwrap().header;
        redo.add_archived(ArchivedLog { path, header, bytes: header.file_bytes });
    }
    assert_eq!((log.lead_on().unwrap(), log.received_end()), (0, end));
    drop((log, redo));
    let standby = rig.pair.lose_power_and_open(standby);
    let log = standby.log();
    assert_eq!(log.received_end(), end);
    assert_eq!(sequences(&log), [1, 2]);
    let files = rig.pair.machine.disk().list(&paths().archive).unwrap();
    assert_eq!(files.len(), 2, "{files:?}");
}
