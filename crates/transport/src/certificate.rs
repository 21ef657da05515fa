//! Requests for certificates, and their answers: for the first one with a token, for the next one with the current
//! certificate.

use crate::now_us;
use crate::rights::MemberRights;
use serde::{Deserialize, Serialize};
use standfast_tls::hex;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRequest {
    #[serde(deserialize_with = "crate::foreign::foreign_name")]
    pub name: String,
    /// PKCS#10, in hexadecimal.
    #[serde(rename = "pkcs10")]
    pub request: String,
    /// Present in a request for the first certificate.
    #[serde(default)]
    pub token: Option<TokenProof>,
    /// Time on the client's clock, seconds since the Unix epoch; for messages only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<u64>,
}

impl CertificateRequest {
    /// A renewal, by the right of the current certificate, which is for `name`; `request` is PKCS#10.
    pub fn renewal(name: &str, request: &[u8]) -> CertificateRequest {
        CertificateRequest {
            name: name.into(),
            request: hex(request),
            token: None,
            time: Some(now_seconds()),
        }
    }
}

/// Proof that the client has a token, without the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenProof {
    /// Number of the token, in hexadecimal.
    pub number: String,
    /// Proof over this TLS session, name and request, in hexadecimal; not valid elsewhere.
    pub proof: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateGrant {
    pub certificate: String,
    /// The authorities that the family trusts, PEM.
    pub authorities: String,
    #[serde(deserialize_with = "crate::foreign::foreign_name")]
    pub issuer: String,
    /// Instances of the family, the issuer included.
    #[serde(deserialize_with = "crate::foreign::foreign_names")]
    pub peers: Vec<String>,
    /// All members that the issuer knows, with their rights; empty: a release that only sends `peers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberRights>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endorsements: Vec<AuthorityEndorsement>,
}

/// Endorsement of one authority by another, see [`standfast_tls::Endorsement`]; all in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityEndorsement {
    pub by: String,
    pub of: String,
    /// Signature of the endorsing authority over the certificate of the endorsed one.
    pub signature: String,
}

/// By what right a certificate is requested. The receiver has checked that the connection is encrypted and, for
/// `Certificate`, that the certificate is valid and has the requested name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateRight {
    /// A token. The instance checks the proof.
    Token {
        /// Number of the token.
        number: String,
        proof: Vec<u8>,
        /// Bytes exported from the TLS session.
        session: [u8; 32],
    },
    Certificate,
}

/// Returns seconds since the Unix epoch, the unit of certificates.
pub fn now_seconds() -> u64 {
    now_us() / 1_000_000
}
