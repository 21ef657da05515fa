//! The pages of an instance over HTTP: dashboard, metrics, documents, health. Read only.
//!
//! `serving` handles the connections. Pages show what the watch has made (see `live_watch`); only `/api/observation`
//! observes at the time of the request.

pub mod request;
mod serving;
mod site;

use self::request::Access;
use self::site::Site;
use crate::observe::latest::Latest;
use crate::role::running::Running;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::HttpConfig;
use standfast_environment::security::files;
use standfast_environment::state::modes::{Readers, read_secret};
use standfast_io::listening::lengthen_queue;
use standfast_types::{InstanceId, hint};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Limit on connecting to the server to make it end.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest token, characters.
const TOKEN_MIN: usize = 16;
/// File in the instance directory with the token that the instance creates itself.
pub const OWN_TOKEN: &str = "http.token";

/// The server. Dropping it ends it.
pub struct HttpServer {
    address: SocketAddr,
    readers: String,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts to serve if it is configured.
    ///
    /// # Errors
    /// Without a usable token, when anonymous access is set beyond loopback, or when it cannot listen on the address.
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
        let (access, readers) = access(config, directory, &addresses)?;
        let listener = TcpListener::bind(&addresses[..]).map_err(refused)?;
        lengthen_queue(&listener).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let ending = Arc::new(AtomicBool::new(false));
        let site = Arc::new(Site {
            access,
            open_probes: config.open_probes,
            running: running.clone(),
            latest: latest.clone(),
        });
        let thread = Builder::new().name("http".into()).spawn({
            let ending = ending.clone();
            let running = running.clone();
            move || {
                if let Err(error) = serving::serve(&listener, &site, &ending)
                    && let Some(running) = running.upgrade()
                {
                    running.environment.alert.say(hint::in_one_line(
                        format_args!("the HTTP server has ended: {error}"),
                        Some("restart the instance when that is fixed"),
                    ));
                }
            }
        });
        Ok(Some(HttpServer { address, readers, ending, thread: Some(thread.map_err(refused)?) }))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Describes who may read, for the alert log.
    pub fn readers(&self) -> &str {
        &self.readers
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

/// Determines who may read, and describes that. An address proves nothing: every user of this machine reaches loopback
/// addresses.
fn access(
    config: &HttpConfig,
    directory: &Path,
    addresses: &[SocketAddr],
) -> Result<(Access, String), InstanceError> {
    if config.anonymous {
        if addresses.iter().all(|address| address.ip().to_canonical().is_loopback()) {
            return Ok((Access::Local, "every user of this machine (anonymous = true)".into()));
        }
        let what = format!("[http] listen = \"{}\" is not a loopback address, and anonymous", config.listen);
        let hint = "take `anonymous = true` out of [http], and a token is asked for, or listen on 127.0.0.1";
        return Err(InstanceError::refused(what, hint));
    }
    let path = match config.token_file.as_os_str().is_empty() {
        false => directory.join(&config.token_file),
        true => {
            let own = directory.join(OWN_TOKEN);
            if files::read(&own)?.is_none() {
                let random = InstanceId::random()
                    .map_err(InstanceError::io("read random numbers from", Path::new("/dev/urandom")))?;
                files::replace(&own, &format!("{random}\n"))?;
            }
            own
        }
    };
    let token = read_secret(&path, Readers::Group)?;
    let token = token.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
    if token.len() < TOKEN_MIN || !token.chars().all(plain) {
        let what =
            format!("{} holds no token: letters, digits, - _ . ~, {TOKEN_MIN} or more", path.display());
        let hint =
            "make one, for example: head -c 32 /dev/urandom | base64 | tr -d '+/=' > FILE; chmod 600 FILE";
        return Err(InstanceError::refused(what, hint));
    }
    Ok((Access::Token(token.into()), format!("who has the token in {}", path.display())))
}

#[cfg(test)]
mod tests;
