//! Files that are replaced whole: one line with what the file is and a checksum, then JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use standfast_format::crc32c;

/// Returns the bytes of a file that holds `content`. `what`: its first word, and the version of its format.
///
/// # Errors
/// When the content cannot be written as JSON.
pub fn encode(what: &str, content: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let body = serde_json::to_string_pretty(content)?;
    Ok(format!("{what} {:08x}\n{body}", crc32c(body.as_bytes())).into_bytes())
}

/// Returns the content; `None`: the file is damaged, or is another one.
pub fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Option<T> {
    let (first, body) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    let crc = u32::from_str_radix(first.strip_prefix(what)?.strip_prefix(' ')?, 16).ok()?;
    (crc32c(body.as_bytes()) == crc).then(|| serde_json::from_str(body).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_read_back_and_every_changed_byte_is_noticed() {
        let bytes = encode("register 1", &["alpha", "beta"]).unwrap();
        assert_eq!(decode::<Vec<String>>("register 1", &bytes).unwrap(), ["alpha", "beta"]);
        assert_eq!(decode::<Vec<String>>("register 2", &bytes), None);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode::<Vec<String>>("register 1", &damaged), None, "byte {at}");
        }
        assert_eq!(decode::<Vec<String>>("register 1", &bytes[..bytes.len() - 1]), None);
    }
}
