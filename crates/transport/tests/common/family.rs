//! Certificates of a family, shared by all tests of one program.

use standfast_tls::{Authority, Clock, FixedClock, Identity, Request};
use standfast_transport::{Identities, Security};
use std::sync::{Arc, Mutex, OnceLock};

pub const NOW: u64 = 1_800_000_000;

pub fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| Authority::create("tests", NOW).unwrap())
}

pub fn identity_at(authority: &Authority, name: &str, now: u64) -> Arc<Identity> {
    let request = Request::create(name).unwrap();
    let pem = request.identity_pem(&authority.sign(name, request.der(), NOW).unwrap(), name).unwrap();
    let clock: Clock = Arc::new(FixedClock(now));
    Arc::new(Identity::from_pem(&pem, authority.certificate_pem(), &clock).unwrap())
}

/// An identity that can be replaced.
pub struct Replaceable(pub Mutex<Arc<Identity>>);

impl Identities for Replaceable {
    fn current(&self) -> Result<Arc<Identity>, String> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// Security with that identity; `tls_only`: no plain connection is opened or accepted.
pub fn with(identity: Arc<Identity>, tls_only: bool) -> Security {
    Security::with_certificates(Arc::new(Replaceable(Mutex::new(identity))), !tls_only)
}

/// Security of a member of the family.
pub fn member(name: &str, tls_only: bool) -> Security {
    with(identity_at(authority(), name, NOW), tls_only)
}
