//! The files mapped into a process, while it is stopped.

use super::copy::{Contents, Copy};
use std::collections::BTreeMap;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    begin: u64,
    end: u64,
    offset: u64,
    is_code: bool,
    path: PathBuf,
}

/// The copies of SQLite in a process.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Every copy; true when the shim serves it.
    pub copies: BTreeMap<PathBuf, (Copy, bool)>,
    /// Files with a shim that serves no copy.
    pub idle_shims: Vec<PathBuf>,
}

impl Loaded {
    /// Merges in what was found at a later stop of the same process.
    pub fn add(&mut self, other: Loaded) {
        for (path, (copy, served)) in other.copies {
            let entry = self.copies.entry(path).or_insert((copy, false));
            entry.1 |= served;
        }
        self.idle_shims = other.idle_shims;
    }
}

/// Inspects the process of thread `thread`, which is stopped.
pub fn look(thread: libc::pid_t, contents: &mut Contents) -> Loaded {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{thread}/maps")) else { return Loaded::default() };
    let mappings = parse(&text);
    let mut loaded = Loaded::default();
    let mut serving = Vec::new();
    for mapping in mappings.iter().filter(|mapping| mapping.is_code) {
        let content = contents.of(&mapping.path);
        if let Some(copy) = &content.copy {
            loaded.copies.entry(mapping.path.clone()).or_insert_with(|| (copy.clone(), false));
        }
        let Some(serves_at) = content.serves_at else { continue };
        // The mapping of the file's beginning gives the load offset.
        let start = mappings.iter().find(|other| other.path == mapping.path && other.offset == 0);
        let address =
            start.map(|start| serves_at.wrapping_add(start.begin).wrapping_sub(content.first_address));
        match address.and_then(|address| read_number(thread, address).ok()).filter(|served| *served != 0) {
            Some(served) => serving.push(served),
            None if loaded.idle_shims.contains(&mapping.path) => {}
            None => loaded.idle_shims.push(mapping.path.clone()),
        }
    }
    for address in serving {
        let within = mappings.iter().find(|mapping| (mapping.begin..mapping.end).contains(&address));
        if let Some(entry) = within.and_then(|mapping| loaded.copies.get_mut(&mapping.path)) {
            entry.1 = true;
        }
    }
    loaded
}

/// Parses the mappings of named files; deleted ones are omitted, because they cannot be read. Pure.
fn parse(maps: &str) -> Vec<Mapping> {
    let line = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let (begin, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let offset = words.next()?;
        let path = words.nth(2)?.trim_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        (path.starts_with('/') && !path.ends_with(" (deleted)")).then_some(())?;
        Some(Mapping {
            begin: number(begin)?,
            end: number(end)?,
            offset: number(offset)?,
            is_code: rights.contains('x'),
            path: PathBuf::from(path),
        })
    };
    maps.lines().filter_map(line).collect()
}

fn read_number(thread: libc::pid_t, address: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    match read_memory(thread, address, &mut bytes)? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(Error::from(std::io::ErrorKind::UnexpectedEof)),
    }
}

/// Reads memory of a stopped process; returns the number of bytes read.
///
/// # Errors
/// The error of the system call.
pub fn read_memory(thread: libc::pid_t, address: u64, out: &mut [u8]) -> Result<usize> {
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: out.len() };
    // SAFETY: the local part is `out`; the kernel checks the remote part.
    let read = unsafe { libc::process_vm_readv(thread, &local, 1, &remote, 1, 0) };
    usize::try_from(read).map_err(|_| Error::last_os_error())
}

/// The command line of a process, at most 120 characters.
pub fn command_line(process: libc::pid_t) -> String {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let text = words.map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    text.chars().take(120).collect()
}

/// The process that a thread belongs to.
pub fn process_of(thread: libc::pid_t) -> libc::pid_t {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(thread)
}

/// Returns the absolute path of a path that a thread passed to the kernel, relative to `directory` of that thread.
pub fn resolve(thread: libc::pid_t, directory: i32, path: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let base = match directory {
        libc::AT_FDCWD => std::fs::read_link(format!("/proc/{thread}/cwd")),
        number => std::fs::read_link(format!("/proc/{thread}/fd/{number}")),
    };
    base.unwrap_or_default().join(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_distinguished_from_other_mappings() {
        let maps = "\
55d0c2a00000-55d0c2a01000 r--p 00000000 fe:00 1234                       /usr/bin/my app\n\
55d0c2a01000-55d0c2a02000 r-xp 00001000 fe:00 1234                       /usr/bin/my app\n\
7f0000000000-7f0000001000 r-xp 00000000 00:00 0                          [vdso]\n\
7f0000002000-7f0000003000 rw-p 00000000 00:00 0 \n\
7f0000004000-7f0000005000 r-xp 00000000 fe:00 99                         /tmp/gone.so (deleted)\n";
        let found = parse(maps);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].path, Path::new("/usr/bin/my app"));
        assert_eq!((found[1].begin, found[1].offset, found[1].is_code), (0x55d0_c2a0_1000, 0x1000, true));
        assert!(!found[0].is_code);
    }

    #[test]
    fn own_memory_and_own_process_are_read() {
        let value = 0x1234_5678_9abc_def0u64;
        let own = std::process::id() as libc::pid_t;
        assert_eq!(read_number(own, (&raw const value) as u64).unwrap(), value);
        assert!(read_number(own, 8).is_err());
        assert_eq!(process_of(own), own);
        assert!(!command_line(own).is_empty());
    }
}
