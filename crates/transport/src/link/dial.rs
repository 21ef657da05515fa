//! Opens and accepts connections, and decides which of them must be encrypted.

use super::session::{HandshakeError, Session, reported};
use super::{Link, LinkEnd};
use crate::error::{Refusal, RefuseCode, TransportError};
use crate::sys;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConnection};
use standfast_io::resolve;
use standfast_tls::{Identity, rustls};
use std::fmt;
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TLS_TIMEOUT: Duration = Duration::from_secs(5);
/// First byte of a TLS record that opens a connection; a frame begins with another one.
const TLS_HANDSHAKE: u8 = 22;

/// Source of the certificates of an instance. Called for every new connection, so that certificates can be replaced.
pub trait Identities: Send + Sync {
    /// Returns the certificate to show now.
    ///
    /// # Errors
    /// Text with cause and remedy.
    fn current(&self) -> Result<Arc<Identity>, String>;
}

/// How connections of an instance are protected. The address of the other end plays no part: every user of this machine
/// has all its addresses, and a tunnel or proxy on it lends them to others.
#[derive(Clone, Default)]
pub struct Security {
    /// Plain TCP is allowed: connections are opened without TLS, and accepted with or without it.
    insecure: bool,
    certificates: Certificates,
    /// Over TLS only these members are accepted, even if others are allowed; `None`: any.
    only: Option<Arc<[String]>>,
}

#[derive(Clone, Default)]
enum Certificates {
    #[default]
    None,
    Own(Arc<dyn Identities>),
    /// For a joining host, which has no certificate but knows which authority to trust.
    Joining(Arc<ClientConfig>),
}

impl Security {
    /// Plain TCP, without certificates: every peer that reaches the port is trusted.
    pub fn insecure() -> Security {
        Security { insecure: true, ..Security::default() }
    }

    /// With certificates: TLS only. With `insecure`, connections are opened as plain TCP and accepted as plain TCP too.
    pub fn with_certificates(identities: Arc<dyn Identities>, insecure: bool) -> Security {
        Security { insecure, certificates: Certificates::Own(identities), only: None }
    }

    /// Restricts connections to these members: no request goes to another member that answers in their place because an
    /// address has changed hands.
    #[must_use]
    pub fn only(self, names: impl IntoIterator<Item = String>) -> Security {
        Security { only: Some(names.into_iter().collect()), ..self }
    }

    /// For the first connection of a host that has a token.
    pub fn joining(config: Arc<ClientConfig>) -> Security {
        Security { insecure: false, certificates: Certificates::Joining(config), only: None }
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Security {{ insecure: {} }}", self.insecure)
    }
}

/// Connects to the first address of `address` that answers. Every connection that this crate opens is opened here. Over
/// TLS the other end must be `expected`, if given.
///
/// # Errors
/// `Insecure`, `Certificate`, `Tls`, `Refused`, or `Address` with the network's error for the last address tried.
pub(crate) fn connect(
    address: &str,
    security: &Security,
    expected: Option<&str>,
    timeout: Duration,
    give_up: &dyn Fn() -> bool,
) -> Result<LinkEnd, TransportError> {
    let unusable = |source| TransportError::Address { address: address.into(), source };
    let mut last = Error::from(ErrorKind::AddrNotAvailable);
    let limit = timeout.min(CONNECT_TIMEOUT);
    for candidate in resolve::SYSTEM.resolve(address, limit, give_up).map_err(unusable)? {
        let config = client_config(address, security)?;
        match sys::connect(candidate, limit, give_up) {
            Ok(stream) => {
                let link = Link::plain(stream);
                if let Some(config) = config {
                    secure_as_client(&link, address, config, expected, give_up)?;
                    check_only(&link, address, security)?;
                }
                return Ok(link);
            }
            Err(error) => last = error,
        }
    }
    Err(TransportError::Address { address: address.into(), source: last })
}

/// Returns the TLS configuration for the instance at `address`; `None` for a plain connection.
fn client_config(address: &str, security: &Security) -> Result<Option<Arc<ClientConfig>>, TransportError> {
    if security.insecure {
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
    // Not used: the name in the certificate is compared below.
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

fn check_only(link: &LinkEnd, address: &str, security: &Security) -> Result<(), TransportError> {
    let (Some(only), Some(actual)) = (&security.only, link.peer_name()) else { return Ok(()) };
    if only.iter().any(|name| name == actual) {
        return Ok(());
    }
    let names: Vec<String> = only.iter().map(|name| format!("`{name}`")).collect();
    let names = if names.is_empty() { "any other one".to_owned() } else { names.join(" or ") };
    Err(TransportError::Refused(Refusal::new(
        RefuseCode::WrongPeer,
        format!("`{actual}` answers at {address}, where {names} was expected"),
    )))
}

fn agree(
    link: &LinkEnd,
    connection: Connection,
    deadline: Instant,
    give_up: &dyn Fn() -> bool,
) -> Result<(), String> {
    let session =
        Session::agree(&link.stream, connection, deadline, give_up).map_err(|error| match error {
            HandshakeError::Tls(error) => reported(&error),
            HandshakeError::Nameless(why) => why,
            HandshakeError::Io(error) if error.kind() == ErrorKind::TimedOut => "no answer in time".into(),
            HandshakeError::Io(error) => {
                format!("{error}; perhaps the other end has no certificate or speaks another release")
            }
        })?;
    link.session.set(session).map_err(|_| "the connection is encrypted already".to_owned())
}

/// Checks that an instance may listen at `address`.
///
/// # Errors
/// `Insecure`, `Certificate`.
pub(crate) fn check_listen(address: &str, security: &Security) -> Result<(), TransportError> {
    if security.insecure {
        return Ok(());
    }
    match &security.certificates {
        Certificates::Own(identities) => identities.current().map(drop).map_err(TransportError::Certificate),
        _ => Err(TransportError::Insecure { address: address.into() }),
    }
}

/// Agrees with a peer that has connected on the kind of connection: TLS if the peer begins so, else plain TCP if that
/// is allowed. Every connection that this crate accepts goes through here.
///
/// # Errors
/// `Refused` when plain TCP is not allowed, or TLS is not possible without a certificate; `Tls`, `Certificate`, `Io`.
pub(crate) fn accept(link: &LinkEnd, security: &Security, deadline: Instant) -> Result<(), TransportError> {
    if first_byte(link, deadline)? != TLS_HANDSHAKE {
        if security.insecure {
            return Ok(());
        }
        let text = "this instance takes no plain TCP, from this machine neither; give the other end a certificate (`standfast \
                    standby token` here, `standfast cert join` there), or set `insecure = true` in [instance] of both if \
                    everybody who reaches their ports is trusted";
        return Err(TransportError::Refused(Refusal::new(RefuseCode::Tls, text)));
    }
    let Certificates::Own(identities) = &security.certificates else {
        let text = "this instance has no certificate and speaks no TLS; get one with `standfast cert join`";
        return Err(TransportError::Refused(Refusal::new(RefuseCode::Tls, text)));
    };
    let identity = identities.current().map_err(TransportError::Certificate)?;
    let failed = |what: String| TransportError::Tls {
        // Without the port, so that the alert log reports a host once.
        peer: link.peer_addr().map_or_else(|| "unknown address".into(), |address| address.ip().to_string()),
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

    struct NoIdentity;

    impl Identities for NoIdentity {
        fn current(&self) -> Result<Arc<Identity>, String> {
            Err("no certificate".into())
        }
    }

    #[test]
    fn plain_tcp_must_be_configured_for_every_address() {
        let own = |insecure| Security::with_certificates(Arc::new(NoIdentity), insecure);
        for address in [
            "127.0.0.1:1",
            "127.0.0.2:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
            "localhost:1",
            "0.0.0.0:1",
            "10.0.0.1:1",
        ] {
            for insecure in [Security::insecure(), own(true)] {
                assert!(matches!(client_config(address, &insecure), Ok(None)), "{address}");
                assert!(check_listen(address, &insecure).is_ok(), "{address}");
            }
            for secure in [Security::default(), own(false)] {
                assert!(client_config(address, &secure).is_err(), "{address}");
                assert!(check_listen(address, &secure).is_err(), "{address}");
            }
        }
    }
}
