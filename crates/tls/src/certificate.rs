//! The content of a certificate.

use crate::error::TlsError;
use crate::token::{Fingerprint, hex};
use ring::digest;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates are valid from a day before they are made, because the clocks of hosts differ.
pub(crate) const BEFORE_SECONDS: u64 = 86_400;

/// The parts of a certificate that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// Common name of its subject: the `db_unique_name` of an instance.
    pub name: String,
    /// Common name of its issuer; empty unless there is exactly one.
    pub issuer: String,
    /// First second of its validity, since the Unix epoch.
    pub not_before: u64,
    /// Last second of its validity, since the Unix epoch.
    pub not_after: u64,
    pub fingerprint: Fingerprint,
}

impl CertificateInfo {
    /// Reads a certificate.
    ///
    /// # Errors
    /// `Unusable` when it is not a certificate, or its subject has not exactly one common name.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<CertificateInfo, TlsError> {
        let unusable = |why: &str| TlsError::unusable("a certificate", why);
        let (rest, parsed) = X509Certificate::from_der(certificate)
            .map_err(|error| TlsError::unusable("a certificate", error))?;
        if !rest.is_empty() {
            return Err(unusable("bytes behind its end"));
        }
        let common_name = |name: &x509_parser::x509::X509Name<'_>| -> Option<String> {
            let mut names = name.iter_common_name();
            let only = names.next().filter(|_| names.next().is_none())?;
            only.as_str().ok().map(str::to_owned)
        };
        let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        Ok(CertificateInfo {
            name: common_name(parsed.subject())
                .ok_or_else(|| unusable("it has not exactly one common name"))?,
            issuer: common_name(parsed.issuer()).unwrap_or_default(),
            not_before: seconds(parsed.validity().not_before),
            not_after: seconds(parsed.validity().not_after),
            fingerprint: fingerprint(certificate),
        })
    }

    pub fn fingerprint_text(&self) -> String {
        hex(&self.fingerprint)
    }

    /// Returns the second in which it was made, by its issuer's clock: its validity begins a day earlier.
    pub fn made(&self) -> u64 {
        (self.not_before + BEFORE_SECONDS).min(self.not_after)
    }

    /// Returns the second in which two thirds of its life are over, counted from when it was made: renewal is due from
    /// then on.
    pub fn renew_at(&self) -> u64 {
        let made = self.made();
        made + (self.not_after - made) / 3 * 2 + (self.not_after - made) % 3 * 2 / 3
    }

    /// Returns the whole days of validity that are left at `now`; negative when it has expired.
    pub fn days_left(&self, now: u64) -> i64 {
        (self.not_after as i64 - now as i64).div_euclid(86_400)
    }
}

/// Returns the SHA-256 of a certificate.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
    out
}

/// Returns the first certificate in a PEM text.
///
/// # Errors
/// `Unusable` when there is none.
pub fn first_certificate(pem: &str) -> Result<CertificateDer<'static>, TlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| TlsError::unusable("a certificate", error))
}
