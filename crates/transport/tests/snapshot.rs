//! Requests: copies for a new standby, and the state of an instance.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod common;

use common::*;
use standfast_format::StreamCrc;
use standfast_transport::*;
use standfast_types::{DatabaseId, PageNo, Scn};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
struct Copies {
    manifest: Option<Manifest>,
    pages: BTreeMap<DatabaseId, Vec<u8>>,
    ends: Vec<SnapshotInfo>,
    fail_at: Option<PageNo>,
    without_databases: bool,
}

impl SnapshotSink for Copies {
    fn wants_databases(&self) -> bool {
        !self.without_databases
    }
    fn manifest(&mut self, manifest: &Manifest) -> Result<(), StageError> {
        self.manifest = Some(manifest.clone());
        Ok(())
    }
    fn begin(&mut self, database: &DatabaseInfo) -> Result<(), StageError> {
        self.pages.insert(database.id, Vec::new());
        Ok(())
    }
    fn pages(&mut self, database: DatabaseId, first: PageNo, bytes: &[u8]) -> Result<(), StageError> {
        if self.fail_at == Some(first) {
            return Err("no space left; make room".into());
        }
        let copy = self.pages.get_mut(&database).unwrap();
        assert_eq!(copy.len(), (first as usize - 1) * 512);
        copy.extend_from_slice(bytes);
        Ok(())
    }
    fn end(&mut self, info: &SnapshotInfo) -> Result<(), StageError> {
        self.ends.push(*info);
        Ok(())
    }
}

fn primary(databases: Vec<(DatabaseInfo, Vec<u8>, Scn)>) -> (Arc<MemorySource>, Arc<Service>, Receiver) {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    source.write(&redo(Scn::START, 1000, 1));
    source.0.change(|state| state.databases = databases);
    let service = Service::primary(&source);
    let receiver = Receiver::start(receiver_config("127.0.0.1:0"), service.clone(), None).unwrap();
    (source, service, receiver)
}

/// A primary that speaks TLS only and has no peer on its allow-list.
fn unlisting() -> Receiver {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let config = ReceiverConfig {
        listen: "127.0.0.1:0".into(),
        security: family::member("paris", true),
        ..ReceiverConfig::default()
    };
    Receiver::start(config, Arc::new(Unlisting(Service::primary(&source))), None).unwrap()
}

#[test]
fn each_request_needs_its_own_right() {
    let receiver = unlisting();
    let (address, oslo) = (receiver.local_addr().to_string(), family::member("oslo", true));
    let mut copies = Copies::default();
    let all = fetch_snapshot(&address, &oslo, "oslo", &mut copies).unwrap_err();
    let one = fetch_database(&address, &oslo, "oslo", DatabaseId(0), &mut copies).unwrap_err();
    copies.without_databases = true;
    let none = fetch_snapshot(&address, &oslo, "oslo", &mut copies).unwrap_err();
    let state = fetch_status(&address, &oslo, false, TIMEOUT).unwrap_err();
    for (refused, right) in
        [(all, Right::Read), (one, Right::Read), (none, Right::Receive), (state, Right::Status)]
    {
        assert!(refused.to_string().contains(right.words()), "{right:?}: {refused}");
    }
}

#[test]
fn copy_request_must_use_the_name_in_the_certificate() {
    let receiver = unlisting();
    let mut copies = Copies::default();
    let mut refused = |name: &str| {
        let address = receiver.local_addr().to_string();
        match fetch_snapshot(&address, &family::member("oslo", true), name, &mut copies).unwrap_err() {
            TransportError::Refused(refusal) => refusal.code,
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused("bergen"), RefuseCode::WrongPeer);
    assert_eq!(refused("oslo"), RefuseCode::NotAllowed, "the list is asked for its own name");
    assert!(copies.manifest.is_none());
}

#[test]
fn new_standby_gets_all_databases_and_its_redo_start() {
    let all = vec![database(0, 3, Scn(5000)), database(7, 5000, Scn(4800)), database(2, 2, Scn(4900))];
    let (source, service, receiver) = primary(all.clone());
    let mut copies = Copies::default();
    let start =
        fetch_snapshot(&receiver.local_addr().to_string(), &Security::insecure(), "oslo", &mut copies)
            .unwrap();
    assert_eq!(start.start, Scn(4800), "the oldest of the copies");
    assert_eq!(source.stream_crc(Scn(4800)).unwrap(), Some(StreamCrc(start.crc)));
    assert_eq!(start.log.sequence, 1);
    assert_eq!(copies.manifest.unwrap().source, source.identity());
    for ((info, bytes, scn), end) in all.iter().zip(&copies.ends) {
        assert!(copies.pages[&info.id] == *bytes, "{info:?}");
        assert_eq!(*end, SnapshotInfo { database: info.id, scn: *scn, pages: (bytes.len() / 512) as u32 });
    }
    service.wait_event("it is reported", |event| matches!(event, ReceiverEvent::SnapshotDone { .. }));

    // The standby continues from there.
    let standby = empty_standby();
    standby.change(|state| {
        (state.first, state.confirmed, state.applied) = (start.start, start.start, start.start);
    });
    struct Created(MemoryLog, SnapshotStart);
    impl StandbyLog for Created {
        fn received_end(&self) -> Scn {
            self.0.received_end()
        }
        fn confirmed(&self) -> Scn {
            self.0.confirmed()
        }
        fn applied(&self) -> Scn {
            self.0.applied()
        }
        fn stopped(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)> {
            self.0.stopped(known)
        }
        fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StageError> {
            let more = self.0.0.read(|state| state.bytes[..at.bytes_since(self.1.start) as usize].to_vec());
            Ok(Some(StreamCrc(self.1.crc).after(&more)))
        }
        fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StageError> {
            self.0.read(from, bytes)
        }
        fn log_containing(&self, at: Scn) -> Option<LogSwitch> {
            self.0.log_containing(at)
        }
        fn cut(&mut self, at: Scn) -> Result<(), StageError> {
            self.0.cut(at)
        }
        fn begin(&mut self, start: &StreamStart) -> Result<(), StageError> {
            self.0.begin(start)
        }
        fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StageError> {
            self.0.append(slices, confirmed)
        }
        fn switch(&mut self, log: &LogSwitch) -> Result<(), StageError> {
            self.0.switch(log)
        }
        fn confirm(&mut self, confirmed: Scn) -> Result<(), StageError> {
            self.0.confirm(confirmed)
        }
        fn hardened_notice(&self) {
            self.0.hardened_notice();
        }
    }
    let log = Box::new(Created(MemoryLog(standby.clone()), start));
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = Receiver::start(receiver_config("127.0.0.1:0"), service, Some(log)).unwrap();
    let (_sender, _observer) = send_to(receiver.local_addr(), destination(TransportMode::Async), &source);
    let end = source.end();
    let standby = standby.when("it has caught up", |state| state.end() == end);
    source.0.read(|source| assert!(source.slice(start.start, end) == standby.bytes));
}

#[test]
fn instance_without_databases_can_have_a_standby() {
    let (source, _, receiver) = primary(Vec::new());
    let start = fetch_snapshot(
        &receiver.local_addr().to_string(),
        &Security::insecure(),
        "oslo",
        &mut Copies::default(),
    )
    .unwrap();
    assert_eq!(start.start, source.durable());
}

#[test]
fn failing_sink_ends_the_copy_with_its_own_error() {
    let (_, _, receiver) = primary(vec![database(0, 3, Scn(5000))]);
    let mut copies = Copies { fail_at: Some(1), ..Copies::default() };
    let error =
        fetch_snapshot(&receiver.local_addr().to_string(), &Security::insecure(), "oslo", &mut copies)
            .unwrap_err();
    assert!(error.to_string().contains("make room"), "{error}");
}

#[test]
fn standby_gives_no_copies_but_reports_its_state() {
    let service = Service::standby("oslo", &[incarnation(1, 4096)]);
    let receiver = listen(&service, &empty_standby());
    let address = receiver.local_addr().to_string();
    let error =
        fetch_snapshot(&address, &Security::insecure(), "bergen", &mut Copies::default()).unwrap_err();
    assert!(error.to_string().contains("primary"), "{error}");
    for history in [false, true] {
        let timeout = std::time::Duration::from_secs(60);
        let state = fetch_status(&address, &Security::insecure(), history, timeout).unwrap();
        assert_eq!(state, format!(r#"{{"state":"fine","history":{history}}}"#));
    }
}

#[test]
fn a_copy_whose_redo_is_gone_is_refused() {
    let (source, _, receiver) = primary(vec![database(0, 3, Scn(4200))]);
    source.0.change(|state| state.oldest = Scn(4500));
    let error = fetch_snapshot(
        &receiver.local_addr().to_string(),
        &Security::insecure(),
        "oslo",
        &mut Copies::default(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("4500"), "{error}");
}

#[test]
fn status_request_to_a_silent_instance_times_out() {
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let within = std::time::Duration::from_millis(50);
    fetch_status(&address, &Security::insecure(), false, within).unwrap_err();
}
