//! Hostile connections to every listener of an instance, while peers and readers use it.
//!
//! `STANDFAST_HOSTILE=50000` sets the number of hostile connections to each listener before the measurement; only then
//! must a peer connect within a second. The hosts are addresses in a network namespace, for which the test needs root.

use crate::support::{INSERT, Place, await_alert, await_status, must, refuses, start};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_testkit::connect_from;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Number of hostile connections to each listener unless the environment sets it.
const FEW: usize = 400;
/// Maximum growth of an alert log through unauthenticated peers.
const ALERT_BYTES_MAX: usize = 100_000;
const TOKEN: &str = "0123456789abcdef";
const SOUTH: [u8; 4] = [10, 99, 0, 1];
const NORTH: [u8; 4] = [10, 99, 0, 2];

/// Runs `test` in a network namespace in which this host has the addresses 10.99.0.1 to 10.99.0.40. Returns false
/// without the permission to create one.
fn in_a_network(test: fn()) -> bool {
    let thread = std::thread::spawn(move || {
        // SAFETY: unshare changes the network of this thread only, and of the threads and processes that it starts.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return false;
        }
        let ip =
            |words: &[&str]| Command::new("ip").args(words).status().is_ok_and(|status| status.success());
        let address = |last: u8| ip(&["address", "add", &format!("10.99.0.{last}/32"), "dev", "lo"]);
        if !ip(&["link", "set", "lo", "up"]) || !(1..=40).all(address) {
            return false;
        }
        test();
        true
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Connects from an address of this host, with a timeout so that a full queue does not stop the flood.
fn connect(from: [u8; 4], to: SocketAddr) -> Option<TcpStream> {
    let SocketAddr::V4(to) = to else { return None };
    let limit = Duration::from_secs(1);
    let stream = connect_from(from, to, limit).ok()?;
    stream.set_write_timeout(Some(limit)).ok()?;
    Some(stream)
}

/// Returns what the `nth` connection sends.
fn hostile_bytes(nth: usize) -> Vec<u8> {
    let text = format!("GET /?token=\x1b[2J{nth} HTTP/1.1\r\nHost: \u{202e}evil\r\n\r\n");
    match nth % 6 {
        0 => Vec::new(),
        1 => vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3],
        2 => [&[22, 3, nth as u8, 0, 9][..], &[nth as u8; 9]].concat(),
        3 => [b"2026-01-01T00:00:00.000Z forged\n\x1b[31m".repeat(20), nth.to_le_bytes().to_vec()].concat(),
        4 => b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec(),
        _ => text.into_bytes(),
    }
}

/// Connects from eight addresses until it is dropped. Holds the newest connections open.
struct Flood {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Flood {
    fn on(target: SocketAddr, first_address: u8) -> Flood {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..2_u8).map(|thread| {
            let (stop, made) = (stop.clone(), made.clone());
            std::thread::spawn(move || {
                let mut held = std::collections::VecDeque::new();
                let mut nth = usize::from(thread);
                while !stop.load(Relaxed) {
                    let from = [10, 99, 0, first_address + thread * 4 + (nth / 7 % 4) as u8];
                    if let Some(mut stream) = connect(from, target) {
                        // An error means that the connection is already closed.
                        let _ = stream.write_all(&hostile_bytes(nth));
                        held.push_back(stream);
                        made.fetch_add(1, Relaxed);
                    }
                    if held.len() > 150 {
                        held.pop_front();
                    }
                    nth += 2;
                }
            })
        });
        Flood { stop: stop.clone(), made: made.clone(), threads: threads.collect() }
    }

    #[track_caller]
    fn await_connections(&self, number: usize) {
        await_condition(&format!("{number} hostile connections"), Duration::from_secs(300), || {
            let made = self.made.load(Relaxed);
            Ok(if made >= number { Ok(()) } else { Err(made.to_string()) })
        })
        .unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns the answer to a request with the token.
fn ask(address: SocketAddr) -> String {
    let mut stream = connect(SOUTH, address).unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    format!("{}{}", asked.err().map(|error| error.to_string()).unwrap_or_default(), answer)
}

fn listening(instance: &mut Instance, ip: [u8; 4]) -> SocketAddr {
    let port = instance.address.rsplit_once(':').unwrap().1.parse().unwrap();
    let address = SocketAddr::from((ip, port));
    instance.address = address.to_string();
    instance.configure("instance", "listen", instance.address.clone()).unwrap();
    address
}

#[test]
fn flood_on_every_listener_blocks_no_member_and_fills_no_log() {
    if !in_a_network(flood) {
        eprintln!("skipped: this needs root and `ip`");
    }
}

fn flood() {
    let wanted = std::env::var("STANDFAST_HOSTILE").ok().map(|number| number.parse().unwrap());
    let place = Place::new("unauthenticated");
    let mut south = Instance::init_with_tls(
        &place.programs,
        &place.path("south"),
        "south",
        &["--group-bytes", "8388608"],
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let south_at = listening(&mut south, SOUTH);
    let http_at = SocketAddr::from((SOUTH, south_at.port() + 1));
    let http_token = south.directory.join("http-token");
    std::fs::write(&http_token, TOKEN).unwrap();
    std::fs::set_permissions(&http_token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    south.configure("http", "listen", http_at.to_string()).unwrap();
    south.configure("http", "token_file", "http-token").unwrap();
    start(&mut south);
    let database = place.database("app.db");
    must(&south, &["protect", &database.to_string_lossy()]);
    let token = place.path("token-north");
    crate::security::write_secret(&token, &must(&south, &["standby", "token", "--name", "north"]));
    let mut north = place.instance("north");
    std::fs::remove_dir_all(&north.directory).unwrap();
    let north_at =
        SocketAddr::from((NORTH, north.address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap()));
    north.address = north_at.to_string();
    let create =
        ["standby", "create", "--from", &south.address, "--name", "north", "--listen", &north.address];
    let token = token.to_string_lossy().into_owned();
    must(&north, &[&create[..], &["--token-file", &token]].concat());
    start(&mut north);
    must(&south, &["destination", "add", "north", &north.address, "--mode", "sync-affirm"]);
    await_status(&south, "the standby follows", |status| status.streams() && status.settled());
    let before = (south.alerts().len(), north.alerts().len());

    let floods = [Flood::on(south_at, 10), Flood::on(north_at, 20), Flood::on(http_at, 30)];
    floods.iter().for_each(|flood| flood.await_connections(wanted.unwrap_or(FEW)));
    // A reader with the token, a peer that connects, and a commit.
    let began = Instant::now();
    let answer = ask(http_at);
    assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let answered = began.elapsed();
    must(&south, &["destination", "defer", "north"]);
    let began = Instant::now();
    must(&south, &["destination", "enable", "north"]);
    await_status(&south, "the standby follows during the flood", |status| status.streams());
    let connected = began.elapsed();
    place.application(&database).run(INSERT);
    eprintln!("answered after {answered:?}, connected after {connected:?}");
    if wanted.is_some() {
        assert!(connected < Duration::from_secs(1), "a member connects after {connected:?}");
    }
    drop(floods);

    let grown = (south.alerts().len() - before.0, north.alerts().len() - before.1);
    assert!(grown.0 < ALERT_BYTES_MAX && grown.1 < ALERT_BYTES_MAX, "the alert logs grew by {grown:?}");
    for alerts in [south.alerts(), north.alerts()] {
        assert!(
            !alerts.contains(['\x1b', '\u{202e}']) && !alerts.lines().any(|line| line.contains("Z forged"))
        );
    }
    // Alerts about a peer are still written.
    must(&south, &["destination", "remove", "north"]);
    must(&south, &["cert", "revoke", "north"]);
    refuses(&north, &["cert", "renew", "--from", &south.address], 3, &["not listed"]);
    await_alert(&south, "`north` is not listed");
}
