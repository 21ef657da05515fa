//! Dynamic symbols and loadable segments of 64-bit little-endian ELF files. Accepts any bytes.

/// The bytes of a file, read as ELF.
pub struct Elf<'f> {
    bytes: &'f [u8],
}

/// A part of the file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub offset: u64,
    /// Virtual address in the program header (`p_vaddr`), before relocation.
    pub address: u64,
    pub bytes: u64,
}

const LOADABLE: u32 = 1;
/// Symbol tables: all symbols (removed from stripped files), and those for dynamic linking.
const ALL: u32 = 2;
const DYNAMIC: u32 = 11;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;

impl<'f> Elf<'f> {
    /// Returns `None` for any other kind of file.
    pub fn new(bytes: &'f [u8]) -> Option<Elf<'f>> {
        (bytes.starts_with(b"\x7fELF\x02\x01")).then_some(Elf { bytes })
    }

    fn number<const N: usize>(&self, at: usize) -> Option<u64> {
        let part = self.bytes.get(at..at.checked_add(N)?)?;
        let mut number = [0; 8];
        number[..N].copy_from_slice(part);
        Some(u64::from_le_bytes(number))
    }

    pub fn segments(&self) -> Vec<Segment> {
        let table = || {
            Some((
                self.number::<8>(32)? as usize,
                self.number::<2>(54)? as usize,
                self.number::<2>(56)? as usize,
            ))
        };
        let Some((begin, size, count)) = table() else { return Vec::new() };
        let segment = |nth: usize| {
            let at = begin.checked_add(nth.checked_mul(size)?)?;
            (self.number::<4>(at)? == u64::from(LOADABLE)).then_some(())?;
            let field = |offset| self.number::<8>(at.checked_add(offset)?);
            Some(Segment { offset: field(8)?, address: field(16)?, bytes: field(32)? })
        };
        (0..count).filter_map(segment).collect()
    }

    /// Returns the address, before relocation, of a symbol that the file defines.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        self.symbol_in(DYNAMIC, name).or_else(|| self.symbol_in(ALL, name))
    }

    /// Returns the address, before relocation, of a defined symbol that other files can link to.
    pub fn dynamic_symbol(&self, name: &str) -> Option<u64> {
        self.symbol_in(DYNAMIC, name)
    }

    fn symbol_in(&self, table: u32, name: &str) -> Option<u64> {
        let (begin, count) = (self.number::<8>(40)? as usize, self.number::<2>(60)? as usize);
        let section = |nth: usize| begin.checked_add(nth.checked_mul(SECTION_BYTES)?);
        for nth in 0..count {
            let Some(at) = section(nth) else { break };
            let Some(kind) = self.number::<4>(at.checked_add(4)?) else { break };
            if kind != u64::from(table) {
                continue;
            }
            let field =
                |at: usize, offset| self.number::<8>(at.checked_add(offset)?).map(|number| number as usize);
            let (symbols, bytes) = (field(at, 24)?, field(at, 32)?);
            let names = section(self.number::<4>(at.checked_add(40)?)? as usize)?;
            let names = self.bytes.get(field(names, 24)?..)?;
            let end = symbols.checked_add(bytes)?.min(self.bytes.len());
            let mut at = symbols;
            while at.checked_add(SYMBOL_BYTES)? <= end {
                let (named, index, address) =
                    (self.number::<4>(at)?, self.number::<2>(at + 6)?, self.number::<8>(at + 8)?);
                let found = names.get(named as usize..).and_then(|rest| rest.get(..=name.len()));
                let same =
                    found.is_some_and(|found| found.starts_with(name.as_bytes()) && found[name.len()] == 0);
                // Index 0: a reference only, not a definition.
                if same && index != 0 {
                    return Some(address);
                }
                at += SYMBOL_BYTES;
            }
        }
        None
    }

    /// Returns the text at a symbol; `None` when the file does not define it.
    pub fn text_at(&self, symbol: &str) -> Option<String> {
        let address = self.symbol(symbol)?;
        let segment = self
            .segments()
            .into_iter()
            .find(|part| address >= part.address && address - part.address < part.bytes)?;
        let at = usize::try_from(segment.offset.checked_add(address - segment.address)?).ok()?;
        let rest = self.bytes.get(at..)?;
        let end = rest.iter().take(64).position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elf_reader_survives_truncated_and_invalid_headers() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let header = &own[..4096];
        for cut in [0, 6, 40, 64, 100, 4096] {
            let Some(elf) = Elf::new(&header[..cut]) else { continue };
            assert_eq!((elf.symbol("main"), elf.text_at("main")), (None, None));
        }
        let mut wild = header.to_vec();
        for at in 32..64 {
            for byte in [0, 1, 0x7f, 0xff] {
                wild[at] = byte;
                let elf = Elf::new(&wild).unwrap();
                let _ = (elf.segments(), elf.symbol("sqlite3_libversion"), elf.text_at("sqlite3_version"));
            }
        }
    }

    #[test]
    fn symbols_of_a_program_are_found_and_others_are_not() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::new(&own).unwrap();
        assert!(!elf.segments().is_empty());
        assert!(elf.symbol("no_such_symbol_anywhere").is_none());
    }
}
