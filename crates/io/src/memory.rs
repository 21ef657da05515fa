//! The memory of this machine.

/// Bytes of physical memory; 0 where the system does not say.
pub fn physical_bytes() -> u64 {
    // SAFETY: each call takes a number and returns one.
    let (pages, bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_memory_is_at_least_what_proc_shows() {
        let reported = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = reported.strip_prefix("MemTotal:").and_then(|rest| rest.split_whitespace().next());
        // Some containers see less.
        let kib: u64 = kib.and_then(|kib| kib.parse().ok()).unwrap_or(1);
        assert!((kib..64 << 30).contains(&(physical_bytes() >> 10)), "{kib}");
    }
}
