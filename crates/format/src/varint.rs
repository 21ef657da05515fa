//! LEB128: seven bits per byte, least significant first; the high bit says that more bytes follow.

use crate::{DecodeError, malformed};

pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads one value at `*at` and moves `*at` past it.
pub fn take(bytes: &[u8], at: &mut usize) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(malformed("varint", "runs past the end"))?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed("varint", "longer than 64 bits"))
}

pub fn take_u32(bytes: &[u8], at: &mut usize) -> Result<u32, DecodeError> {
    u32::try_from(take(bytes, at)?).map_err(|_| malformed("varint", "does not fit 32 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_values_roundtrip_and_malformed_ones_fail() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            let mut at = 0;
            assert_eq!(take(&out, &mut at), Ok(value));
            assert_eq!(at, out.len());
        }
        assert!(take(&[0x80; 11], &mut 0).is_err());
        assert!(take(&[0x80], &mut 0).is_err());
    }
}
