//! One-time tokens with which a new host gets its first certificate.
//!
//! A token is text: `sft1.` and 64 random or fixed bytes in hexadecimal: the SHA-256 of the authority's certificate
//! (the new host accepts no other authority), a number and a secret. Number and secret give the seed of a key pair
//! (Ed25519). The issuer keeps only the public key, which checks a proof but cannot make one, so that a reader of the
//! issuer's file gains nothing. The new host never sends the secret: it signs the TLS session, the name it asks for and
//! its request. A proof is therefore worth nothing in another session, and a man in the middle gains nothing.

use crate::error::TlsError;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use ring::{digest, rand};
use std::fmt;

const PREFIX: &str = "sft1.";
const NUMBER_BYTES: usize = 8;
const SECRET_BYTES: usize = 24;
const TOKEN_BYTES: usize = 32 + NUMBER_BYTES + SECRET_BYTES;
/// Purpose of the proof; another use of the same secret would have another text.
const PURPOSE: &[u8] = b"standfast join 1";

/// SHA-256 of a certificate in DER.
pub type Fingerprint = [u8; 32];

/// A token with its secret, as its bearer has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub authority: Fingerprint,
    pub number: [u8; NUMBER_BYTES],
    secret: [u8; SECRET_BYTES],
}

/// The public key that the issuer keeps: it checks a proof but cannot make one.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenKey([u8; 32]);

impl Token {
    /// Generates a token for members of the family of `authority`.
    ///
    /// # Errors
    /// `Random` when the system gives no random numbers.
    pub fn generate(authority: Fingerprint) -> Result<Token, TlsError> {
        let random = rand::SystemRandom::new();
        let mut token = Token { authority, number: [0; NUMBER_BYTES], secret: [0; SECRET_BYTES] };
        for bytes in [&mut token.number[..], &mut token.secret[..]] {
            rand::SecureRandom::fill(&random, bytes).map_err(|_| TlsError::Random)?;
        }
        Ok(token)
    }

    /// Returns the text that is handed over, which is a secret.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}{}{}", hex(&self.authority), hex(&self.number), hex(&self.secret))
    }

    /// Parses a token; white space around it does not matter.
    ///
    /// # Errors
    /// `Token`; the error does not repeat the text.
    pub fn parse(text: &str) -> Result<Token, TlsError> {
        let bytes = text.trim().strip_prefix(PREFIX).and_then(unhex).ok_or(TlsError::Token)?;
        let whole: [u8; TOKEN_BYTES] = bytes.try_into().map_err(|_| TlsError::Token)?;
        let mut token = Token { authority: [0; 32], number: [0; NUMBER_BYTES], secret: [0; SECRET_BYTES] };
        let (authority, rest) = whole.split_at(32);
        let (number, secret) = rest.split_at(NUMBER_BYTES);
        token.authority.copy_from_slice(authority);
        token.number.copy_from_slice(number);
        token.secret.copy_from_slice(secret);
        Ok(token)
    }

    /// Returns the key that the issuer keeps.
    ///
    /// # Errors
    /// `Token`, which no secret causes.
    pub fn key(&self) -> Result<TokenKey, TlsError> {
        TokenKey::of_seed(&self.seed())
    }

    /// Returns the seed of the key pair. It is a hash, because earlier releases kept this hash: they have thereby kept
    /// the seed of the same key.
    fn seed(&self) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(PURPOSE);
        context.update(&self.number);
        context.update(&self.secret);
        let mut seed = [0; 32];
        seed.copy_from_slice(context.finish().as_ref());
        seed
    }

    /// Proves possession in the TLS session that exported `session`, for `name` and `request`.
    ///
    /// # Errors
    /// `Token`, which no secret causes.
    pub fn prove(&self, session: &[u8; 32], name: &str, request: &[u8]) -> Result<Vec<u8>, TlsError> {
        Ok(pair(&self.seed())?.sign(&message(session, name, request)).as_ref().to_vec())
    }
}

fn pair(seed: &[u8; 32]) -> Result<Ed25519KeyPair, TlsError> {
    Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| TlsError::Token)
}

impl TokenKey {
    fn of_seed(seed: &[u8; 32]) -> Result<TokenKey, TlsError> {
        let mut key = [0; 32];
        key.copy_from_slice(pair(seed)?.public_key().as_ref());
        Ok(TokenKey(key))
    }

    /// Returns whether `proof` was made with the token, in this session, for this name and this request.
    pub fn accepts(&self, proof: &[u8], session: &[u8; 32], name: &str, request: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(&message(session, name, request), proof).is_ok()
    }

    /// Returns the key in hexadecimal, for the issuer's file.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads the key from the issuer's file; `None` when the text is something else.
    pub fn from_hex(text: &str) -> Option<TokenKey> {
        unhex(text)?.try_into().ok().map(TokenKey)
    }

    /// Returns the key from the text that earlier releases kept. That text is a secret: a proof could be made with it.
    pub fn from_old_hex(text: &str) -> Option<TokenKey> {
        let seed: [u8; 32] = unhex(text)?.try_into().ok()?;
        TokenKey::of_seed(&seed).ok()
    }
}

/// Returns the bytes that a proof signs. Lengths come first, so that no two different inputs give the same bytes.
fn message(session: &[u8; 32], name: &str, request: &[u8]) -> Vec<u8> {
    let mut bytes = [PURPOSE, session].concat();
    for part in [name.as_bytes(), request] {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, secret withheld)", hex(&self.number))
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(withheld)")
    }
}

/// Returns the bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads bytes from hexadecimal; `None` when the text is something else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn token_roundtrips_as_text_and_is_never_shown_elsewhere() {
        let token = Token::generate([7; 32]).unwrap();
        let text = token.reveal();
        assert_eq!(Token::parse(&format!(" {text}\n")).unwrap(), token);
        let secret = hex(&token.secret);
        assert!(text.ends_with(&secret));
        for shown in [format!("{token:?}"), format!("{:?}", token.key()), token.key().unwrap().to_hex()] {
            assert!(!shown.contains(&secret), "{shown}");
        }
        let error = Token::parse(&text[..text.len() - 2]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(&secret[..20]));
        assert_ne!(Token::generate([7; 32]).unwrap(), token);
    }

    #[test]
    fn proof_is_valid_only_for_its_own_request() {
        let token = Token::generate([7; 32]).unwrap();
        let key = TokenKey::from_hex(&token.key().unwrap().to_hex()).unwrap();
        let proof = token.prove(&[1; 32], "oslo", b"request").unwrap();
        assert!(key.accepts(&proof, &[1; 32], "oslo", b"request"));
        assert!(!key.accepts(&proof, &[2; 32], "oslo", b"request"), "another session");
        assert!(!key.accepts(&proof, &[1; 32], "paris", b"request"), "another name");
        assert!(!key.accepts(&proof, &[1; 32], "oslo", b"requests"), "another request");
        assert!(!key.accepts(&proof, &[1; 32], "oslor", b"equest"), "cut elsewhere");
        assert!(
            !key.accepts(&proof[..63], &[1; 32], "oslo", b"request")
                && !key.accepts(&[], &[1; 32], "oslo", b"")
        );
        assert!(
            !Token::generate([7; 32]).unwrap().key().unwrap().accepts(&proof, &[1; 32], "oslo", b"request")
        );
    }

    #[test]
    fn issuers_key_cannot_forge_a_proof() {
        let token = Token::generate([7; 32]).unwrap();
        let kept = token.key().unwrap();
        let text = message(&[1; 32], "oslo", b"request");
        // Forged with the kept key as a seed, and as the key of the HMAC that proofs were in earlier releases.
        let seeded = pair(&kept.0).unwrap().sign(&text);
        let code = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &kept.0), &text);
        for forged in [seeded.as_ref(), code.as_ref(), &kept.0] {
            assert!(!kept.accepts(forged, &[1; 32], "oslo", b"request"));
        }
        assert!(kept.accepts(
            &token.prove(&[1; 32], "oslo", b"request").unwrap(),
            &[1; 32],
            "oslo",
            b"request"
        ));
    }

    #[test]
    fn token_kept_by_an_earlier_release_stays_valid() {
        let token = Token::generate([7; 32]).unwrap();
        let read = TokenKey::from_old_hex(&hex(&token.seed())).unwrap();
        assert!(read == token.key().unwrap() && !read.to_hex().contains(&hex(&token.seed())));
        assert!(TokenKey::from_old_hex("00").is_none());
    }

    proptest! {
        #[test]
        fn parsed_token_reveals_the_same_text(text in "(sft1\\.)?[0-9a-fg]{0,140}|\\PC{0,40}") {
            if let Ok(token) = Token::parse(&text) {
                prop_assert_eq!(token.reveal(), text.trim().to_ascii_lowercase());
            }
        }
    }
}
