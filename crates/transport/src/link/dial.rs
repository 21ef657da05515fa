//! Opening connections.

use super::{Link, LinkEnd};
use crate::error::TransportError;
use crate::sys;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How connections of an instance are protected.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// Plain TCP may leave this machine.
    pub insecure: bool,
}

impl Security {
    /// Without certificates: plain TCP, beyond this machine only if `insecure`.
    pub fn plain(insecure: bool) -> Security {
        Security { insecure }
    }
}

/// Connects to the first address of `address` that answers. Every connection that this crate opens is opened here.
///
/// # Errors
/// `Address`, `Insecure`, or what the network says about the last address tried.
pub(crate) fn connect(
    address: &str,
    security: &Security,
    timeout: Duration,
    give_up: &dyn Fn() -> bool,
) -> Result<LinkEnd, TransportError> {
    let unusable = |source| TransportError::Address { address: address.into(), source };
    let mut last = Error::from(ErrorKind::AddrNotAvailable);
    for candidate in address.to_socket_addrs().map_err(unusable)? {
        check_secure(address, candidate, security)?;
        match sys::connect(candidate, timeout.min(CONNECT_TIMEOUT), give_up) {
            Ok(stream) => return Ok(Link::plain(stream)),
            Err(error) => last = error,
        }
    }
    Err(TransportError::Address { address: address.into(), source: last })
}

/// Whether an instance may listen at `at`.
///
/// # Errors
/// `Insecure`.
pub(crate) fn check_listen(address: &str, at: SocketAddr, security: &Security) -> Result<(), TransportError> {
    check_secure(address, at, security)
}

/// Refuses plain TCP beyond this machine unless it is wanted.
fn check_secure(address: &str, at: SocketAddr, security: &Security) -> Result<(), TransportError> {
    if security.insecure || at.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(TransportError::Insecure { address: address.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_tcp_leaves_the_machine_only_when_wanted() {
        let check = |text: &str, insecure| {
            check_secure(text, text.parse().unwrap(), &Security::plain(insecure)).is_ok()
        };
        assert!(
            check("127.0.0.1:1", false) && check("[::1]:1", false) && check("[::ffff:127.0.0.1]:1", false)
        );
        assert!(
            !check("10.0.0.1:1", false) && !check("[2001:db8::1]:1", false) && !check("0.0.0.0:1", false)
        );
        assert!(check("10.0.0.1:1", true));
    }
}
