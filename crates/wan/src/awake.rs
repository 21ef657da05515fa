//! Processors that do not fall asleep. A thread that waits on a sleeping processor is woken late: by some microseconds on
//! most machines, by many more on a virtual one, whose host wakes it. A packet that passes an emulated link wakes four
//! threads one after the other, and the sum would count as the link's.

use std::fs::File;
use std::io::{self, Write};

/// Where the kernel takes demands for short wake-ups, microseconds as a native number of 32 bits. A demand lasts as long
/// as the file is open.
const DEVICE: &str = "/dev/cpu_dma_latency";

/// Keeps all processors awake until it is dropped: they poll instead, and look busy to the host.
#[derive(Debug)]
pub struct Awake {
    _demand: File,
}

/// Root only, and where the kernel manages sleep. Without it the lateness tells how much it mattered.
pub fn keep_awake() -> io::Result<Awake> {
    let mut demand = File::options().write(true).open(DEVICE)?;
    demand.write_all(&0_i32.to_ne_bytes())?;
    Ok(Awake { _demand: demand })
}
