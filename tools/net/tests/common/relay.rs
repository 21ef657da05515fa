//! A link that can be broken: passes bytes between a client and a server until it is stalled or cut.

use standfast_net::stream::Target;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
struct State {
    stalled: Mutex<bool>,
    changed: Condvar,
}

impl State {
    fn stall(&self) {
        *self.stalled.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Returns whether the relay is stalled within `time`, in which a chunk passes at the speed of the link.
    fn stalls_within(&self, time: Duration) -> bool {
        *self.changed.wait_timeout_while(self.stalled.lock().unwrap(), time, |stalled| !*stalled).unwrap().0
    }
}

/// A relay that ends with its last connection, or when it is dropped.
pub struct Relay {
    port: u16,
    state: Arc<State>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// Starts a relay in front of a server.
    pub fn start(server: &Target) -> Relay {
        Relay::start_slow(server, Duration::ZERO)
    }

    /// Starts a relay whose way back takes `back` for each 64 KiB.
    pub fn start_slow(server: &Target, back: Duration) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let (far, kept, shared) =
            ((server.host.clone(), server.port), Arc::clone(&sockets), Arc::clone(&state));
        // Not joined: the thread waits for connections until the process of the test ends.
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(&far).unwrap();
                let ends = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                kept.lock().unwrap().extend(ends);
                let there = (near.try_clone().unwrap(), far.try_clone().unwrap(), Duration::ZERO);
                for (mut from, mut to, pause) in [there, (far, near, back)] {
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || pass(&mut from, &mut to, pause, &shared));
                }
            }
        });
        Relay { port, state, sockets }
    }

    pub fn target(&self) -> Target {
        Target { host: "127.0.0.1".into(), port: self.port, key: None }
    }

    /// Stops forwarding bytes without closing anything, like a pulled cable.
    pub fn stall(&self) {
        self.state.stall();
    }

    /// Resets the connections towards both sides, like a firewall.
    pub fn cut(&self) {
        for socket in std::mem::take(&mut *self.sockets.lock().unwrap()) {
            let _ = standfast_net::socket::discard_at_close(&socket);
            // Wakes the threads; the last one that drops the socket sends the reset.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}

fn pass(from: &mut TcpStream, to: &mut TcpStream, pause: Duration, state: &State) {
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer);
        if state.stalls_within(Duration::ZERO) {
            // The relay keeps both ends open.
            return;
        }
        let bytes = match read {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if standfast_net::socket::is_pause(&error) => continue,
            Err(_) => break,
        };
        if state.stalls_within(pause.mul_f64(bytes as f64 / buffer.len() as f64)) {
            return;
        }
        if to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
