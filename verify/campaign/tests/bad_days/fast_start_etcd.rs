//! Fast-start failover with etcd in place of an observer: real servers of etcd, which are skipped where there is none.

use crate::fast_start::{FAST, SYNC, await_fast_start, is_open, set};
use crate::support::{INSERT, Place, TIMEOUT, assert_same_files, await_status, must, refuses, start};
use crate::writers::Writers;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use serde_json::{Value, json};
use standfast_arbitration::record::{Incarnation, Kept, Record, Standing, Version};
use standfast_campaign::instance::{Instance, free_address};
use standfast_campaign::process::{Process, await_condition};
use standfast_environment::state::modes::{Readers, read_secret};
use standfast_stores::client::{Access, Client};
use standfast_stores::etcd::Etcd;
use standfast_stores::{Replaced, Store, StoreError};
use standfast_types::{IncarnationId, Scn};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(5);

/// A cluster of one.
struct Server {
    program: PathBuf,
    directory: PathBuf,
    address: String,
    peers: String,
    /// Certificates of both ends; `None`: plain HTTP.
    files: Option<Files>,
    process: Option<Process>,
}

/// Certificates and keys, PEM.
struct Files {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// The program, from the path or as scripts/setup.sh unpacks it.
fn program() -> Option<PathBuf> {
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("etcd/bin");
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths)
        .chain([unpacked])
        .map(|folder| folder.join("etcd"))
        .find(|at| at.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no etcd");
    }
    found
}

impl Server {
    fn start(place: &Place, files: Option<Files>) -> Option<Server> {
        let (address, peers) = (free_address().unwrap(), free_address().unwrap());
        let directory = place.path("etcd");
        let mut server = Server { program: program()?, directory, address, peers, files, process: None };
        server.again();
        Some(server)
    }

    fn url(&self) -> String {
        let scheme = if self.files.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    fn again(&mut self) {
        let (url, peers) = (self.url(), format!("http://{}", self.peers));
        let mut command = Command::new(&self.program);
        command.arg("--data-dir").arg(self.directory.join("data"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        if let Some(files) = &self.files {
            command.arg("--cert-file").arg(&files.certificate).arg("--key-file").arg(&files.key);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&files.authority);
        }
        std::fs::create_dir_all(&self.directory).unwrap();
        self.process = Some(Process::start(command, &self.directory.join("output")).unwrap());
        let mut client = Client::new(self.access());
        await_condition("etcd answers", TIMEOUT, || {
            let until = Instant::now() + LIMIT;
            let answer = client.post::<Value>("/v3/maintenance/status", None, &json!({}), "status", until);
            Ok(answer.map(|_| ()).map_err(|error| error.to_string()))
        })
        .unwrap();
    }

    fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// It comes back with nothing.
    fn is_emptied(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.directory.join("data")).unwrap();
        self.again();
    }

    fn access(&self) -> Access {
        Access {
            endpoints: vec![self.url()],
            is_insecure: self.files.is_none(),
            authorities: self.files.as_ref().map(|files| files.authority.clone()),
            identity: self.files.as_ref().map(|files| (files.certificate.clone(), files.key.clone())),
            login: None,
            read_secret: |path| read_secret(path, Readers::Owner).map_err(|error| error.to_string()),
            limit: LIMIT,
        }
    }
}

fn write_secret(path: &Path, text: &str) -> PathBuf {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    path.to_owned()
}

/// A server that takes each connection; with `answer` it answers, else it is silent.
fn broken_server(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = answer.map(|answer| stream.write_all(answer.as_bytes()));
            open.push(stream);
        }
    });
    url
}

/// An authority, and a certificate for both ends.
fn files(place: &Place, name: &str) -> Files {
    let directory = place.path(name);
    std::fs::create_dir_all(&directory).unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    // The JSON form of etcd's API refuses a client's certificate with a common name: it does not use it.
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let write = |file: &str, text: String| write_secret(&directory.join(file), &text);
    Files {
        authority: write("authority.pem", authority.pem()),
        certificate: write("certificate.pem", certificate.pem()),
        key: write("key.pem", key.serialize_pem()),
    }
}

fn record(serial: u64, target: &str) -> Record {
    Record {
        serial,
        primary: "alpha".into(),
        incarnation: Incarnation { number: 3, id: IncarnationId([9; 8]) },
        standing: Standing::Synchronized { target: target.into() },
        candidates: vec!["alpha".into(), target.into()],
        acknowledged: Scn(512),
    }
}

fn replaced(answer: Result<Replaced, StoreError>) -> Version {
    match answer.unwrap() {
        Replaced::Yes(version) => version,
        Replaced::No(kept) => panic!("not replaced: {kept:?}"),
    }
}

#[test]
fn record_in_etcd_is_replaced_only_with_its_version() {
    let place = Place::new("etcd-versions");
    let Some(mut server) = Server::start(&place, None) else { return };
    // The first servers are gone, have no quorum, are no etcd, or are silent: the next one is asked.
    let gone = format!("http://{}", free_address().unwrap());
    let no_quorum = broken_server(Some("HTTP/1.1 503 Unavailable\r\nContent-Length: 2\r\n\r\n{}"));
    let another = broken_server(Some("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"));
    let silent = broken_server(None);
    let access =
        Access { endpoints: vec![gone, no_quorum, another, silent, server.url()], ..server.access() };
    let mut one = Etcd::new(access.clone(), "standfast/family/fast-start-failover");
    let mut other = Etcd::new(access.clone(), "standfast/family/fast-start-failover");
    assert_eq!(one.read().unwrap(), None);
    let first = replaced(one.replace(None, &record(1, "beta")));
    let kept = Kept { version: first.clone(), record: record(1, "beta") };
    assert_eq!(other.read().unwrap(), Some(kept.clone()));
    assert_eq!(other.replace(None, &record(1, "gamma")).unwrap(), Replaced::No(Some(kept)));
    let second = replaced(other.replace(Some(&first), &record(2, "gamma")));
    let kept = Kept { version: second, record: record(2, "gamma") };
    assert_eq!(one.replace(Some(&first), &record(2, "beta")).unwrap(), Replaced::No(Some(kept.clone())));
    assert_eq!(Etcd::new(access, "standfast/another/fast-start-failover").read().unwrap(), None);
    server.kill();
    assert!(matches!(one.read(), Err(StoreError::Silent { .. })), "all are asked, the silent one last");
    server.again();
    assert_eq!(one.read().unwrap(), Some(kept), "durable, and asked again");
}

/// With a user and password.
fn known_access(server: &Server, password: &Path) -> Access {
    Access { login: Some(("root".to_owned(), password.to_owned())), ..server.access() }
}

#[test]
fn etcd_and_member_know_each_other() {
    let place = Place::new("etcd-tls");
    if program().is_none() {
        return;
    }
    let server = Server::start(&place, Some(files(&place, "tls"))).unwrap();
    let others = files(&place, "others");
    let key = "standfast/family/fast-start-failover";
    let with = |access: Access| Etcd::new(access, key).read();
    assert_eq!(with(server.access()).unwrap(), None);
    let another_server = Access { authorities: Some(others.authority), ..server.access() };
    assert!(with(another_server).unwrap_err().to_string().contains("certificate"));
    let another_member = Access { identity: Some((others.certificate, others.key)), ..server.access() };
    with(another_member).unwrap_err();
    with(Access { identity: None, ..server.access() }).unwrap_err();
    let missing = Access { authorities: Some(place.path("nothing")), ..server.access() };
    assert!(matches!(with(missing), Err(StoreError::File { .. })));
    let directory = Access { authorities: Some(place.path("others")), ..server.access() };
    assert!(matches!(with(directory), Err(StoreError::Content { .. })));

    // Users and passwords, on top.
    let mut client = Client::new(server.access());
    let mut ask = |path: &str, body: Value| {
        client.post::<Value>(path, None, &body, "answer", Instant::now() + LIMIT).unwrap()
    };
    ask("/v3/auth/user/add", json!({ "name": "root", "password": "secret" }));
    ask("/v3/auth/user/grant", json!({ "user": "root", "role": "root" }));
    ask("/v3/auth/enable", json!({}));
    let password = place.path("password");
    write_secret(&password, "wrong\n");
    let mut known = Etcd::new(known_access(&server, &password), key);
    assert!(matches!(known.read(), Err(StoreError::Status { .. })));
    write_secret(&password, "secret\n");
    assert_eq!(known.read().unwrap(), None);
    let mut another_process = Etcd::new(known_access(&server, &password), key);
    std::fs::set_permissions(&password, Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(another_process.read(), Err(StoreError::Secret(_))), "other users may read it");
    write_secret(&password, "secret\n");
    assert_eq!(another_process.read().unwrap(), None);
    assert!(matches!(with(server.access()), Err(StoreError::Status { .. })), "no user");
    replaced(known.replace(None, &record(1, "beta")));
}

/// Makes `south` and `north` ask etcd, and waits until both do.
fn enable(server: &Server, south: &Instance, north: &Instance) {
    set(south, "FastStartFailoverObserver", &format!("etcd:{}", server.url()));
    FAST.iter().for_each(|(name, value)| set(south, name, value));
    must(south, &["dg", "enable", "fast_start", "failover"]);
    await_fast_start(south, "SYNCHRONIZED");
    await_fast_start(north, "SYNCHRONIZED");
}

/// A primary, its synchronous standby, its database and etcd, with fast-start failover over plain HTTP; `None`: there is no
/// etcd.
fn family(place: &Place) -> Option<(Instance, Instance, PathBuf, Server)> {
    let server = Server::start(place, None)?;
    let (mut south, mut north, database) = place.pair(&SYNC[2..]);
    for instance in [&mut south, &mut north] {
        instance.configure("arbiter", "insecure", true).unwrap();
        instance.configure("instance", "auto_reinstate", true).unwrap();
        instance.stop().unwrap();
    }
    start(&mut north);
    start(&mut south);
    enable(&server, &south, &north);
    Some((south, north, database, server))
}

#[test]
fn target_takes_over_with_etcd_as_the_third_voice() {
    let place = Place::new("etcd-failover");
    let Some((mut south, mut north, database, mut server)) = family(&place) else { return };
    let shown = south.run(&["dg", "show", "observer"]).unwrap();
    assert!(
        shown.stdout.contains("Observer etcd - observing") && shown.stdout.contains("`north` may take over"),
        "{shown:?}"
    );
    let writers = Writers::start(&place, &database, 2);
    writers.await_progress();
    south.kill();
    await_status(&north, "the target is the primary", is_open);
    let acknowledged = writers.noted();
    drop(writers);
    let copy = north.standby_database("app.db");
    acknowledged.all_in(&copy);
    start(&mut south);
    await_fast_start(&south, "SYNCHRONIZED");
    // Without etcd commits continue, because the target has them; a primary that has neither stops.
    server.kill();
    await_fast_start(&north, "PRIMARY UNOBSERVED");
    place.insert(&copy, 3);
    south.kill();
    await_fast_start(&north, "STALLED");
    let mut application = place.application(&copy);
    application.send(INSERT);
    assert!(north.process().unwrap().ended_within(TIMEOUT), "it stops");
    assert!(application.answer_within(Duration::ZERO).is_none());
    // All come back: the record says that this one is the primary.
    server.again();
    start(&mut north);
    start(&mut south);
    await_fast_start(&north, "SYNCHRONIZED");
    await_fast_start(&south, "SYNCHRONIZED");
    drop(application);
    must(&north, &["switchover", "south"]);
    await_fast_start(&south, "SYNCHRONIZED");
    assert_same_files(&south, &north, &database, &copy);
}

#[test]
fn etcd_that_has_gone_back_is_trusted_no_more() {
    let place = Place::new("etcd-emptied");
    let Some((south, mut north, database, mut server)) = family(&place) else { return };
    server.is_emptied();
    await_fast_start(&south, "PRIMARY UNOBSERVED");
    await_fast_start(&north, "UNOBSERVED");
    // Also after a start.
    north.stop().unwrap();
    start(&mut north);
    await_fast_start(&north, "UNOBSERVED");
    place.insert(&database, 1);
    let shown = north.run(&["dg", "show", "fast_start", "failover"]).unwrap();
    assert!(shown.stdout.contains("older record than before"), "{shown:?}");
    must(&south, &["dg", "disable", "fast_start", "failover", "force"]);
    await_fast_start(&north, "none");
    must(&south, &["dg", "enable", "fast_start", "failover"]);
    await_fast_start(&south, "SYNCHRONIZED");
    await_fast_start(&north, "SYNCHRONIZED");
}

#[test]
fn target_of_an_earlier_time_does_not_take_over_once_it_is_enabled_again() {
    let place = Place::new("etcd-enabled-again");
    let Some((south, mut north, database, mut server)) = family(&place) else { return };
    // The record still names the target when the primary continues alone.
    server.kill();
    north.kill();
    must(&south, &["dg", "disable", "fast_start", "failover", "force"]);
    place.insert(&database, 3);
    server.again();
    must(&south, &["dg", "enable", "fast_start", "failover"]);
    let shown = south.run(&["dg", "show", "observer"]).unwrap();
    assert!(shown.stdout.contains("no member may take over"), "{shown:?}");
    start(&mut north);
    await_fast_start(&north, "SYNCHRONIZED");
}

#[test]
fn etcd_that_cannot_be_asked_is_named_with_the_reason() {
    let place = Place::new("etcd-refused");
    let Some(server) = Server::start(&place, None) else { return };
    let (south, _north, _database) = place.pair(&SYNC[2..]);
    let enable = ["dg", "enable", "fast_start", "failover"];
    let wrong = [
        "dg",
        "edit",
        "configuration",
        "set",
        "property",
        "FastStartFailoverObserver",
        "=",
        "etcd:tokyo:2379",
    ];
    refuses(&south, &wrong, 2, &["etcd:https://HOST:PORT"]);
    set(&south, "FastStartFailoverObserver", &format!("etcd:{}", server.url()));
    refuses(&south, &enable, 3, &["is not encrypted", "[arbiter]"]);
    set(&south, "FastStartFailoverObserver", &format!("etcd:https://{}", server.address));
    refuses(&south, &enable, 3, &["etcd cannot be asked"]);
}
