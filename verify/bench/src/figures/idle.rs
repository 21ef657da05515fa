//! Cost of an idle instance.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::process::Scratch;
use crate::systems::Instance;
use crate::workload::create_databases;
use crate::{BenchError, Context, Result, interrupt, processes};

const DATABASES: usize = 10;
/// Time after which start-up work is done.
const SETTLE: Duration = Duration::from_secs(3);
const MEASURE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct IdleResult {
    pub databases: usize,
    pub seconds: f64,
    /// Processor time as a share of the measured time; 100 is one processor.
    pub cpu_percent: f64,
    pub resident_bytes: u64,
}

/// Starts an instance, protects databases, and leaves it idle.
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
