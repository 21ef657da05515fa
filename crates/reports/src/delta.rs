//! A JSON document as its difference from another one. A counter becomes a small number; an unchanged value takes one
//! byte. Pure.
//!
//! A value is a tag and its payload. Its base is the value at the same place of the other document, or null if there is
//! none. Lengths and numbers are varints (7 bits per byte, the lowest first).

use serde_json::{Map, Number, Value};

const SAME: u8 = 0;
const NULL: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
/// Increase over the base, which is an integer >= 0; zigzag, wrapping.
const MORE: u8 = 4;
const POSITIVE: u8 = 5;
const NEGATIVE: u8 = 6;
const FLOAT: u8 = 7;
const TEXT: u8 = 8;
const LIST: u8 = 9;
/// An object with all its keys.
const OBJECT: u8 = 10;
/// An object with the keys of its base; only the values follow.
const SAME_KEYS: u8 = 11;

/// Nesting limit of the decoder; documents nest less.
const DEPTH_MAX: usize = 64;

/// Why bytes are not a difference from the given document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    #[error("it ends too early")]
    Short,
    #[error("something follows its end")]
    Long,
    /// The tag is unknown, or does not fit the base.
    #[error("it has a tag that does not fit")]
    Tag,
    /// Invalid UTF-8, a number that is not finite, or a varint that is too long.
    #[error("it has a text or a number that is none")]
    Malformed,
    #[error("it nests too deeply")]
    Deep,
}

/// Encodes `value` as its difference from `base`.
pub fn encode(value: &Value, base: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put(value, base, &mut out);
    out
}

fn put(value: &Value, base: &Value, out: &mut Vec<u8>) {
    if value == base {
        return out.push(SAME);
    }
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(false) => out.push(FALSE),
        Value::Bool(true) => out.push(TRUE),
        Value::Number(number) => put_number(number, base, out),
        Value::String(text) => {
            out.push(TEXT);
            put_text(text, out);
        }
        Value::Array(values) => {
            out.push(LIST);
            put_varint(values.len() as u64, out);
            let before = base.as_array().map_or(&[][..], Vec::as_slice);
            for (index, value) in values.iter().enumerate() {
                put(value, before.get(index).unwrap_or(&Value::Null), out);
            }
        }
        Value::Object(fields) => put_object(fields, base, out),
    }
}

fn put_object(fields: &Map<String, Value>, base: &Value, out: &mut Vec<u8>) {
    if let Some(before) = base.as_object()
        && before.keys().eq(fields.keys())
    {
        out.push(SAME_KEYS);
        return fields.values().zip(before.values()).for_each(|(value, base)| put(value, base, out));
    }
    out.push(OBJECT);
    put_varint(fields.len() as u64, out);
    for (key, value) in fields {
        put_text(key, out);
        put(value, &base[key.as_str()], out);
    }
}

fn put_number(number: &Number, base: &Value, out: &mut Vec<u8>) {
    match (number.as_u64(), base.as_u64(), number.as_i64()) {
        (Some(now), Some(before), _) => {
            out.push(MORE);
            put_varint(zigzag(now.wrapping_sub(before) as i64), out);
        }
        (Some(now), None, _) => {
            out.push(POSITIVE);
            put_varint(now, out);
        }
        (None, _, Some(negative)) => {
            out.push(NEGATIVE);
            put_varint(zigzag(negative), out);
        }
        (None, _, None) => {
            out.push(FLOAT);
            out.extend(number.as_f64().unwrap_or(0.0).to_le_bytes());
        }
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_varint(text.len() as u64, out);
    out.extend(text.as_bytes());
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Returns the document whose difference from `base` is `bytes`.
///
/// # Errors
/// When `bytes` is not a difference from `base`. Never panics, and allocates no more than both inputs together.
pub fn decode(bytes: &[u8], base: &Value) -> Result<Value, DeltaError> {
    let mut rest = Rest { bytes };
    let value = rest.value(base, 0)?;
    if rest.bytes.is_empty() { Ok(value) } else { Err(DeltaError::Long) }
}

struct Rest<'b> {
    bytes: &'b [u8],
}

impl Rest<'_> {
    fn byte(&mut self) -> Result<u8, DeltaError> {
        let (first, rest) = self.bytes.split_first().ok_or(DeltaError::Short)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64, DeltaError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(DeltaError::Malformed)
    }

    /// Reads a count of items of at least one byte each; an error if fewer bytes follow.
    fn count(&mut self) -> Result<usize, DeltaError> {
        let count = usize::try_from(self.varint()?).map_err(|_| DeltaError::Short)?;
        if count > self.bytes.len() { Err(DeltaError::Short) } else { Ok(count) }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], DeltaError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(DeltaError::Short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<String, DeltaError> {
        let count = self.count()?;
        let bytes = self.take(count)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DeltaError::Malformed)
    }

    fn value(&mut self, base: &Value, depth: usize) -> Result<Value, DeltaError> {
        if depth > DEPTH_MAX {
            return Err(DeltaError::Deep);
        }
        Ok(match self.byte()? {
            SAME => base.clone(),
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            MORE => {
                let before = base.as_u64().ok_or(DeltaError::Tag)?;
                before.wrapping_add(unzigzag(self.varint()?) as u64).into()
            }
            POSITIVE => self.varint()?.into(),
            NEGATIVE => unzigzag(self.varint()?).into(),
            FLOAT => {
                let bytes = self.take(8)?.try_into().map_err(|_| DeltaError::Short)?;
                Number::from_f64(f64::from_le_bytes(bytes)).ok_or(DeltaError::Malformed)?.into()
            }
            TEXT => self.text()?.into(),
            LIST => {
                let count = self.count()?;
                let before = base.as_array().map_or(&[][..], Vec::as_slice);
                let base = |index: usize| before.get(index).unwrap_or(&Value::Null);
                (0..count)
                    .map(|index| self.value(base(index), depth + 1))
                    .collect::<Result<Vec<_>, _>>()?
                    .into()
            }
            OBJECT => {
                let count = self.count()?;
                let mut fields = Map::new();
                for _ in 0..count {
                    let key = self.text()?;
                    let value = self.value(&base[key.as_str()], depth + 1)?;
                    fields.insert(key, value);
                }
                fields.into()
            }
            SAME_KEYS => {
                let before = base.as_object().ok_or(DeltaError::Tag)?;
                let field = |(key, base): (&String, &Value)| Ok((key.clone(), self.value(base, depth + 1)?));
                before.iter().map(field).collect::<Result<Map<_, _>, _>>()?.into()
            }
            _ => return Err(DeltaError::Tag),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn unchanged_document_is_one_byte_and_counters_stay_small() {
        let before = json!({ "a": [1, 2, 3], "b": 70_000_000_000_u64, "c": "text" });
        assert_eq!(encode(&before, &before), [SAME]);
        let after = json!({ "a": [1, 2, 3], "b": 70_000_000_005_u64, "c": "text" });
        assert_eq!(encode(&after, &before), [SAME_KEYS, SAME, MORE, 10, SAME]);
    }

    #[test]
    fn malformed_delta_bytes_are_refused() {
        assert_eq!(decode(&[LIST, 0xff, 0xff, 0xff, 0x7f], &Value::Null), Err(DeltaError::Short));
        assert_eq!(decode(&[TEXT, 9, b'x'], &Value::Null), Err(DeltaError::Short));
        assert_eq!(decode(&[SAME, SAME], &Value::Null), Err(DeltaError::Long));
        assert_eq!(decode(&[MORE, 2], &Value::Null), Err(DeltaError::Tag));
        let deep: Vec<u8> = [LIST, 1].repeat(1000).into_iter().chain([NULL]).collect();
        assert_eq!(decode(&deep, &Value::Null), Err(DeltaError::Deep));
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e300..1e300_f64).prop_map(Value::from),
            "[a-z]{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn document_is_restored_from_its_delta(value in document(), base in document()) {
            prop_assert_eq!(decode(&encode(&value, &base), &base), Ok(value));
        }

        #[test]
        fn decoding_ends_for_any_input_bytes(bytes in prop::collection::vec(0..12_u8, 0..60), base in document()) {
            let _ = decode(&bytes, &base);
        }
    }
}
