//! Threads that watch a running instance and do its periodic work.

use crate::observe::mmnl;
use crate::observe::snapshots::{self, Snapshots};
use crate::observe::watchers::Watchers;
use crate::role::fast_start;
use crate::role::group_watch::GroupWatch;
use crate::role::local_archive::{Archiving, LocalArchives};
use crate::role::running::{Mode, Running};
use standfast_environment::context::kept;
use standfast_log::RedoLog;
use standfast_transport::protection::{ProtectionLevel, StallWatch, level};
use standfast_types::Hint;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// Monitor threads. TMON reports changes of the protection level, chooses among the destinations of groups, and stops a
/// primary that no destination can protect any more; ARCL feeds local destinations; MMON takes snapshots and runs
/// scheduled verifications; MMNL samples metrics.
pub struct Monitors {
    _threads: Watchers,
}

impl Monitors {
    /// Starts the threads for an instance.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(running: &Weak<Running>, snapshots: &Arc<Snapshots>) -> std::io::Result<Monitors> {
        let mut threads = Watchers::default();
        let mut watch = Watch::default();
        threads.spawn("tmon", EVERY, running, move |running| watch.look(running))?;
        let mut local = LocalArchives::default();
        threads.spawn("arcl", EVERY, running, move |running| {
            running.take_local_retries().iter().for_each(|name| local.enable(name));
            archive_locally(&mut local, running);
        })?;
        let (mut due, snapshots) = (snapshots::Monitor::default(), snapshots.clone());
        threads.spawn("mmon", EVERY, running, move |running| {
            due.look(&snapshots, running);
            running.verification().look(running);
            kept::look(&running.environment);
        })?;
        let mut fast_start = fast_start::Look::begin();
        threads.spawn_paced("fsfp", Duration::ZERO, running, move |running| fast_start.look(running))?;
        threads.spawn("mmnl", mmnl::EVERY, running, mmnl::look)?;
        Ok(Monitors { _threads: threads })
    }
}

/// Copies archived logs to local destinations.
fn archive_locally(local: &mut LocalArchives, running: &Running) {
    let Some((log, is_primary)) = archived_log(running) else { return };
    let status = local.look(&Archiving {
        environment: &running.environment,
        configured: &running.configured(),
        log: &log,
        is_primary,
        hardened: &running.hardened_at_destinations(),
        stopping: &|| running.is_stopping(),
    });
    running.note_local(status);
}

/// Returns the log whose archived files are copied, and whether it is a primary's.
fn archived_log(running: &Running) -> Option<(Arc<RedoLog>, bool)> {
    if let Some(primary) = running.primary() {
        return Some((primary.source.redo_log().clone(), true));
    }
    match &*running.mode() {
        Mode::Standby(standby) => Some((standby.standby.shared().log.clone(), false)),
        _ => None,
    }
}

struct Watch {
    began: Instant,
    level: Option<ProtectionLevel>,
    stall: StallWatch,
    groups: GroupWatch,
    reported: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            began: Instant::now(),
            level: None,
            stall: StallWatch::default(),
            groups: GroupWatch::default(),
            reported: false,
        }
    }
}

impl Watch {
    fn look(&mut self, running: &Running) {
        match self.groups.look(running) {
            Ok(()) => self.reported = false,
            Err(error) if !self.reported => {
                self.reported = true;
                running
                    .environment
                    .alert
                    .say(format!("another destination of a group cannot begin: {}", error.in_one_line()));
            }
            Err(_) => {}
        }
        let members = running.primary().map(|primary| primary.destinations().members());
        let mode = running.environment.of_control(|control| control.protection_mode);
        let now = members.as_ref().map(|members| level(mode, members));
        if let Some(now) = now
            && self.level != Some(now)
        {
            // Also at the first check, when the previous level is unknown.
            let was = self.level.map(|before| format!(" (was {})", before.words())).unwrap_or_default();
            running.environment.alert.say(format!("protection level: {}{was}", now.words()));
        }
        self.level = now;
        let members = members.unwrap_or_default();
        let stop_after = Duration::from_secs(running.environment.config.protection.stop_after_s);
        if self.stall.must_stop(self.began.elapsed(), mode, &members, stop_after) {
            running.stop_for_protection();
        }
    }
}
