//! The listeners of a host, used by every actor that can reach them.

use super::{ACTORS, Actor, BACKUP, Host, Table, Tried};
use crate::local_users::{as_user, is_root, set_mode};
use standfast_campaign::instance::free_address;
use standfast_campaign::process::{await_condition, run};
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The pages that the `[http]` port serves.
const PAGES: [&str; 9] = [
    "/",
    "/metrics",
    "/healthz",
    "/api/dashboard",
    "/api/observation",
    "/primary",
    "/standby",
    "/livez",
    "/readyz",
];

/// Returns the outcome of a request for a page.
fn page(address: &str, path: &str, token: Option<&str>) -> &'static str {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let proof = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{proof}\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    match answer.split(' ').nth(1) {
        Some("200" | "503") => "answered",
        Some("401") => "refused",
        _ => panic!("{path}: {answer}"),
    }
}

/// Returns what a process listens on: ports, and names of Unix sockets.
fn listeners(pid: u32) -> (BTreeSet<u16>, BTreeSet<String>) {
    let sockets: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let mut ports = BTreeSet::new();
    for line in [table("tcp"), table("tcp6"), table("udp"), table("udp6")]
        .iter()
        .flat_map(|table| table.lines().skip(1))
    {
        let cells: Vec<&str> = line.split_whitespace().collect();
        // 0A: a listening socket; 07: a datagram socket that is not connected.
        if sockets.contains(cells[9]) && ["0A", "07"].contains(&cells[3]) {
            ports.insert(u16::from_str_radix(cells[1].rsplit_once(':').unwrap().1, 16).unwrap());
        }
    }
    let named = table("unix");
    let names = named.lines().skip(1).filter_map(|line| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        // `alive` is bound under another name and renamed.
        let name = cells.get(7)?.trim_end_matches(".new").to_owned();
        sockets.contains(*cells.get(6)?).then_some(name)
    });
    (ports, names.collect())
}

fn token(host: &Host, actor: Actor) -> Option<String> {
    let directory = host.directory(actor);
    fs::read_to_string(directory.join("http.token")).ok().map(|text| text.trim().to_owned())
}

fn socket(path: &Path) -> &'static str {
    match UnixStream::connect(path) {
        Ok(_) => "connects",
        Err(error) if error.kind() == ErrorKind::PermissionDenied => "no connection",
        Err(_) => "nothing there",
    }
}

/// Tries a server of the network test that an operator runs: with its key, with another key, and without one.
fn ask_the_test_server(host: &Host, tried: &mut Tried) {
    let (key, guessed) = (host.place.path("test.psk"), host.place.path("guessed.psk"));
    fs::write(&key, "a secret of the operator").unwrap();
    set_mode(&key, 0o600);
    fs::write(&guessed, "a secret of another user").unwrap();
    let address = free_address().unwrap();
    let program = &host.place.programs.standfast;
    let mut server = Command::new(program);
    server.args(["net", "server", "--bind", &address, "--file"]).arg(host.place.path("test.tmp"));
    server.arg("--psk-file").arg(&key).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    let ask = |uid: u32, gid: u32, key: Option<&Path>| {
        let mut client = Command::new(program);
        client.args(["net", "client", &address, "--length", "0", "--duration", "50ms"]);
        client.args(key.map(|key| format!("--psk-file={}", key.display()))).uid(uid).gid(gid);
        run(client).unwrap()
    };
    await_condition("the test server answers", TIMEOUT, || {
        let finished = ask(0, 0, Some(&key));
        Ok(if finished.code == 0 { Ok(()) } else { Err(finished.stderr) })
    })
    .unwrap();
    for actor in ACTORS {
        let is_served = |key| ask(actor.uid, actor.gid, key).code == 0;
        let served = [None, Some(guessed.as_path()), Some(key.as_path())].into_iter().any(is_served);
        tried.note("net server --psk-file", actor, if served { "answered" } else { "refused" });
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn every_listener_admits_the_users_in_the_matrix() {
    if !is_root() {
        return;
    }
    let host = Host::new("matrix-ports");
    let port = |address: &str| address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let (ports, names) = listeners(host.south.process().unwrap().pid());
    assert_eq!(ports, BTreeSet::from([port(&host.south.address), port(&host.http)]), "a port without a row");
    let own: BTreeSet<String> = ["control.sock", "alive"]
        .map(|name| host.south.directory.canonicalize().unwrap().join(name).to_string_lossy().into_owned())
        .into();
    assert_eq!(names, own, "a socket without a row; abstract ones have no permissions");
    let mut tried = Tried::default();
    let pages = |actor: Actor, tried: &mut Tried| {
        for path in PAGES {
            let found =
                as_user(actor.uid, actor.gid, || page(&host.http, path, token(&host, actor).as_deref()));
            tried.note(&format!("http {path}"), actor, found);
        }
    };
    for actor in ACTORS {
        pages(actor, &mut tried);
        let directory: PathBuf = host.directory(actor).to_owned();
        let control = as_user(actor.uid, actor.gid, || socket(&directory.join("control.sock")));
        tried.note("control.sock", actor, control);
        let alive = as_user(actor.uid, actor.gid, || standfast_session::liveness::probe(&directory));
        let alive = match alive {
            Some(true) => "tells that it runs",
            Some(false) => "tells that it does not",
            None => "nothing there",
        };
        tried.note("alive", actor, alive);
        let plain = as_user(actor.uid, actor.gid, || TcpStream::connect(&host.south.address).is_ok());
        tried.note("listen", actor, if plain { "handshake" } else { "no connection" });
    }
    ask_the_test_server(&host, &mut tried);
    Table::read("ports").compare(&tried);
    // The token in a copy is that of the instance.
    assert!(token(&host, BACKUP).is_some());
}
