//! A server on a thread of the test.

#![allow(dead_code, clippy::unwrap_used)]

pub mod relay;

use standfast_net::access::Network;
use standfast_net::auth::Key;
use standfast_net::outcome::Outcome;
use standfast_net::plan::{Direction, Plan};
use standfast_net::run::run;
use standfast_net::server::{Server, ServerPlan, TIMEOUT};
use standfast_net::stream::Target;
use standfast_net::wire::Hello;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of connections of the servers here.
pub const CONNECTIONS: usize = 8;

/// A server that ends and cleans up when it is dropped.
pub struct Running {
    stop: Arc<AtomicBool>,
    port: u16,
    thread: Option<JoinHandle<()>>,
    name: String,
    lines: Arc<Mutex<Vec<String>>>,
}

/// Returns a directory of this process and test.
pub fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("standfast-net-test-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

impl Running {
    pub fn start(name: &str) -> Running {
        Running::start_with(name, Vec::new(), None)
    }

    pub fn start_with(name: &str, allow: Vec<Network>, key: Option<Key>) -> Running {
        Running::start_waiting(name, TIMEOUT, allow, key)
    }

    /// Starts a server with this timeout of its tests.
    pub fn start_with_timeout(name: &str, timeout: Duration) -> Running {
        Running::start_waiting(name, timeout, Vec::new(), None)
    }

    fn start_waiting(name: &str, timeout: Duration, allow: Vec<Network>, key: Option<Key>) -> Running {
        let plan = ServerPlan {
            timeout,
            allow,
            key,
            host: Some("127.0.0.1".into()),
            port: 0,
            file: scratch(name).join("file"),
            buffer: 0,
            connections: CONNECTIONS,
        };
        let server = Server::bind(plan).unwrap();
        let port = server.address().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let printed = Arc::clone(&lines);
        let log = move |line: &str| printed.lock().unwrap().push(line.to_owned());
        let thread = std::thread::spawn(move || server.run(&stopped, &log).unwrap());
        Running { stop, port, thread: Some(thread), name: name.into(), lines }
    }

    /// Returns the lines that it has put out.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn target(&self) -> Target {
        Target { host: "127.0.0.1".into(), port: self.port, key: None }
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    pub fn file(&self) -> PathBuf {
        scratch(&self.name).join("file")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            let _ = std::fs::remove_dir_all(scratch(&self.name));
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// Runs a test that must begin.
pub fn test(server: &Running, plan: &Plan) -> Outcome {
    run(&server.target(), plan, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

/// Returns the first message of a test of one connection that only the client ends.
pub fn hello(plan: &Plan, direction: Direction) -> Hello {
    Hello {
        direction,
        pace: plan.pace(),
        write: plan.write,
        zero_payload: false,
        amount: u64::MAX,
        buffer: 0,
        stream: 0,
        streams: 1,
        test: 1,
    }
}
