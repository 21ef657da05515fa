//! Entry points of the fuzzer: every decoder of bytes that come from a file, a peer, an application or an operator.
//!
//! A target takes any bytes, must not panic, and must not allocate more than a small multiple of them
//! ([`Target::check`]). Where a checksum would stop most mutated inputs, a target also takes its input with repaired
//! checksums ([`seal`]). `fuzz/` has the programs of the fuzzer, one per target, and the corpus that they found;
//! `tests/corpus.rs` replays it on every run of the tests.

mod allocations;
mod memory_disk;
mod seal;
mod targets;

pub use allocations::Meter;

/// A group of decoders with one kind of input.
pub struct Target {
    /// Name of the fuzzer's program and of its directory in the corpus.
    pub name: &'static str,
    /// Decodes an input; returns how many bytes may be allocated at one time per byte of input.
    pub run: fn(&[u8]) -> usize,
    /// Bytes that may be allocated at one time in addition, whatever the input.
    pub base: usize,
}

pub const TARGETS: [Target; 9] = [
    Target { name: "transport", run: targets::transport::run, base: 64 << 10 },
    Target { name: "net", run: targets::net::run, base: 64 << 10 },
    Target { name: "redo", run: targets::redo::run, base: 16 << 10 },
    Target { name: "log_files", run: targets::log_files::run, base: 256 << 10 },
    Target { name: "instance_files", run: targets::instance_files::run, base: 64 << 10 },
    Target { name: "control_requests", run: targets::control_requests::run, base: 16 << 10 },
    Target { name: "marker", run: targets::marker::run, base: 16 << 10 },
    Target { name: "segment", run: targets::segment::run, base: 16 << 10 },
    Target { name: "http", run: targets::http::run, base: 32 << 10 },
];

impl Target {
    pub fn named(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Runs the target on an input.
    ///
    /// # Panics
    /// When a decoder panics, or has more memory allocated at one time than the input justifies.
    pub fn check(&self, data: &[u8]) {
        let meter = Meter::start();
        let factor = (self.run)(data);
        let (peak, allowed) = (meter.peak(), self.base + factor * data.len());
        assert!(
            peak <= allowed,
            "{}: {peak} bytes allocated for an input of {} bytes, {allowed} are allowed",
            self.name,
            data.len()
        );
    }
}
