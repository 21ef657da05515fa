//! The pages of an instance over HTTP: dashboard, metrics, documents, health. Read only.
//!
//! A thread accepts, and each of at most [`CONNECTIONS_MAX`] connections has one of its own, a request and a limit of
//! time. They read what the watch (see `live_watch`) has made; only `/api/observation` looks afresh.

pub mod request;

use self::request::{Access, Answer, Decision, HEAD_BYTES_MAX, Parsed, Request, parse};
use crate::config::HttpConfig;
use crate::error::InstanceError;
use crate::live_watch::Latest;
use crate::running::Running;
use standfast_live::{Severity, metrics};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Connections at a time; others are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// For a request to come, and for its answer to be taken.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest token, characters.
const TOKEN_MIN: usize = 16;

const PAGE: &str = include_str!("http/dashboard.html");
const STYLE: &str = include_str!("http/dashboard.css");
const SCRIPT: &str = include_str!("http/dashboard.js");
const ICON: &str = include_str!("http/icon.svg");

/// The server. Ended when it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Begins to serve when it is configured.
    ///
    /// # Errors
    /// Without a token beyond loopback, and when the address cannot be listened on.
    pub fn start(
        config: &HttpConfig,
        directory: &Path,
        running: &Weak<Running>,
        latest: &Arc<Latest>,
    ) -> Result<Option<HttpServer>, InstanceError> {
        if config.listen.is_empty() {
            return Ok(None);
        }
        let refused = |error: std::io::Error| {
            let what = format!("the HTTP server cannot listen on {}: {error}", config.listen);
            InstanceError::refused(what, "check [http] listen in standfast.toml")
        };
        let addresses: Vec<SocketAddr> = config.listen.to_socket_addrs().map_err(refused)?.collect();
        let access = access(config, directory, &addresses)?;
        let listener = TcpListener::bind(&addresses[..]).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let ending = Arc::new(AtomicBool::new(false));
        let site = Arc::new(Site {
            access,
            running: running.clone(),
            latest: latest.clone(),
            busy: AtomicUsize::new(0),
        });
        let thread = Builder::new().name("http".into()).spawn({
            let ending = ending.clone();
            move || accept(&listener, &site, &ending)
        });
        Ok(Some(HttpServer { address, ending, thread: Some(thread.map_err(refused)?) }))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.ending.store(true, SeqCst);
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        // The thread waits for a connection: this is one.
        if TcpStream::connect_timeout(&address, TIMEOUT).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Beyond loopback a token is needed.
fn access(config: &HttpConfig, directory: &Path, addresses: &[SocketAddr]) -> Result<Access, InstanceError> {
    if config.token_file.as_os_str().is_empty() {
        if addresses.iter().all(|address| address.ip().to_canonical().is_loopback()) {
            return Ok(Access::Local);
        }
        let what =
            format!("[http] listen = \"{}\" is not a loopback address and there is no token", config.listen);
        let hint =
            "name a file with a token of 16 characters or more in [http] token_file, or listen on 127.0.0.1";
        return Err(InstanceError::refused(what, hint));
    }
    let path = directory.join(&config.token_file);
    let token =
        std::fs::read_to_string(&path).map_err(InstanceError::io("read the token of [http]", &path))?;
    let token = token.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
    if token.len() < TOKEN_MIN || !token.chars().all(plain) {
        let what =
            format!("{} holds no token: letters, digits, - _ . ~, {TOKEN_MIN} or more", path.display());
        let hint =
            "make one, for example: head -c 32 /dev/urandom | base64 | tr -d '+/=' > FILE; chmod 600 FILE";
        return Err(InstanceError::refused(what, hint));
    }
    Ok(Access::Token(token.into()))
}

/// What is served, and to whom.
struct Site {
    access: Access,
    running: Weak<Running>,
    latest: Arc<Latest>,
    busy: AtomicUsize,
}

fn accept(listener: &TcpListener, site: &Arc<Site>, ending: &AtomicBool) {
    for stream in listener.incoming() {
        if ending.load(SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptor is left, most likely.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if site.busy.fetch_add(1, SeqCst) >= CONNECTIONS_MAX {
            site.busy.fetch_sub(1, SeqCst);
            continue;
        }
        let serving = site.clone();
        let spawned = Builder::new().name("http-get".into()).spawn(move || {
            let _ = serving.serve(stream);
            serving.busy.fetch_sub(1, SeqCst);
        });
        if spawned.is_err() {
            site.busy.fetch_sub(1, SeqCst);
        }
    }
}

impl Site {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_write_timeout(Some(TIMEOUT))?;
        let answer = match read_request(&mut stream)? {
            Some(request) => {
                let with_body = request.method != "HEAD";
                self.answer(&request).bytes(with_body)
            }
            None => Answer::text("400 Bad Request", "this is no HTTP request").bytes(true),
        };
        stream.write_all(&answer)
    }

    fn answer(&self, request: &Request) -> Answer {
        if !["GET", "HEAD"].contains(&request.method.as_str()) {
            let mut answer = Answer::text("405 Method Not Allowed", "read only: GET");
            answer.headers = "Allow: GET, HEAD\r\n".into();
            return answer;
        }
        match self.access.decide(request) {
            Decision::Allow => self.page(&request.path),
            Decision::Remember => Answer::remember(request),
            Decision::Unauthorized => {
                let hint =
                    "a token is needed: open /?token=TOKEN once, or send `Authorization: Bearer TOKEN`";
                let mut answer = Answer::text("401 Unauthorized", hint);
                answer.headers = "WWW-Authenticate: Bearer\r\n".into();
                answer
            }
            Decision::Forbidden => Answer::text("403 Forbidden", "ask for an address or for localhost"),
        }
    }

    fn page(&self, path: &str) -> Answer {
        match path {
            "/" => Answer::new("200 OK", "text/html; charset=utf-8", PAGE),
            "/dashboard.css" => Answer::new("200 OK", "text/css; charset=utf-8", STYLE),
            "/dashboard.js" => Answer::new("200 OK", "text/javascript; charset=utf-8", SCRIPT),
            "/icon.svg" => Answer::new("200 OK", "image/svg+xml", ICON),
            "/metrics" => self.latest.with(|live| match live {
                Some(live) => Answer::new("200 OK", metrics::CONTENT_TYPE, live.exposition()),
                None => starting(),
            }),
            "/api/dashboard" => self.latest.with(|live| match live {
                Some(live) => json(&live.dashboard()),
                None => starting(),
            }),
            "/healthz" => self.latest.with(|live| match live {
                Some(live) => health(live.check()),
                None => starting(),
            }),
            "/api/observation" => match self.running.upgrade() {
                Some(running) => json(&crate::observe::observe(&running, true, true)),
                None => starting(),
            },
            _ => Answer::text(
                "404 Not Found",
                "there are: / /metrics /api/dashboard /api/observation /healthz",
            ),
        }
    }
}

fn starting() -> Answer {
    Answer::text("503 Service Unavailable", "the instance is starting or stopping")
}

/// Only what is critical is no health: a load balancer must not take a primary away for a warning.
fn health((severity, line): (Severity, String)) -> Answer {
    let status = if severity == Severity::Critical { "503 Service Unavailable" } else { "200 OK" };
    Answer::text(status, &line)
}

fn json(document: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(document) {
        Ok(body) => Answer::new("200 OK", "application/json", body),
        Err(error) => Answer::text("500 Internal Server Error", &error.to_string()),
    }
}

/// The head of a request; `None`: it is too long, or none.
fn read_request(stream: &mut TcpStream) -> std::io::Result<Option<Request>> {
    let end = Instant::now() + TIMEOUT;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while head.len() < HEAD_BYTES_MAX {
        // Whoever sends a byte now and then gets no more time than others.
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&piece[..read]);
        match parse(&head) {
            Parsed::Partial => {}
            Parsed::Whole(request) => return Ok(Some(request)),
            Parsed::Malformed => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
