//! Signatures of members and authorities over what others forward: which instance has become primary, and which
//! authority follows.
//!
//! A signature covers the purpose for which it was made, so that it is of no use for another purpose.

use crate::certificate::{CertificateInfo, fingerprint, first_certificate};
use crate::error::TlsError;
use crate::identity::{certificates, is_signed_by};
use crate::token::{hex, unhex};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const AUTHORITY: &str = "standfast authority 1";

/// A member's signature, with the certificate that says which member it is; both in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The certificate of the signer, DER.
    pub certificate: String,
    /// ECDSA P-256 with SHA-256 over purpose and message.
    pub signature: String,
}

/// The endorsement of one authority by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endorsement {
    /// Fingerprint of the endorsing authority, in hexadecimal.
    pub by: String,
    /// Fingerprint of the endorsed authority, in hexadecimal.
    pub of: String,
    /// Signature of the endorsing authority over the certificate of the endorsed one, in hexadecimal.
    pub signature: String,
}

/// Signs as the member whose key and certificate are in `identity` (PEM).
///
/// # Errors
/// `Unusable` when `identity` cannot be used, `Random` when the system gives no random numbers.
pub fn sign(identity: &str, purpose: &str, message: &[u8]) -> Result<Signature, TlsError> {
    let certificate = first_certificate(identity)?;
    let signature = sign_with(identity, purpose, message)?;
    Ok(Signature { certificate: hex(&certificate), signature: hex(&signature) })
}

/// Returns the name in the signer's certificate, when one of `authorities` (PEM) has signed that certificate. Whether
/// the certificate has expired since does not matter: the message was signed before.
///
/// # Errors
/// `Unusable` when the certificate or the signature is not valid.
pub fn signer(
    signed: &Signature,
    authorities: &str,
    purpose: &str,
    message: &[u8],
) -> Result<String, TlsError> {
    let unusable = |why: &str| TlsError::unusable("a signature", why);
    let certificate = unhex(&signed.certificate).ok_or_else(|| unusable("its certificate is none"))?;
    let certificate = CertificateDer::from(certificate);
    let signature = unhex(&signed.signature).ok_or_else(|| unusable("it is none"))?;
    let info = CertificateInfo::of(&certificate)?;
    is_signed_by(&certificate, &certificates(authorities, "the authorities' certificates")?, &info)?;
    if !is_of(&certificate, purpose, message, &signature) {
        return Err(unusable("it was made with another key or for something else"));
    }
    Ok(info.name)
}

/// Endorses the authority `of` (PEM) as the authority `by`, whose key is `key` (both PEM).
///
/// # Errors
/// `Unusable` when a certificate or the key cannot be used, `Random` when the system gives no random numbers.
pub fn endorse(by: &str, key: &str, of: &str) -> Result<Endorsement, TlsError> {
    let (by, of) = (first_certificate(by)?, first_certificate(of)?);
    let signature = sign_with(key, AUTHORITY, &of)?;
    Ok(Endorsement { by: hex(&fingerprint(&by)), of: hex(&fingerprint(&of)), signature: hex(&signature) })
}

/// Decides which of the authorities `offered` (PEM) may be trusted where `trusted` (PEM) are trusted already: those
/// that are among these, and those that one of them endorses, directly or through others. Returns all that are trusted
/// from then on as PEM, first the offered ones in their order and then the others, and the certificates that may not be
/// trusted.
///
/// # Errors
/// `Unusable` when a certificate cannot be read.
pub fn grown(
    trusted: &str,
    offered: &str,
    endorsements: &[Endorsement],
) -> Result<(String, Vec<CertificateInfo>), TlsError> {
    let what = "the authorities' certificates";
    let mut known = certificates(trusted, what)?;
    let offered = certificates(offered, what)?;
    let endorses = |by: &CertificateDer<'_>, of: &CertificateDer<'_>| {
        let (by_print, of_print) = (hex(&fingerprint(by)), hex(&fingerprint(of)));
        endorsements.iter().any(|one| {
            one.by == by_print
                && one.of == of_print
                && unhex(&one.signature).is_some_and(|signature| is_of(by, AUTHORITY, of, &signature))
        })
    };
    loop {
        let next = offered.iter().find(|of| !known.contains(of) && known.iter().any(|by| endorses(by, of)));
        match next {
            Some(next) => known.push(next.clone()),
            None => break,
        }
    }
    let (taken, refused): (Vec<_>, Vec<_>) = offered.iter().partition(|one| known.contains(one));
    let kept = known.iter().filter(|one| !offered.contains(one));
    let pem = taken.into_iter().chain(kept).map(crate::authority::pem_of).collect();
    Ok((pem, refused.into_iter().map(CertificateInfo::of).collect::<Result<_, _>>()?))
}

fn sign_with(key: &str, purpose: &str, message: &[u8]) -> Result<Vec<u8>, TlsError> {
    // The parser's error could repeat parts of the key.
    let unusable = || TlsError::unusable("the key", "it is not a private key in PEM form");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| unusable())?;
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.secret_der(), &random)
        .map_err(|_| unusable())?;
    let signature = pair.sign(&random, &text(purpose, message)).map_err(|_| TlsError::Random)?;
    Ok(signature.as_ref().to_vec())
}

fn is_of(certificate: &CertificateDer<'_>, purpose: &str, message: &[u8], signature: &[u8]) -> bool {
    x509_parser::parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| {
        let key = &parsed.public_key().subject_public_key.data;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
            .verify(&text(purpose, message), signature)
            .is_ok()
    })
}

/// Returns the bytes to sign. The length comes first, so that no purpose is the beginning of another one.
fn text(purpose: &str, message: &[u8]) -> Vec<u8> {
    [&(purpose.len() as u64).to_le_bytes()[..], purpose.as_bytes(), message].concat()
}
