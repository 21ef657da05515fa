//! Real packets between real namespaces. Needs root; prints SKIP where that is not possible.

#![allow(clippy::unwrap_used)]

use standfast_net::random::Random;
use standfast_types::Hint;
use standfast_wan::emulator::Stats;
use standfast_wan::link::State;
use standfast_wan::settings::{Change, Settings, WHOLE};
use standfast_wan::{Wan, WanConfig, possible};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PORT: u16 = 7000;
/// Longer than any wait for something that will come, on a machine with other work.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Serialises the tests, because they measure time. None where links cannot be emulated.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if let Err(error) = possible() {
        eprintln!("SKIP: {error}");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn start(settings: Settings) -> Wan {
    Wan::start(WanConfig { settings, ..WanConfig::default() }).unwrap()
}

/// A socket in `from` that sends to `to`, and one in `to` that receives.
fn datagrams(wan: &Wan, from: &str, to: &str) -> (UdpSocket, UdpSocket) {
    let (source, destination) = (wan.node(from).unwrap().address, wan.node(to).unwrap().address);
    let bind = |node: &str, address| wan.within(node, || UdpSocket::bind((address, PORT))).unwrap().unwrap();
    let (sender, receiver) = (bind(from, source), bind(to, destination));
    sender.connect((destination, PORT)).unwrap();
    receiver.connect((source, PORT)).unwrap();
    for socket in [&sender, &receiver] {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    }
    (sender, receiver)
}

/// A connection from node a to node b, as seen from a and from b.
fn connection(wan: &Wan) -> (TcpStream, TcpStream) {
    let address = (wan.node("b").unwrap().address, PORT);
    let listener = wan.within("b", || TcpListener::bind(address)).unwrap().unwrap();
    let client = wan.within("a", || TcpStream::connect(address)).unwrap().unwrap();
    (client, listener.accept().unwrap().0)
}

/// Median round trip of a datagram to b and back.
fn round_trip(wan: &Wan, count: usize) -> Duration {
    let (sender, receiver) = datagrams(wan, "a", "b");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            for _ in 0..count {
                let length = receiver.recv(&mut bytes).unwrap();
                receiver.send(&bytes[..length]).unwrap();
            }
        });
        let mut times: Vec<Duration> = (0..count)
            .map(|_| {
                let began = Instant::now();
                sender.send(&[1; 64]).unwrap();
                sender.recv(&mut [0; 64]).unwrap();
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[count / 2]
    })
}

#[test]
fn no_round_trip_is_shorter_than_configured() {
    let Some(_turn) = turn() else { return };
    // How much longer they are depends on the machine; `make figures GROUP=net` measures it.
    for (millis, count) in [(1, 101), (10, 21), (25, 11), (100, 5)] {
        let truth = Duration::from_millis(millis);
        let wan = Wan::start(WanConfig::with_rtt(truth)).unwrap();
        let median = round_trip(&wan, count);
        eprintln!("{truth:?}: {median:?}; {:?}", wan.control().stats(false).late);
        assert!(median >= truth.mul_f64(0.95), "{median:?} instead of {truth:?}");
    }
}

#[test]
fn stream_throughput_never_exceeds_the_rate() {
    let Some(_turn) = turn() else { return };
    let rate = 100_000_000;
    let settings = Settings { rate: Some(rate), delay: 500_000, ..Settings::default() };
    let wan = start(settings);
    let (mut client, mut server) = connection(&wan);
    // A full segment with timestamps carries 1448 bytes in a packet of 1500.
    let truth = rate as f64 / 8.0 * 1448.0 / 1500.0;
    // More than all queues and buffers can hold when the measurement begins.
    let waiting = 4 << 20;
    let bytes = 2 * truth as u64 + waiting;
    std::thread::scope(|scope| {
        // Ends with an error when the other side closes.
        scope.spawn(move || while client.write_all(&[7; 128 << 10]).is_ok() {});
        let mut room = vec![0; 1 << 20];
        let (began, mut received) = (Instant::now(), 0);
        while received < bytes {
            received += server.read(&mut room).unwrap() as u64;
        }
        let least = Duration::from_secs_f64((bytes - waiting) as f64 / truth);
        assert!(began.elapsed() >= least.mul_f64(0.95), "{bytes} bytes in {:?}", began.elapsed());
        drop(server);
    });
}

#[test]
fn segmented_data_arrives_exactly_as_it_was_sent() {
    let Some(_turn) = turn() else { return };
    let wan = start(Settings {
        rate: Some(1_000_000_000),
        delay: 1_000_000,
        jitter: 200_000,
        loss: WHOLE / 200,
        reorder: WHOLE / 200,
        ..Settings::default()
    });
    let (mut client, mut server) = connection(&wan);
    let mut sent = vec![0; 16 << 20];
    Random::new(1).fill(&mut sent);
    let mut received = Vec::new();
    std::thread::scope(|scope| {
        let sent = &sent;
        scope.spawn(move || client.write_all(sent).unwrap());
        server.read_to_end(&mut received).unwrap();
    });
    // Not assert_eq!, which would print both buffers.
    assert!(sent == received);
    let there = &wan.control().stats(false).links[0];
    assert!(there.counts.lost > 0 && there.counts.overtaken > 0 && there.refused == 0, "{there:?}");
}

fn await_stats(wan: &Wan, what: &str, condition: impl Fn(&Stats) -> bool) {
    let began = Instant::now();
    loop {
        let stats = wan.control().stats(false);
        if condition(&stats) {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{what}: {stats:?}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// This many datagrams fit into the buffer of a socket that is not read.
const DATAGRAMS: u32 = 200;

/// Sends numbered datagrams and returns the numbers that arrive, in order of arrival.
fn arrivals(settings: Settings, seed: u64) -> Vec<u32> {
    let wan = Wan::start(WanConfig { settings, seed, ..WanConfig::default() }).unwrap();
    let (sender, receiver) = datagrams(&wan, "a", "b");
    let send = |number: u32| assert_eq!(sender.send(&number.to_be_bytes()).unwrap(), 4);
    (0..DATAGRAMS).for_each(send);
    await_stats(&wan, "all datagrams have passed", |stats| {
        stats.links[0].counts.segments >= u64::from(DATAGRAMS) && stats.links[0].held_bytes == 0
    });
    // A last datagram that certainly arrives marks the end of the others.
    wan.control().set(&[], &Change { loss: Some(0), reorder: Some(0), ..Change::default() }).unwrap();
    send(DATAGRAMS);
    let receive = || {
        let mut bytes = [0; 4];
        receiver.recv(&mut bytes).unwrap();
        u32::from_be_bytes(bytes)
    };
    std::iter::repeat_with(receive).take_while(|number| *number < DATAGRAMS).collect()
}

#[test]
fn same_seed_loses_the_same_datagrams_and_another_seed_others() {
    let Some(_turn) = turn() else { return };
    let lossy = Settings { loss: WHOLE / 5, delay: 1_000_000, ..Settings::default() };
    let first = arrivals(lossy, 7);
    assert!((130..190).contains(&first.len()), "{}", first.len());
    assert_eq!(first, arrivals(lossy, 7));
    assert_ne!(first, arrivals(lossy, 8));
}

#[test]
fn reordering_loses_nothing() {
    let Some(_turn) = turn() else { return };
    let settings = Settings { reorder: WHOLE / 10, delay: 2_000_000, ..Settings::default() };
    let mut numbers = arrivals(settings, 3);
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    assert_eq!(numbers, (0..DATAGRAMS).collect::<Vec<_>>());
}

#[test]
fn cut_direction_is_silent_until_healed_while_the_other_works() {
    let Some(_turn) = turn() else { return };
    let wan = start(Settings::default());
    let (a, b) = datagrams(&wan, "a", "b");
    let there = "a:b".parse().unwrap();
    wan.control().cut(std::slice::from_ref(&there)).unwrap();
    a.send(b"lost").unwrap();
    b.send(b"back").unwrap();
    let mut bytes = [0; 8];
    assert_eq!(a.recv(&mut bytes).unwrap(), 4);
    // The threads work on the directions one after the other, in any order.
    await_stats(&wan, "the first datagram is lost", |stats| stats.links[0].counts.cut == 1);
    let stats = wan.control().stats(false);
    assert_eq!([stats.links[0].state, stats.links[1].state], [State::Cut, State::Up]);
    wan.control().heal(&[there]).unwrap();
    a.send(b"healed").unwrap();
    assert_eq!((b.recv(&mut bytes).unwrap(), &bytes[..6]), (6, &b"healed"[..]));
    assert_eq!(wan.control().stats(false).links[0].counts.cut, 1);
}

#[test]
fn stalled_link_keeps_its_queued_packets() {
    let Some(_turn) = turn() else { return };
    let wan = start(Settings::default());
    let (a, b) = datagrams(&wan, "a", "b");
    wan.control().stall(&[]).unwrap();
    a.send(b"late").unwrap();
    b.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(b.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    b.set_read_timeout(Some(TIMEOUT)).unwrap();
    wan.control().heal(&[]).unwrap();
    assert_eq!(b.recv(&mut [0; 8]).unwrap(), 4);
}

#[test]
fn three_nodes_reach_each_other_over_separate_links() {
    let Some(_turn) = turn() else { return };
    let slow = ("c:a".parse().unwrap(), Change { delay: Some(50_000_000), ..Change::default() });
    let nodes = ["a", "b", "c"].map(str::to_owned).to_vec();
    let wan = Wan::start(WanConfig { nodes, links: vec![slow], ..WanConfig::default() }).unwrap();
    let took = |from: &str, to: &str| {
        let (sender, receiver) = datagrams(&wan, from, to);
        let began = Instant::now();
        sender.send(b"x").unwrap();
        receiver.recv(&mut [0; 8]).unwrap();
        began.elapsed()
    };
    let slow = Duration::from_millis(50);
    assert!(took("c", "a") >= slow);
    for (from, to) in [("a", "c"), ("b", "a"), ("b", "c")] {
        // Other work on the machine may delay some attempts.
        assert!((0..10).any(|_| took(from, to) < slow), "{from} to {to}");
    }
}

#[test]
fn settings_change_atomically_and_unknown_links_are_reported() {
    let Some(_turn) = turn() else { return };
    let wan = start(Settings { delay: 1_000_000, ..Settings::default() });
    let jitter = Change { jitter: Some(2_000_000), ..Change::default() };
    wan.control().set(&["a:b".parse().unwrap()], &Change { delay: Some(5_000_000), ..jitter }).unwrap();
    assert!(wan.control().set(&[], &jitter).is_err());
    assert_eq!(wan.control().stats(false).links[1].jitter, 0.0);
    let error = wan.control().cut(&["a:z".parse().unwrap()]).unwrap_err().for_terminal();
    assert!(error.contains("a:z") && error.contains("a, b"), "{error}");
}

#[test]
fn shutdown_removes_processes_and_namespaces() {
    let Some(_turn) = turn() else { return };
    let wan = start(Settings::default());
    let namespace = std::path::Path::new("/run/netns").join(&wan.nodes()[1].namespace);
    assert!(namespace.exists());
    let mut child = wan.command("b", "sleep").unwrap().arg("1000").spawn().unwrap();
    drop(wan);
    assert!(!child.wait().unwrap().success());
    assert!(!namespace.exists());
}

#[test]
fn processors_do_not_enter_sleep_while_the_emulator_runs() {
    let Some(_turn) = turn() else { return };
    // The resulting wake-up latency that all requests together allow, microseconds. One descriptor reads it once.
    let now = || {
        let mut bytes = [0; 4];
        let mut device = std::fs::File::open("/dev/cpu_dma_latency").ok()?;
        device.read_exact(&mut bytes).ok().map(|()| i32::from_ne_bytes(bytes))
    };
    if now().is_none() {
        return eprintln!("SKIP: the kernel does not manage sleep, or not for this user");
    }
    let before = now();
    let wan = start(Settings::default());
    assert_eq!(now(), Some(0));
    drop(wan);
    assert_eq!(now(), before);
}
