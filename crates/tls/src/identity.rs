//! An instance's key and certificate, ready for connections.

use crate::certificate::{CertificateInfo, fingerprint};
use crate::error::TlsError;
use crate::token::Fingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// The protocol that both ends name: a connection that was meant for another service fails.
pub const ALPN: &[u8] = b"standfast/1";

/// Time source for the validity of certificates.
pub type Clock = Arc<dyn TimeProvider>;

pub use rustls::time_provider::DefaultTimeProvider as SystemClock;

/// A clock that stands still: seconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct FixedClock(pub u64);

impl TimeProvider for FixedClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(self.0)))
    }
}

/// An instance as the other instances of its family see it.
#[derive(Clone)]
pub struct Identity {
    info: CertificateInfo,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// Builds an identity from key and certificate of the instance and the certificates of the authorities it trusts,
    /// all PEM. One of them must have signed the certificate; whether it is valid at the moment is for the peers to
    /// check.
    ///
    /// # Errors
    /// `Unusable` when one of them cannot be used, or none of the authorities has signed the certificate.
    pub fn from_pem(identity: &str, authorities: &str, clock: &Clock) -> Result<Identity, TlsError> {
        let what = "the instance's certificate";
        let failed = |error: Error| TlsError::unusable(what, error);
        let own = certificates(identity, what)?;
        let trusted = certificates(authorities, "the authorities' certificates")?;
        let key = PrivateKeyDer::from_pem_slice(identity.as_bytes())
            .map_err(|_| TlsError::unusable("the instance's key", "it is not a private key in PEM form"))?;
        let info = CertificateInfo::of(&own[0])?;
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots.add(certificate.clone()).map_err(failed)?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(suites());
        check_signed(&own[0], &roots, &info, &provider)?;
        // The authority goes along: a joining host knows nothing but its fingerprint.
        let chain = vec![own[0].clone(), issuer_of(&info, &trusted)];

        let verifier =
            FamilyVerifier { trust: Trust::Roots(roots.clone()), algorithms: algorithms(&provider) };
        let client = ClientConfig::builder_with_details(provider.clone(), clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(failed)?;

        // A client without a certificate may request one, and nothing else.
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| TlsError::unusable("the authorities' certificates", error))?;
        let mut server = ServerConfig::builder_with_details(provider, clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(failed)?;
        // Every connection presents certificates: no session ticket outlives the replacement of a certificate.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Identity { info, client: Arc::new(finished(client)), server: Arc::new(server) })
    }

    pub fn info(&self) -> &CertificateInfo {
        &self.info
    }

    /// Returns the configuration for connections that it opens: presents its certificate, accepts those of its family.
    pub fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    /// Returns the configuration for connections that it accepts: presents its certificate, accepts those of its family
    /// and clients without one.
    pub fn server(&self) -> &Arc<ServerConfig> {
        &self.server
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}, key withheld)", self.info.name)
    }
}

/// Returns the configuration of a host that has no certificate yet and knows the authority's fingerprint from its
/// token.
///
/// # Errors
/// `Unusable` when TLS cannot be configured.
pub fn joining(authority: Fingerprint, clock: &Clock) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(suites());
    let verifier = FamilyVerifier { trust: Trust::Pinned(authority), algorithms: algorithms(&provider) };
    let client = ClientConfig::builder_with_details(provider, clock.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| TlsError::unusable("TLS", error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(finished(client)))
}

fn finished(mut client: ClientConfig) -> ClientConfig {
    client.resumption = Resumption::disabled();
    // The host name says nothing: the certificate says which instance it is.
    client.enable_sni = false;
    client.alpn_protocols = vec![ALPN.to_vec()];
    client
}

/// Lists AES-128 first: as safe here as the others, and the fastest where the processor has instructions for it.
fn suites() -> CryptoProvider {
    let cipher_suites = vec![
        provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
        provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
        provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    CryptoProvider { cipher_suites, ..provider::default_provider() }
}

fn algorithms(provider: &CryptoProvider) -> WebPkiSupportedAlgorithms {
    provider.signature_verification_algorithms
}

pub(crate) fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|error| TlsError::unusable(what, error))?;
    if all.is_empty() { Err(TlsError::unusable(what, "there is no certificate in it")) } else { Ok(all) }
}

/// Checks that one of `authorities` has signed the certificate of an instance.
///
/// # Errors
/// `Unusable` when none of them has, or an authority's certificate cannot be used.
pub(crate) fn is_signed_by(
    certificate: &CertificateDer<'_>,
    authorities: &[CertificateDer<'static>],
    info: &CertificateInfo,
) -> Result<(), TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let failed = |error: Error| TlsError::unusable("the authorities' certificates", error);
        roots.add(authority.clone()).map_err(failed)?;
    }
    check_signed(certificate, &roots, info, &suites())
}

fn check_signed(
    own: &CertificateDer<'_>,
    roots: &RootCertStore,
    info: &CertificateInfo,
    provider: &CryptoProvider,
) -> Result<(), TlsError> {
    // Verified at a moment at which it is valid, whatever the time is now.
    let then = UnixTime::since_unix_epoch(std::time::Duration::from_secs(info.not_after));
    ParsedCertificate::try_from(own)
        .and_then(|parsed| {
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, &[], then, algorithms(provider).all)
        })
        .map_err(|error| TlsError::unusable("the instance's certificate", error))
}

/// Returns the authority that signed the certificate, by name; of several with the same name the first, which is the
/// newest.
fn issuer_of(info: &CertificateInfo, trusted: &[CertificateDer<'static>]) -> CertificateDer<'static> {
    let named = |certificate: &&CertificateDer<'static>| {
        CertificateInfo::of(certificate).is_ok_and(|authority| authority.name == info.issuer)
    };
    trusted.iter().find(named).unwrap_or(&trusted[0]).clone()
}

#[derive(Debug)]
enum Trust {
    Roots(Arc<RootCertStore>),
    Pinned(Fingerprint),
}

/// Accepts any member of the family, whatever the host is called; the caller checks which member it is.
#[derive(Debug)]
struct FamilyVerifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for FamilyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let verify = |roots: &RootCertStore| {
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, &[], now, self.algorithms.all)
        };
        match &self.trust {
            Trust::Roots(roots) => verify(roots)?,
            Trust::Pinned(pin) => {
                let pinned = intermediates.iter().find(|certificate| fingerprint(certificate) == *pin);
                let pinned = pinned.ok_or(CertificateError::UnknownIssuer)?;
                let mut roots = RootCertStore::empty();
                roots.add(pinned.clone().into_owned())?;
                verify(&roots)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
