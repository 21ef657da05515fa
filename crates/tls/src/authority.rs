//! The authority of a family of instances, and requests to it.

use crate::certificate::{BEFORE_SECONDS, CertificateInfo, fingerprint, first_certificate};
use crate::error::TlsError;
use crate::token::Fingerprint;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use std::time::Duration;

/// Validity of an instance's certificate unless another one is given, days.
pub const VALID_DAYS: u64 = 365;
const VALID_SECONDS: u64 = VALID_DAYS * 86_400;
const AUTHORITY_VALID_SECONDS: u64 = 20 * 365 * 86_400;

/// Signs the certificates of a family. Holds the most valuable key: its holder can be any instance.
pub struct Authority {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority with a new key.
    ///
    /// # Errors
    /// `Making` when key or certificate cannot be made.
    pub fn create(family: &str, now: u64) -> Result<Authority, TlsError> {
        let key = new_key()?;
        let mut params = params(&format!("standfast family {family} {now:x}"), now, AUTHORITY_VALID_SECONDS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(making)?;
        let (der, pem) = (certificate.der().clone(), certificate.pem());
        Ok(Authority { certificate: der, certificate_pem: pem, issuer: Issuer::new(params, key) })
    }

    /// Reads an authority from its certificate, the first in `certificates`, and its key, both PEM.
    ///
    /// # Errors
    /// `Unusable`, also when certificate and key do not belong together.
    pub fn from_pem(certificates: &str, key: &str) -> Result<Authority, TlsError> {
        let certificate = first_certificate(certificates)?;
        // The parser's error could repeat parts of the key.
        let key = KeyPair::from_pem(key)
            .map_err(|_| TlsError::unusable("the authority's key", "it is not a private key in PEM form"))?;
        let belongs = x509_parser::parse_x509_certificate(&certificate)
            .is_ok_and(|(_, parsed)| parsed.public_key().subject_public_key.data == key.public_key_raw());
        if !belongs {
            return Err(TlsError::unusable("the authority's key", "it belongs to another certificate"));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(|error| TlsError::unusable("the authority's certificate", error))?;
        let certificate_pem = pem_of(&certificate);
        Ok(Authority { certificate, certificate_pem, issuer })
    }

    /// Returns its certificate, which every member of the family trusts.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Returns its key, which is a secret.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Returns the fingerprint that tokens pin.
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint(&self.certificate)
    }

    /// Returns a certificate for the instance `name` and the key that signed `request` (PKCS#10), valid for
    /// [`VALID_DAYS`]. Everything else in the request is ignored: this function decides what a certificate may be used
    /// for.
    ///
    /// # Errors
    /// `Request` when the request is not signed by its own key, `Making` when the certificate cannot be made.
    pub fn sign(&self, name: &str, request: &[u8], now: u64) -> Result<String, TlsError> {
        self.sign_for(name, request, now, VALID_SECONDS)
    }

    /// Signs like [`Authority::sign`], valid until `now` + `seconds`.
    ///
    /// # Errors
    /// Those of [`Authority::sign`].
    pub fn sign_for(&self, name: &str, request: &[u8], now: u64, seconds: u64) -> Result<String, TlsError> {
        let request = CertificateSigningRequestDer::from(request);
        let mut request = CertificateSigningRequestParams::from_der(&request)
            .map_err(|error| TlsError::Request(error.to_string()))?;
        request.params = params(name, now, seconds);
        request.params.is_ca = IsCa::ExplicitNoCa;
        request.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        request.params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        request.params.use_authority_key_identifier_extension = true;
        Ok(request.signed_by(&self.issuer).map_err(making)?.pem())
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({}, key withheld)", crate::token::hex(&self.fingerprint()))
    }
}

/// A new key, and the request for its certificate.
pub struct Request {
    key: KeyPair,
    request: Vec<u8>,
}

impl Request {
    /// Makes a new key and a request for a certificate of `name`.
    ///
    /// # Errors
    /// `Making` when key or request cannot be made.
    pub fn create(name: &str) -> Result<Request, TlsError> {
        let key = new_key()?;
        let request = params(name, 0, VALID_SECONDS).serialize_request(&key).map_err(making)?;
        Ok(Request { key, request: request.der().to_vec() })
    }

    /// Returns the request for the authority (PKCS#10). It is not a secret.
    pub fn der(&self) -> &[u8] {
        &self.request
    }

    /// Returns key and certificate as one PEM text, which is a secret, when the certificate is for this key and for
    /// `name`.
    ///
    /// # Errors
    /// `Unusable` when the certificate is for another key or name, or cannot be read.
    pub fn identity_pem(&self, certificate: &str, name: &str) -> Result<String, TlsError> {
        let der = first_certificate(certificate)?;
        let info = CertificateInfo::of(&der)?;
        let ours = x509_parser::parse_x509_certificate(&der).is_ok_and(|(_, parsed)| {
            parsed.public_key().subject_public_key.data == self.key.public_key_raw()
        });
        if !ours || info.name != name {
            return Err(TlsError::unusable("the certificate received", "it is for another key or name"));
        }
        Ok(format!("{}{}", self.key.serialize_pem(), pem_of(&der)))
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request(key withheld)")
    }
}

fn new_key() -> Result<KeyPair, TlsError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(making)
}

fn params(name: &str, now: u64, seconds: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.saturating_sub(BEFORE_SECONDS));
    params.not_after = epoch + Duration::from_secs(now + seconds);
    params
}

fn making(error: rcgen::Error) -> TlsError {
    TlsError::Making(error.to_string())
}

/// Returns a certificate as PEM text.
pub(crate) fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", certificate.to_vec()), config)
}
