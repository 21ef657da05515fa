//! Where connections are opened and accepted, and which of them must be encrypted.

use super::session::{HandshakeError, Session, told};
use super::{Link, LinkEnd};
use crate::error::{Refusal, RefuseCode, TransportError};
use crate::sys;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConnection};
use standfast_tls::{Identity, rustls};
use std::fmt;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TLS_TIMEOUT: Duration = Duration::from_secs(5);
/// First byte of a TLS record that opens a connection; a frame begins with another one.
const TLS_HANDSHAKE: u8 = 22;

/// Where the certificates of an instance come from; asked at every new connection, so that they can be replaced.
pub trait Identities: Send + Sync {
    /// The one to show now.
    ///
    /// # Errors
    /// Text with cause and remedy.
    fn current(&self) -> Result<Arc<Identity>, String>;
}

/// How connections of an instance are protected.
#[derive(Clone, Default)]
pub struct Security {
    /// Plain TCP may leave this machine.
    insecure: bool,
    /// Also connections within this machine are encrypted.
    everywhere: bool,
    certificates: Certificates,
}

#[derive(Clone, Default)]
enum Certificates {
    #[default]
    None,
    Own(Arc<dyn Identities>),
    /// Of a host that joins: it has none, and knows whom to trust.
    Joining(Arc<ClientConfig>),
}

impl Security {
    /// Without certificates: plain TCP, beyond this machine only if `insecure`.
    pub fn plain(insecure: bool) -> Security {
        Security { insecure, ..Security::default() }
    }

    /// With certificates: TLS beyond this machine unless `insecure`, and within it if `everywhere`.
    pub fn with_certificates(identities: Arc<dyn Identities>, everywhere: bool, insecure: bool) -> Security {
        Security { insecure, everywhere, certificates: Certificates::Own(identities) }
    }

    /// For the first connection of a host that has a token.
    pub fn joining(config: Arc<ClientConfig>) -> Security {
        Security { insecure: false, everywhere: true, certificates: Certificates::Joining(config) }
    }

    /// Whether a connection with a host at `address` may be plain.
    fn may_be_plain(&self, address: IpAddr) -> bool {
        !self.everywhere && (self.insecure || address.to_canonical().is_loopback())
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Security {{ insecure: {}, everywhere: {} }}", self.insecure, self.everywhere)
    }
}

/// Connects to the first address of `address` that answers. Every connection that this crate opens is opened here.
/// Over TLS the other end must be `expected`, if that is given.
///
/// # Errors
/// `Address`, `Insecure`, `Tls`, `Refused`, or what the network says about the last address tried.
pub(crate) fn connect(
    address: &str,
    security: &Security,
    expected: Option<&str>,
    timeout: Duration,
    give_up: &dyn Fn() -> bool,
) -> Result<LinkEnd, TransportError> {
    let unusable = |source| TransportError::Address { address: address.into(), source };
    let mut last = Error::from(ErrorKind::AddrNotAvailable);
    for candidate in address.to_socket_addrs().map_err(unusable)? {
        let config = client_config(address, candidate, security)?;
        match sys::connect(candidate, timeout.min(CONNECT_TIMEOUT), give_up) {
            Ok(stream) => {
                let link = Link::plain(stream);
                if let Some(config) = config {
                    secure_as_client(&link, address, config, expected, give_up)?;
                }
                return Ok(link);
            }
            Err(error) => last = error,
        }
    }
    Err(TransportError::Address { address: address.into(), source: last })
}

/// What TLS with `at` begins with; `None` when the connection may be plain.
fn client_config(
    address: &str,
    at: SocketAddr,
    security: &Security,
) -> Result<Option<Arc<ClientConfig>>, TransportError> {
    if security.may_be_plain(at.ip()) {
        return Ok(None);
    }
    match &security.certificates {
        Certificates::None => Err(TransportError::Insecure { address: address.into() }),
        Certificates::Joining(config) => Ok(Some(config.clone())),
        Certificates::Own(identities) => {
            let identity = identities.current().map_err(TransportError::Certificate)?;
            Ok(Some(identity.client().clone()))
        }
    }
}

fn secure_as_client(
    link: &LinkEnd,
    address: &str,
    config: Arc<ClientConfig>,
    expected: Option<&str>,
    give_up: &dyn Fn() -> bool,
) -> Result<(), TransportError> {
    let failed = |what: String| TransportError::Tls { peer: address.into(), what };
    // Not looked at by anybody: the name in the certificate is compared below.
    let name = ServerName::try_from("standfast").map_err(|error| failed(error.to_string()))?;
    let connection = ClientConnection::new(config, name).map_err(|error| failed(error.to_string()))?;
    agree(link, Connection::Client(connection), Instant::now() + TLS_TIMEOUT, give_up).map_err(failed)?;
    match (expected, link.peer_name()) {
        (Some(expected), Some(actual)) if expected != actual => Err(TransportError::Refused(Refusal::new(
            RefuseCode::WrongPeer,
            format!("the certificate at {address} is that of `{actual}`, not of `{expected}`"),
        ))),
        _ => Ok(()),
    }
}

fn agree(
    link: &LinkEnd,
    connection: Connection,
    deadline: Instant,
    give_up: &dyn Fn() -> bool,
) -> Result<(), String> {
    let session =
        Session::agree(&link.stream, connection, deadline, give_up).map_err(|error| match error {
            HandshakeError::Tls(error) => told(&error),
            HandshakeError::Nameless(why) => why,
            HandshakeError::Io(error) if error.kind() == ErrorKind::TimedOut => "no answer in time".into(),
            HandshakeError::Io(error) => {
                format!("{error}; perhaps the other end has no certificate or speaks another release")
            }
        })?;
    link.session.set(session).map_err(|_| "the connection is encrypted already".to_owned())
}

/// Whether an instance may listen at `at`.
///
/// # Errors
/// `Insecure`, `Certificate`.
pub(crate) fn check_listen(address: &str, at: SocketAddr, security: &Security) -> Result<(), TransportError> {
    if security.may_be_plain(at.ip()) {
        return Ok(());
    }
    match &security.certificates {
        Certificates::Own(identities) => identities.current().map(drop).map_err(TransportError::Certificate),
        _ => Err(TransportError::Insecure { address: address.into() }),
    }
}

/// Agrees with who has connected on how to talk: TLS if it begins so, else plain TCP if it may. Every connection that
/// this crate accepts goes through here.
///
/// # Errors
/// `Refused` when plain TCP is not allowed, `Tls`, `Certificate`, `Io`.
pub(crate) fn accept(link: &LinkEnd, security: &Security, deadline: Instant) -> Result<(), TransportError> {
    let address = link.peer_addr();
    if first_byte(link, deadline)? != TLS_HANDSHAKE {
        if address.is_some_and(|address| security.may_be_plain(address.ip())) {
            return Ok(());
        }
        let text = "this instance takes no plain TCP from there; give the other end a certificate (`standfast standby \
                    token` here, `standfast cert join` there), or set `insecure = true` on both if the network between \
                    them is trusted";
        return Err(TransportError::Refused(Refusal::new(RefuseCode::Tls, text)));
    }
    let Certificates::Own(identities) = &security.certificates else {
        let text = "this instance has no certificate and speaks no TLS; make one with `standfast cert`";
        return Err(TransportError::Refused(Refusal::new(RefuseCode::Tls, text)));
    };
    let identity = identities.current().map_err(TransportError::Certificate)?;
    let failed = |what: String| TransportError::Tls {
        // Without its port: what is said of a host is said once.
        peer: address.map_or_else(|| "unknown address".into(), |address| address.ip().to_string()),
        what,
    };
    let connection =
        ServerConnection::new(identity.server().clone()).map_err(|error| failed(error.to_string()))?;
    agree(link, Connection::Server(connection), deadline, &|| false).map_err(failed)
}

fn first_byte(link: &LinkEnd, deadline: Instant) -> Result<u8, TransportError> {
    let waiting = TransportError::io("waiting for the first byte of a connection");
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    link.set_read_timeout(Some(left)).map_err(&waiting)?;
    let mut first = [0];
    match link.stream.peek(&mut first).map_err(&waiting)? {
        0 => Err(waiting(ErrorKind::UnexpectedEof.into())),
        _ => Ok(first[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Identities for Nobody {
        fn current(&self) -> Result<Arc<Identity>, String> {
            Err("no certificate".into())
        }
    }

    #[test]
    fn plain_tcp_leaves_the_machine_only_when_wanted() {
        let plain = |text: &str, security: &Security| {
            let at: SocketAddr = text.parse().unwrap();
            matches!(client_config(text, at, security), Ok(None)) && check_listen(text, at, security).is_ok()
        };
        for local in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(plain(local, &Security::plain(false)), "{local}");
            assert!(plain(local, &Security::with_certificates(Arc::new(Nobody), false, false)), "{local}");
            assert!(!plain(local, &Security::with_certificates(Arc::new(Nobody), true, true)), "{local}");
        }
        for beyond in ["10.0.0.1:1", "[2001:db8::1]:1", "0.0.0.0:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!plain(beyond, &Security::plain(false)), "{beyond}");
            assert!(!plain(beyond, &Security::with_certificates(Arc::new(Nobody), false, false)), "{beyond}");
            assert!(plain(beyond, &Security::plain(true)), "{beyond}");
        }
    }
}
