//! Servers that serve only clients they know.

#![allow(clippy::unwrap_used)]

mod common;

use common::Running;
use standfast_net::NetError;
use standfast_net::auth::{Key, Side, Transcript};
use standfast_net::outcome::Outcome;
use standfast_net::plan::{Direction, Directions, Mode, Plan};
use standfast_net::run::run;
use standfast_net::stream::Target;
use standfast_net::units::Extent;
use standfast_net::wire::{ANSWER_BYTES, Answer, Hello, Status, response};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn key(text: &str) -> Option<Key> {
    Some(Key::new(text.as_bytes()).unwrap())
}

fn short() -> Plan {
    Plan {
        length: 1000,
        duration: Extent::Time(Duration::from_millis(100)),
        timeout: Some(Duration::from_secs(20)),
        ..Plan::default()
    }
}

fn attempt(server: &Running, key: Option<Key>) -> Result<Outcome, NetError> {
    let target = Target { key, ..server.target() };
    run(&target, &short(), &AtomicBool::new(false), &mut |_| {})
}

fn refusal(outcome: Result<Outcome, NetError>) -> String {
    match outcome.err() {
        Some(error @ NetError::NotAuthorised(_)) => {
            assert_eq!((error.exit_code(), error.code()), (4, "not_authorised"));
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn test_needs_the_same_key_on_client_and_server() {
    let server = Running::start_with("psk", Vec::new(), key("the secret of both sides"));
    assert!(refusal(attempt(&server, None)).contains("give --psk-file"));
    assert!(refusal(attempt(&server, key("another secret of some sort"))).contains("another one"));
    let outcome = attempt(&server, key("the secret of both sides")).unwrap();
    assert!(outcome.error.is_none() && outcome.total.bytes > 0);
    // Each of several connections in both directions proves the key.
    let plan = Plan { directions: Directions::Both, mode: Mode::Async, streams: 2, ..short() };
    let target = Target { key: key("the secret of both sides"), ..server.target() };
    let outcome = run(&target, &plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert!(outcome.directions().all(|one| one.total.bytes > 0));

    let open = Running::start("psk-open");
    assert!(refusal(attempt(&open, key("the secret of both sides"))).contains("has no key"));
}

#[test]
fn only_clients_in_allowed_networks_are_served() {
    let server = Running::start_with("allow", vec!["127.0.0.0/8".parse().unwrap()], None);
    assert!(attempt(&server, None).unwrap().error.is_none());
    let networks = ["10.0.0.0/8", "::/0", "127.0.0.2"].map(|network| network.parse().unwrap());
    let server = Running::start_with("allow-others", networks.to_vec(), None);
    for _ in 0..20 {
        assert!(refusal(attempt(&server, None)).contains("does not name this address"));
    }
}

fn hello() -> Hello {
    Hello { test: 7, ..common::hello(&short(), Direction::ToServer) }
}

fn answer_of(socket: &mut TcpStream) -> (Status, Vec<u8>) {
    let mut bytes = [0; ANSWER_BYTES];
    socket.read_exact(&mut bytes).unwrap();
    let answer = Answer::decode(&bytes).unwrap();
    let mut text = vec![0; answer.text];
    socket.read_exact(&mut text).unwrap();
    (answer.status, text)
}

#[test]
fn recorded_proof_is_rejected_on_another_connection() {
    let key = key("the secret of both sides").unwrap();
    let server = Running::start_with("replay", Vec::new(), Some(key.clone()));
    let bytes = hello().encode();
    let challenged = || {
        let mut socket = server.connect();
        socket.write_all(&bytes).unwrap();
        let (status, nonce) = answer_of(&mut socket);
        assert_eq!(status, Status::Challenge);
        let nonce: [u8; 32] = nonce.try_into().unwrap();
        (socket, nonce)
    };
    let (mut socket, nonce) = challenged();
    let client = [5; 32];
    let transcript = Transcript { hello: &bytes, server: &nonce, client: &client };
    let recorded = response(&client, &key.prove(Side::Client, transcript));
    socket.write_all(&recorded).unwrap();
    let (status, proof) = answer_of(&mut socket);
    assert_eq!(status, Status::Ready);
    assert!(key.is_proved(Side::Server, transcript, &proof));

    let (mut socket, other) = challenged();
    assert_ne!(nonce, other);
    socket.write_all(&recorded).unwrap();
    assert_eq!(answer_of(&mut socket).0, Status::NotAuthorised);
    // A proof that was made for another test is not accepted either.
    let (mut socket, nonce) = challenged();
    let other = Hello { write: true, ..hello() }.encode();
    let transcript = Transcript { hello: &other, server: &nonce, client: &client };
    socket.write_all(&response(&client, &key.prove(Side::Client, transcript))).unwrap();
    assert_eq!(answer_of(&mut socket).0, Status::NotAuthorised);
}

#[test]
fn unauthenticated_connections_do_not_block_a_client() {
    let server = Running::start_with("unproved", Vec::new(), key("the secret of both sides"));
    let mut waiting: Vec<TcpStream> = (0..400).map(|_| server.connect()).collect();
    for socket in &mut waiting {
        // Errors are ignored: some connections have already been dropped.
        let _ = socket.write_all(&hello().encode());
    }
    assert!(attempt(&server, key("the secret of both sides")).unwrap().error.is_none());
    // The other connections are dropped in the end, challenged or not.
    let mut last = waiting.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut heard = Vec::new();
    let ended = last.read_to_end(&mut heard);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}
