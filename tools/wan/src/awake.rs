//! Keeps processors out of idle states. A thread that waits on a sleeping processor wakes late: by some microseconds on
//! most machines, by many more on a virtual one, whose host has to wake it. A packet on an emulated link wakes four
//! threads in sequence, and the sum would count as delay of the link.

use std::fs::File;
use std::io::{self, Write};

/// The kernel's interface for the maximum wake-up latency, microseconds as a native 32-bit number. A request lasts as
/// long as the file is open.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// Keeps all processors awake until dropped: they poll, and look busy to the host.
#[derive(Debug)]
pub struct Awake {
    _demand: File,
}

/// Needs root, and a kernel that manages idle states. Without it, the lateness shows the effect.
pub fn keep_awake() -> io::Result<Awake> {
    let mut demand = File::options().write(true).open(DEVICE)?;
    demand.write_all(&0_i32.to_ne_bytes())?;
    Ok(Awake { _demand: demand })
}
