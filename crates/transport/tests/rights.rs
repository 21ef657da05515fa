//! What changes while a stream is open and goes over it beside the redo: the list of members with their rights, and the
//! shared configuration. An end that has lost a right cannot continue.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod common;

use common::family::member;
use common::*;
use standfast_format::StreamCrc;
use standfast_transport::*;
use standfast_types::{DatabaseId, PageNo, Scn};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Rights as both ends of a stream know them.
#[derive(Default)]
struct Rights {
    version: AtomicU64,
    members: Watched<Vec<MemberRights>>,
    /// The configurations, oldest first: as made, or as received.
    configurations: Watched<Vec<serde_json::Value>>,
    taken_away: AtomicBool,
}

impl Rights {
    fn change(&self, change: impl FnOnce(&Rights)) {
        change(self);
        self.version.fetch_add(1, SeqCst);
    }

    fn take_away(&self) {
        self.change(|rights| rights.taken_away.store(true, SeqCst));
    }

    fn refusal(&self, name: &str) -> Option<Refusal> {
        let text = format!("`{name}` may nothing any more");
        self.taken_away.load(SeqCst).then(|| Refusal::new(RefuseCode::NotAllowed, text))
    }
}

fn listed(names: &[&str]) -> Vec<MemberRights> {
    let one = |name: &&str| MemberRights { name: (*name).into(), rights: standfast_transport::Rights::all() };
    names.iter().map(one).collect()
}

struct Source {
    redo: Arc<MemorySource>,
    rights: Arc<Rights>,
    /// Rights that are revoked while a copy is made.
    of_reader: Option<Arc<Rights>>,
}

impl RedoSource for Source {
    fn identity(&self) -> PeerIdentity {
        self.redo.identity()
    }
    fn members(&self) -> Vec<MemberRights> {
        self.rights.members.read(Vec::clone)
    }
    fn rights_version(&self) -> u64 {
        self.rights.version.load(SeqCst)
    }
    fn configuration(&self) -> Option<serde_json::Value> {
        self.rights.configurations.read(|made| made.last().cloned())
    }
    fn configuration_version(&self) -> u64 {
        self.rights.configurations.read(|made| made.len() as u64)
    }
    fn objection(&self, destination: &str) -> Option<Refusal> {
        self.rights.refusal(destination)
    }
    fn captured(&self) -> Scn {
        self.redo.captured()
    }
    fn durable(&self) -> Scn {
        self.redo.durable()
    }
    fn oldest(&self) -> Scn {
        self.redo.oldest()
    }
    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<RedoSlice>> {
        self.redo.buffered(from, bytes_max)
    }
    fn logged(&self, from: Scn, bytes_max: usize) -> Result<Vec<u8>, SourceError> {
        self.redo.logged(from, bytes_max)
    }
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, SourceError> {
        self.redo.stream_crc(at)
    }
    fn switches(&self, after: Scn, upto: Scn) -> Vec<LogSwitch> {
        self.redo.switches(after, upto)
    }
    fn log_containing(&self, at: Scn) -> Option<LogSwitch> {
        self.redo.log_containing(at)
    }
    fn databases(&self) -> Result<Vec<DatabaseInfo>, SourceError> {
        self.redo.databases()
    }
    fn snapshot(
        &self,
        database: DatabaseId,
        sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
    ) -> Result<SnapshotInfo, SourceError> {
        self.redo.snapshot(database, &mut |first, bytes| {
            sink(first, bytes)?;
            if let Some(rights) = &self.of_reader {
                rights.take_away();
            }
            Ok(())
        })
    }
}

struct Listening {
    inner: Arc<Service>,
    rights: Arc<Rights>,
    source: Option<Arc<Source>>,
}

impl ReceiverService for Listening {
    fn identity(&self) -> PeerIdentity {
        self.inner.identity()
    }
    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        self.source.clone().map(|source| source as Arc<dyn RedoSource>)
    }
    fn status(&self, history: bool) -> String {
        self.inner.status(history)
    }
    fn event(&self, event: &ReceiverEvent) {
        self.inner.event(event);
    }
    fn authorise(&self, peer: &str, _: Right) -> Result<(), Refusal> {
        self.rights.refusal(peer).map_or(Ok(()), Err)
    }
    fn rights_version(&self) -> u64 {
        self.rights.version.load(SeqCst)
    }
    fn endorsed(&self, hello: &SenderHello, _: Option<std::net::SocketAddr>) {
        self.rights.members.change(|members| *members = hello.members.clone());
    }
    fn configured(&self, source: &PeerIdentity, configuration: serde_json::Value, from: Option<&str>) {
        assert!(source.name == "paris" && from.is_some_and(|at| at.starts_with("127.0.0.1:")));
        self.rights.configurations.change(|received| received.push(configuration));
    }
    fn endorsed_again(&self, source: &str, members: &[MemberRights]) {
        assert_eq!(source, "paris");
        self.rights.members.change(|at| *at = members.to_vec());
    }
}

struct Ends {
    source: Arc<Source>,
    standby: Standby,
    service: Arc<Listening>,
    receiver: Receiver,
    sender: Sender,
    observer: Arc<Observer>,
}

/// A stream of paris to oslo over TLS that has delivered something.
fn stream() -> Ends {
    let redo_of = MemorySource::new("paris", &[incarnation(1, 4096)]);
    let source = Arc::new(Source { redo: redo_of, rights: Arc::default(), of_reader: None });
    source.rights.members.change(|members| *members = listed(&["oslo", "paris"]));
    source.rights.configurations.change(|made| made.push(serde_json::json!({ "version": 1 })));
    let inner = Service::standby("oslo", &[incarnation(1, 4096)]);
    let service = Arc::new(Listening { inner, rights: Arc::default(), source: None });
    let standby = empty_standby();
    let config = ReceiverConfig {
        listen: "127.0.0.1:0".into(),
        security: member("oslo", true),
        ..ReceiverConfig::default()
    };
    let receiver =
        Receiver::start(config, service.clone(), Some(Box::new(MemoryLog(standby.clone())))).unwrap();
    let observer = Arc::new(Observer::default());
    let config = sender_config(receiver.local_addr(), member("paris", true), Some("oslo"));
    let sender = Sender::start(0, config, source.clone(), observer.clone()).unwrap();
    source.redo.commit(&sender, &redo(Scn::START, 1000, 1));
    let ends = Ends { source, standby, service, receiver, sender, observer };
    ends.await_redo();
    ends
}

impl Ends {
    fn await_redo(&self) {
        let end = self.source.redo.end();
        self.standby.wait("the redo is there", |state| state.end() == end);
    }
}

#[test]
fn changed_member_list_is_sent_over_the_open_stream() {
    let ends = stream();
    let there = &ends.service.rights.members;
    there.wait("that of the begin", |members| *members == listed(&["oslo", "paris"]));
    for names in [&["bergen", "oslo", "paris"][..], &["oslo", "paris"]] {
        ends.source.rights.change(|rights| rights.members.change(|at| *at = listed(names)));
        there.wait("the list is there", |members| *members == listed(names));
    }
    ends.source.redo.commit(&ends.sender, &redo(ends.source.redo.end(), 1000, 2));
    ends.await_redo();
    assert_eq!(ends.receiver.counts().streams.load(Relaxed), 1, "the stream was not interrupted");
}

#[test]
fn configuration_is_sent_when_the_stream_begins_and_whenever_it_changes() {
    let ends = stream();
    let (made, received) = (&ends.source.rights.configurations, &ends.service.rights.configurations);
    for version in 2..4 {
        received.wait("the configuration is there", |received| *received == made.read(Vec::clone));
        made.change(|made| made.push(serde_json::json!({ "version": version })));
    }
    received.wait("each came once", |received| *received == made.read(Vec::clone));
    // One that does not fit is not sent, and ends no stream.
    made.change(|made| made.push(serde_json::json!("x".repeat(70_000))));
    made.change(|made| made.push(serde_json::json!({ "version": 5 })));
    received.wait("the last one", |received| received.last() == Some(&serde_json::json!({ "version": 5 })));
    ends.source.redo.commit(&ends.sender, &redo(ends.source.redo.end(), 1000, 2));
    ends.await_redo();
    assert_eq!(ends.receiver.counts().streams.load(Relaxed), 1, "the stream was not interrupted");
}

#[test]
fn destination_is_disconnected_when_it_loses_its_right() {
    let ends = stream();
    ends.source.rights.take_away();
    ends.observer.wait_refused(RefuseCode::NotAllowed);
    ends.service
        .inner
        .wait_event("it is reported", |event| event.to_string().contains("may nothing any more"));
    let before = ends.source.redo.end();
    ends.source.redo.commit(&ends.sender, &redo(before, 1000, 2));
    assert!(ends.standby.read(|state| state.end() == before));
}

#[test]
fn source_is_disconnected_when_it_loses_its_right() {
    let ends = stream();
    ends.service.rights.take_away();
    let before = ends.source.redo.end();
    ends.source.redo.commit(&ends.sender, &redo(before, 1000, 2));
    ends.observer.wait_refused(RefuseCode::NotAllowed);
    assert!(ends.standby.read(|state| state.end() == before));
}

/// Copies a database of paris for oslo; `revoking`: oslo loses the right meanwhile.
fn copy(security: Security, revoking: bool) -> Result<SnapshotStart, TransportError> {
    let source = MemorySource::new("paris", &[incarnation(1, 4096)]);
    source.write(&redo(Scn::START, 1000, 1));
    source.0.change(|state| state.databases = vec![database(0, 3, Scn(4500))]);
    let rights: Arc<Rights> = Arc::default();
    let inner = Service::primary(&source);
    let of_reader = revoking.then(|| rights.clone());
    let source = Source { redo: source, rights: Arc::default(), of_reader };
    let service = Arc::new(Listening { inner, rights, source: Some(Arc::new(source)) });
    let config = ReceiverConfig {
        listen: "127.0.0.1:0".into(),
        security: member("paris", true),
        ..ReceiverConfig::default()
    };
    let receiver = Receiver::start(config, service, None).unwrap();
    fetch_snapshot(&receiver.local_addr().to_string(), &security, "oslo", &mut Discarded::new(true))
}

#[test]
fn copy_ends_when_its_right_is_revoked() {
    assert!(copy(member("oslo", true), false).is_ok());
    let error = copy(member("oslo", true), true).unwrap_err();
    assert!(error.to_string().contains("may nothing any more"), "{error}");
}

#[test]
fn a_copy_is_taken_from_expected_members_only() {
    let only = |names: &[&str]| member("oslo", true).only(names.iter().map(|name| (*name).to_owned()));
    assert!(copy(only(&["bergen", "paris"]), false).is_ok());
    for names in [&["bergen"][..], &[]] {
        let error = copy(only(names), false).unwrap_err();
        assert!(error.to_string().contains("`paris` answers at"), "{error}");
    }
}
