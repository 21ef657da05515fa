//! The stages of a standby on a simulated machine, stepped by one thread.

use crate::primary::PrimaryHost;
use crate::site::{Geometry, SegmentFile, StandbyStart, paths};
use crate::{Outcome, lock, trace};
use standfast_apply::Limits;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::{Control, DatabaseRecord, Incarnation, Role};
use standfast_log::{LogIdentity, LogSwitch};
use standfast_standby::applier::Applier;
use standfast_standby::received_log::ReceivedLog;
use standfast_standby::standby_archiver::archive_confirmed;
use standfast_testkit::SimMachine;
use standfast_transport::RedoSource;
use standfast_types::Scn;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// Iterations after which a log switch is blocked for good, because apply could not make room.
const ATTEMPTS_MAX: u32 = 8;

pub struct StandbyHost {
    pub environment: Arc<Environment>,
    received: Arc<Mutex<ReceivedLog>>,
    applier: Arc<Mutex<Option<Applier>>>,
}

/// Small limits, so that checkpoints, replays and partial transactions are common.
fn limits() -> Limits {
    Limits {
        image_bytes: 64 << 10,
        pending_bytes: 16 << 10,
        cache_kib: 64,
        checkpoint_frames: 40,
        reset_frames: 120,
        horizon_bytes: 8 << 10,
        ..Limits::default()
    }
}

/// Creates a standby on `machine` from copies of the databases of `primary`, which continues. Without power losses: an
/// unfinished standby would be created again from scratch.
pub fn create(
    machine: &Arc<SimMachine>,
    geometry: &Geometry,
    primary: &PrimaryHost,
    instance: u8,
) -> Outcome<()> {
    let source = &*primary.source;
    let mut start = source.durable();
    let mut databases = Vec::new();
    for info in source.databases().map_err(|error| error.to_string())? {
        let path = paths().databases.join(&info.name);
        let mut image = Vec::new();
        let mut keep = |_: u32, page: &[u8]| {
            image.extend_from_slice(page);
            Ok(())
        };
        let copied = source.snapshot(info.id, &mut keep).map_err(|error| error.to_string())?;
        machine.install(&path, &image);
        start = start.min(copied.scn);
        databases.push(DatabaseRecord {
            id: info.id,
            name: info.name,
            path,
            page_size: info.page_size,
            start_scn: copied.scn,
            redo_from: copied.scn,
            begun_empty: false,
        });
    }
    let crc = source.stream_crc(start).map_err(|error| error.to_string())?;
    let (Some(crc), Some(log)) = (crc, source.log_containing(start)) else {
        return Err(format!("the redo from {start} on is not there for a new standby"));
    };
    let identity = source.identity();
    let entered = standfast_transport::incarnation_of(&identity.incarnations, &log)
        .copied()
        .ok_or("the primary names no incarnation")?;
    let known = |one: &standfast_transport::Incarnation| Incarnation {
        number: one.number,
        id: one.id,
        branch: one.branch,
        time_us: 0,
    };
    let start = StandbyStart {
        instance,
        identity: LogIdentity {
            instance: identity.instance,
            incarnation: entered.number,
            incarnation_id: entered.id,
        },
        log: LogSwitch { sequence: log.sequence, first_scn: start, time_us: log.time_us, first_record: 0 },
        crc,
        incarnations: identity.incarnations.iter().map(known).collect(),
        databases,
    };
    geometry.init_standby(machine, &start)
}

pub fn role(machine: &Arc<SimMachine>) -> Outcome<Role> {
    let control = Control::load(&machine.disk(), &paths().control).map_err(|error| error.to_string())?;
    Ok(control.role)
}

impl StandbyHost {
    /// The last lines of its alert log.
    pub fn alerts(&self) -> String {
        self.environment.alert.last().join("\n    ")
    }

    /// Recovers and opens the standby on `machine`.
    pub fn open(
        machine: &Arc<SimMachine>,
        geometry: &Geometry,
        segment: &SegmentFile,
    ) -> Outcome<StandbyHost> {
        let text = |error: standfast_environment::InstanceError| error.to_string();
        let environment = geometry.environment(machine, segment)?;
        let mut received = ReceivedLog::open(&environment).map_err(text)?;
        let shared = received.shared().clone();
        let mut applier = Applier::open(&environment, &shared, limits()).map_err(text)?;
        applier.recover().map_err(text)?;
        let applier = Arc::new(Mutex::new(Some(applier)));
        let make_room = {
            let (environment, applier) = (environment.clone(), applier.clone());
            let attempts = Mutex::new((0, (Scn::ZERO, Scn::ZERO)));
            move || {
                let mut attempts = lock(&attempts);
                // While a gap is open nothing more counts as hardened, and logs are switched beyond it.
                let end = (shared.hardened(), shared.log.current_first());
                *attempts = if attempts.1 == end { (attempts.0 + 1, end) } else { (0, end) };
                let mut applier = lock(&applier);
                let archived = archive_confirmed(&environment, &shared).map_err(|error| error.to_string());
                let done = archived.and_then(|()| {
                    let applier = applier.as_mut().ok_or("no applier")?;
                    applier.step().map_err(|error| error.to_string())?;
                    if attempts.0 > 0 { applier.sync().map_err(|error| error.to_string()) } else { Ok(()) }
                });
                if done.is_err() || attempts.0 > ATTEMPTS_MAX {
                    trace::say(|| format!("no room in the standby log: {done:?}, attempt {}", attempts.0));
                    shared.stop();
                }
            }
        };
        received.when_full(Arc::new(make_room));
        let host = StandbyHost { environment, received: Arc::new(Mutex::new(received)), applier };
        host.check()?;
        Ok(host)
    }

    /// The log, as a receiver uses it.
    pub fn log(&self) -> MutexGuard<'_, ReceivedLog> {
        lock(&self.received)
    }

    /// Applies confirmed redo; returns false when there was none.
    pub fn apply(&self) -> Outcome<bool> {
        let progressed = self.with_applier(Applier::step)?;
        self.check()?;
        Ok(progressed)
    }

    /// Makes the applied redo durable and frees logs.
    pub fn sync(&self) -> Outcome<()> {
        self.with_applier(Applier::sync)?;
        self.check()
    }

    pub fn archive(&self) -> Outcome<()> {
        let shared = self.log().shared().clone();
        archive_confirmed(&self.environment, &shared).map_err(|error| error.to_string())
    }

    fn with_applier<T>(
        &self,
        work: impl FnOnce(&mut Applier) -> Result<T, standfast_environment::InstanceError>,
    ) -> Outcome<T> {
        let mut applier = lock(&self.applier);
        let applier = applier.as_mut().ok_or("the standby has been failed over")?;
        work(applier).map_err(|error| error.to_string())
    }

    /// Fails when a database is stopped.
    fn check(&self) -> Outcome<()> {
        let stopped = self.log().shared().stopped();
        if stopped.total == 0 { Ok(()) } else { Err(format!("apply: {stopped:?}")) }
    }

    /// Names and paths of the databases that it knows.
    pub fn databases(&self) -> Vec<(String, PathBuf)> {
        let databases = self.environment.control().databases;
        databases.into_iter().map(|record| (record.name, record.path)).collect()
    }

    /// Ends the standby, and returns what a failover begins with.
    pub fn into_parts(self) -> Outcome<(Arc<Environment>, Applier, Arc<Mutex<ReceivedLog>>)> {
        let applier = lock(&self.applier).take().ok_or("the standby has been failed over")?;
        Ok((self.environment.clone(), applier, self.received.clone()))
    }
}
