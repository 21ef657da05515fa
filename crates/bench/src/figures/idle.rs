//! What an instance costs that has nothing to do.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::process::Scratch;
use crate::systems::Instance;
use crate::workload::create_databases;
use crate::{BenchError, Context, Result, interrupt, processes};

/// Protected databases.
const DATABASES: usize = 10;
/// Time after which start-up work is over.
const SETTLE: Duration = Duration::from_secs(3);
/// Measured time.
const MEASURE: Duration = Duration::from_secs(10);

/// An idle instance.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct IdleResult {
    /// Protected databases.
    pub databases: usize,
    /// Measured time.
    pub seconds: f64,
    /// Processor time over that time; 100 is one processor.
    pub cpu_percent: f64,
    /// Resident memory.
    pub resident_bytes: u64,
}

/// Starts an instance, protects databases, leaves it alone.
pub(super) fn idle(context: &Context) -> Result<IdleResult> {
    eprintln!("idle instance, {DATABASES} databases, {} s", MEASURE.as_secs());
    let scratch = Scratch::new(&context.base)?;
    let databases = create_databases(scratch.path(), DATABASES)?;
    let instance = Instance::start(context, &scratch, "idle")?;
    instance.protect(&databases)?;
    interrupt::pause(SETTLE)?;
    let group = instance.group("instance");
    let (start, before) = (Instant::now(), group.usage());
    interrupt::pause(MEASURE)?;
    let (seconds, after) = (start.elapsed().as_secs_f64(), group.usage());
    let resident_bytes = processes::resident_bytes(instance.pid())
        .ok_or_else(|| BenchError::Workload("the idle instance ended by itself".into()))?;
    instance.stop()?;
    let cpu_percent = (after.cpu_us - before.cpu_us) / 1e6 / seconds * 100.0;
    Ok(IdleResult { databases: DATABASES, seconds, cpu_percent, resident_bytes })
}
