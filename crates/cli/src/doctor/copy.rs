//! Copies of SQLite: which files hold one, and of which version.

use super::elf::Elf;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A file that holds SQLite's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub path: PathBuf,
    /// Version as text; `None` when unknown.
    pub version: Option<String>,
    /// Check-in time and hash of its source: what `sqlite3_sourceid()` returns.
    pub source_id: String,
    /// Its dynamic symbols include SQLite's functions, so that a preloaded library can interpose.
    pub is_dynamic: bool,
}

/// The relevant content of a file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub copy: Option<Copy>,
    /// Standfast's shim: address, before relocation, of the variable that points into the copy that it serves.
    pub serves_at: Option<u64>,
    /// Address of the first loadable segment, before relocation.
    pub first_address: u64,
}

/// Cache: every file is read once.
#[derive(Default)]
pub struct Contents(HashMap<PathBuf, Content>);

impl Contents {
    /// Returns the content of the file at `path`; empty when it cannot be read.
    pub fn of(&mut self, path: &Path) -> &Content {
        self.0
            .entry(path.to_owned())
            .or_insert_with(|| std::fs::read(path).map(|bytes| inspect(path, &bytes)).unwrap_or_default())
    }
}

fn inspect(path: &Path, bytes: &[u8]) -> Content {
    let Some(elf) = Elf::new(bytes) else { return Content::default() };
    let first_address = elf.segments().first().map_or(0, |segment| segment.address);
    let serves_at = elf.symbol(standfast_session::SERVES_SYMBOL);
    Content { copy: copy_in(path, bytes, &elf), serves_at, first_address }
}

fn copy_in(path: &Path, bytes: &[u8], elf: &Elf<'_>) -> Option<Copy> {
    // Every copy holds both texts, however it was linked and stripped: SQLite writes this one into each new file.
    if !contains(bytes, b"SQLite format 3\0") {
        return None;
    }
    let source_id = source_id(bytes)?;
    let is_dynamic = elf.dynamic_symbol("sqlite3_open_v2").is_some();
    let version = elf.text_at("sqlite3_version").or_else(|| only_version(bytes));
    Some(Copy { path: path.to_owned(), version, source_id, is_dynamic })
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    find(bytes, wanted, 0).is_some()
}

fn find(bytes: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let first = *wanted.first()?;
    let mut at = from;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == first)?;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
}

/// Finds `2022-12-28 14:03:47 ` and a hash in hexadecimal digits; a modified source may have altered the last ones.
fn source_id(bytes: &[u8]) -> Option<String> {
    const SHAPE: &[u8] = b"0000-00-00 00:00:00 ";
    const HASH: usize = 64;
    let fits = |part: &[u8]| {
        let (date, hash) = part.split_at(SHAPE.len());
        let dated = date.iter().zip(SHAPE).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        });
        dated
            && hash[..HASH - 4].iter().all(u8::is_ascii_hexdigit)
            && hash.iter().all(u8::is_ascii_alphanumeric)
    };
    let mut at = 0;
    while let Some(found) = find(bytes, b"20", at) {
        let part = bytes.get(found..found + SHAPE.len() + HASH)?;
        if fits(part) {
            return std::str::from_utf8(part).ok().map(str::to_owned);
        }
        at = found + 1;
    }
    None
}

/// Returns the version if exactly one text looks like one: `3.40.1` between two zero bytes.
fn only_version(bytes: &[u8]) -> Option<String> {
    let mut found: Option<String> = None;
    let mut at = 0;
    while let Some(begin) = find(bytes, b"\x003.", at) {
        at = begin + 1;
        let rest = bytes.get(at..(at + 12).min(bytes.len()))?;
        let Some(end) = rest.iter().position(|byte| *byte == 0) else { continue };
        let Ok(text) = std::str::from_utf8(&rest[..end]) else { continue };
        let parts: Vec<_> = text.split('.').map(str::parse::<u16>).collect();
        let is_version = (3..=4).contains(&parts.len()) && parts.iter().all(Result::is_ok);
        match (&found, is_version) {
            (_, false) => {}
            (Some(known), true) if known != text => return None,
            (_, true) => found = Some(text.to_owned()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "2022-12-28 14:03:47 df5c253c0b3dd24916e4ec7cf77d3db5294cc9fd45ae7b9c5e82ad8197f3alt1";

    #[test]
    fn a_source_id_is_found_among_other_dates() {
        let text = format!("2020-01-01\0 2021-05-05 10:10:10 no\0{ID}\0more");
        assert_eq!(source_id(text.as_bytes()).as_deref(), Some(ID));
        assert_eq!(source_id(&text.as_bytes()[..text.len() - 40]), None);
        assert_eq!(source_id(b""), None);
    }

    #[test]
    fn version_is_accepted_only_if_it_is_the_only_one() {
        assert_eq!(only_version(b"x\x003.53.2\x00y").as_deref(), Some("3.53.2"));
        assert_eq!(
            only_version(b"\x003.14\x00\x003.x.1\x00\x003.40.1\x00\x003.40.1\x00").as_deref(),
            Some("3.40.1")
        );
        assert_eq!(only_version(b"\x003.40.1\x00\x003.8.2\x00"), None);
        assert_eq!(only_version(b"\x003."), None);
    }
}
