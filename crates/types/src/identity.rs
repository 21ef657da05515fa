use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Number of a protected database within its instance and all its standbys. A number is reused only when all numbers
/// have been used, recovery reads no redo of the former database, and no session has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DatabaseId(pub u16);

impl DatabaseId {
    /// Index into tables of `DATABASES_MAX` entries.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// 1-based page number as in SQLite.
pub type PageNo = u32;

/// A SQLite page size: a power of two from 512 to 65,536 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct PageSize(u32);

impl PageSize {
    /// Returns `None` unless `bytes` is a power of two from 512 to 65,536.
    pub fn new(bytes: u32) -> Option<PageSize> {
        (bytes.is_power_of_two() && (512..=65_536).contains(&bytes)).then_some(PageSize(bytes))
    }
    /// Converts the two-byte field at offset 16 of a database header, where 1 stands for 65,536.
    pub fn from_header_field(field: u16) -> Option<PageSize> {
        PageSize::new(if field == 1 { 65_536 } else { u32::from(field) })
    }
    pub fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl TryFrom<u32> for PageSize {
    type Error = String;
    fn try_from(bytes: u32) -> Result<Self, String> {
        PageSize::new(bytes).ok_or_else(|| format!("{bytes} is not a SQLite page size"))
    }
}

impl From<PageSize> for u32 {
    fn from(size: PageSize) -> u32 {
        size.0
    }
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $bytes:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// Creates an identity from the operating system's random source.
            pub fn random() -> std::io::Result<Self> {
                use std::io::Read;
                let mut bytes = [0u8; $bytes];
                std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
                Ok(Self(bytes))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                let wrong = || format!("`{text}` is not {} hexadecimal digits", $bytes * 2);
                if text.len() != $bytes * 2 || !text.is_ascii() {
                    return Err(wrong());
                }
                let mut bytes = [0u8; $bytes];
                for (i, byte) in bytes.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(&text[i * 2..i * 2 + 2], 16).map_err(|_| wrong())?;
                }
                Ok(Self(bytes))
            }
        }
        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

hex_id!(
    /// Identity of one instance (one directory made by `standfast init`).
    InstanceId,
    16
);

hex_id!(
    /// Random identity of an incarnation; it distinguishes two branches with the same number.
    IncarnationId,
    8
);

/// Number of an incarnation: 1 at `init`, one more each time a standby is opened as primary.
pub type IncarnationNo = u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_those_of_sqlite() {
        assert_eq!(PageSize::from_header_field(1).map(PageSize::bytes), Some(65_536));
        assert_eq!(PageSize::from_header_field(4096).map(PageSize::bytes), Some(4096));
        assert!(PageSize::new(256).is_none() && PageSize::new(5000).is_none());
    }

    #[test]
    fn instance_ids_roundtrip_through_their_text() {
        let id = InstanceId([0xab; 16]);
        assert_eq!(id.to_string().parse::<InstanceId>(), Ok(id));
        assert!("zz".repeat(16).parse::<InstanceId>().is_err());
        assert!("é".repeat(16).parse::<InstanceId>().is_err());
    }
}
