//! A secret that client and server share, and the proofs that each has it. The secret is never sent and never shown. A
//! proof is bound to the nonces of both sides and to the Hello.

use crate::wire::{HELLO_BYTES, NONCE_BYTES, PROOF_BYTES};
use crate::{NetError, Result};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// A shorter secret could be guessed from a recorded handshake.
const LEAST_BYTES: usize = 16;
const MOST_BYTES: usize = 4096;

#[derive(Clone)]
pub struct Key(Arc<[u8]>);

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(..)")
    }
}

/// The side that proves. The labels have the same length, so that no proof of one side is a proof of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// The parts of a handshake that both sides have seen.
#[derive(Clone, Copy, Debug)]
pub struct Transcript<'a> {
    pub hello: &'a [u8; HELLO_BYTES],
    /// Drawn by the server for this connection.
    pub server: &'a [u8; NONCE_BYTES],
    /// Drawn by the client for this connection.
    pub client: &'a [u8; NONCE_BYTES],
}

impl Key {
    /// Returns a key of these bytes; None when they are too few or too many.
    pub fn new(bytes: &[u8]) -> Option<Key> {
        (LEAST_BYTES..=MOST_BYTES).contains(&bytes.len()).then(|| Key(bytes.into()))
    }

    /// Reads the secret from a file, without the white space around it. `option` is the option that named the file. The
    /// second value is true when the permissions of the file extend to other users.
    pub fn load(option: &str, path: &Path) -> Result<(Key, bool)> {
        let wrong = |reason: &str| {
            let allowed = format!("a file with a secret of {LEAST_BYTES} to {MOST_BYTES} bytes ({reason})");
            NetError::option(option, &path.display().to_string(), &allowed)
        };
        let mut content = Vec::new();
        let read = std::fs::File::open(path).and_then(|file| {
            let exposed = file.metadata()?.permissions().mode() & 0o077 != 0;
            file.take(MOST_BYTES as u64 + 256).read_to_end(&mut content)?;
            Ok(exposed)
        });
        let exposed = read.map_err(|error| wrong(&error.to_string()))?;
        let secret = content.trim_ascii();
        let key = Key::new(secret).ok_or_else(|| wrong(&format!("this one has {}", secret.len())))?;
        Ok((key, exposed))
    }

    fn mac(&self, side: Side, transcript: Transcript<'_>) -> Hmac<Sha256> {
        // HMAC accepts keys of any length: it hashes a key that is longer than its block.
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0)
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        mac.update(match side {
            Side::Client => b"standfast net client 3",
            Side::Server => b"standfast net server 3",
        });
        mac.update(transcript.hello);
        mac.update(transcript.server);
        mac.update(transcript.client);
        mac
    }

    /// Returns the proof that this `side` has the secret.
    pub fn prove(&self, side: Side, transcript: Transcript<'_>) -> [u8; PROOF_BYTES] {
        self.mac(side, transcript).finalize().into_bytes().into()
    }

    /// Returns whether the other `side` has the secret. Takes the same time for any wrong proof.
    pub fn is_proved(&self, side: Side, transcript: Transcript<'_>, proof: &[u8]) -> bool {
        self.mac(side, transcript).verify_slice(proof).is_ok()
    }
}

/// Returns a nonce from the system's random generator.
pub fn nonce() -> Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut nonce));
    read.map_err(|source| NetError::system("cannot draw random numbers from /dev/urandom", source))?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: [u8; HELLO_BYTES] = [1; HELLO_BYTES];
    const TRANSCRIPT: Transcript<'_> = Transcript { hello: &HELLO, server: &[2; 32], client: &[3; 32] };

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn proof_is_valid_for_one_key_one_side_and_one_handshake() {
        let proof = key("a secret of some length").prove(Side::Client, TRANSCRIPT);
        let proved = |key: Key, side, transcript| key.is_proved(side, transcript, &proof);
        let same = || key("a secret of some length");
        assert!(proved(same(), Side::Client, TRANSCRIPT));
        assert!(!proved(key("a secret of same length"), Side::Client, TRANSCRIPT));
        assert!(!proved(same(), Side::Server, TRANSCRIPT));
        assert!(!proved(same(), Side::Client, Transcript { server: &[9; 32], ..TRANSCRIPT }));
        assert!(!proved(same(), Side::Client, Transcript { client: &[9; 32], ..TRANSCRIPT }));
        assert!(!proved(same(), Side::Client, Transcript { hello: &[9; 64], ..TRANSCRIPT }));
        assert!(!same().is_proved(Side::Client, TRANSCRIPT, &proof[..31]));
        assert!(!same().is_proved(Side::Client, TRANSCRIPT, &[]));
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }

    #[test]
    fn key_is_never_printed_and_a_short_key_is_refused() {
        assert_eq!(format!("{:?}", key("a secret of some length")), "Key(..)");
        let path = std::env::temp_dir().join(format!("standfast-net-key-{}", std::process::id()));
        std::fs::write(&path, "  hunter2\n").unwrap();
        let refused = Key::load("--psk-file", &path).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains("this one has 7") && !refused.to_string().contains("hunter2"));
        std::fs::write(&path, "a secret of some length\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let (loaded, exposed) = Key::load("--psk-file", &path).unwrap();
        assert!(
            exposed
                && loaded.is_proved(
                    Side::Server,
                    TRANSCRIPT,
                    &key("a secret of some length").prove(Side::Server, TRANSCRIPT)
                )
        );
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(!Key::load("--psk-file", &path).unwrap().1);
        std::fs::remove_file(&path).unwrap();
        assert!(Key::load("--psk-file", &path).unwrap_err().to_string().contains("--psk-file"));
    }
}
