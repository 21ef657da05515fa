//! Channels between the log writer of a primary and its other threads, and the log writer's helper.

use crate::checkpoint::checkpointer::Remainder;
use crate::commit::baseline::{BaselineJob, note_owed_image};
use crate::commit::database::Database;
use crate::commit::primary::{PrimaryShared, SwitchHelper};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_log::{LogSwitch, SwitchBlocked};
use standfast_sqlite_wal::capture::CaptureError;
use standfast_types::{Hint, Scn, hint};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How long an attempt to begin a full resync waits for a writer; then the pause after a failed attempt.
const COPY_ATTEMPT: Duration = Duration::from_secs(5);
const COPY_RETRY: Duration = Duration::from_secs(1);
/// How long a waiting log switch may continue when the instance stops.
const SWITCH_GRACE: Duration = Duration::from_secs(2);

pub enum CheckpointOrder {
    /// The log was switched: recovery may start here once all databases are synced.
    Candidate(Scn),
    /// Backfill everything into the databases and advance the checkpoint position to the end; answered when done.
    Everything(Scn, Sender<Result<Vec<Remainder>, InstanceError>>),
    WakeUp,
    Stop,
}

pub(super) enum ArchiveOrder {
    Archive,
    Stop,
}

/// Channels and flags of the threads, made before the primary is opened.
pub struct Wiring {
    pub(super) checkpoints: (Sender<CheckpointOrder>, Receiver<CheckpointOrder>),
    pub(super) archives: (Sender<ArchiveOrder>, Receiver<ArchiveOrder>),
    pub(super) stop: Arc<AtomicBool>,
    /// When the clean stop of the instance began.
    pub(super) stop_begun: Arc<OnceLock<Instant>>,
}

impl Default for Wiring {
    fn default() -> Self {
        Wiring {
            checkpoints: channel(),
            archives: channel(),
            stop: Arc::default(),
            stop_begun: Arc::default(),
        }
    }
}

impl Wiring {
    /// Returns a helper that cannot resync databases.
    pub fn helper(&self, environment: &Arc<Environment>) -> Box<dyn SwitchHelper> {
        self.helper_of(environment, None)
    }

    /// Returns a helper; with `shared` it can begin full resyncs.
    pub(super) fn helper_of(
        &self,
        environment: &Arc<Environment>,
        shared: Option<Arc<PrimaryShared>>,
    ) -> Box<dyn SwitchHelper> {
        Box::new(Helper {
            environment: environment.clone(),
            checkpoints: self.checkpoints.0.clone(),
            archives: self.archives.0.clone(),
            stop: self.stop.clone(),
            stop_begun: self.stop_begun.clone(),
            shared,
            reported: false,
        })
    }
}

struct Helper {
    environment: Arc<Environment>,
    checkpoints: Sender<CheckpointOrder>,
    archives: Sender<ArchiveOrder>,
    stop: Arc<AtomicBool>,
    stop_begun: Arc<OnceLock<Instant>>,
    /// `None` before the primary is open.
    shared: Option<Arc<PrimaryShared>>,
    reported: bool,
}

impl SwitchHelper for Helper {
    fn blocked(&mut self, why: SwitchBlocked) -> Result<(), InstanceError> {
        // While the instance is being opened no thread takes signals.
        if self.stop_begun.get().is_none() && termination_pending() {
            let _ = self.stop_begun.set(Instant::now());
        }
        let patient = self.stop_begun.get().is_none_or(|begun| begun.elapsed() < SWITCH_GRACE);
        if self.stop.load(SeqCst) || !patient {
            return Err(InstanceError::StoppedWaiting { why: format!("{why:?}") });
        }
        if !self.reported {
            self.reported = true;
            self.environment
                .alert
                .say(format!("log switch waits: {why:?}; commits are held up until it is done"));
        }
        let _ = self.archives.send(ArchiveOrder::Archive);
        let _ = self.checkpoints.send(CheckpointOrder::WakeUp);
        std::thread::park_timeout(Duration::from_millis(2));
        Ok(())
    }

    fn switched(&mut self, switch: &LogSwitch) {
        self.reported = false;
        let _ = self.archives.send(ArchiveOrder::Archive);
        self.environment
            .alert
            .say(format!("log switch to sequence {} at SCN {}", switch.sequence, switch.first_scn));
    }

    fn checkpoint_candidate(&mut self, candidate: Scn) {
        let _ = self.checkpoints.send(CheckpointOrder::Candidate(candidate));
    }

    fn resynchronise(&mut self, database: Arc<Database>, why: String) {
        let name = database.record().name.clone();
        self.environment.alert.say(format!("database {name} will get a full image in the redo: {why}"));
        let shared = self.shared.clone();
        let environment = self.environment.clone();
        // A helper made before the primary is open has no databases to serve.
        let Some(shared) = shared else { return };
        shared.await_copy(&database, true);
        let begin = move || begin_copy(&environment, &shared, &database);
        if let Err(error) = Builder::new().name("baseline".into()).spawn(begin) {
            self.environment.alert.say(hint::in_one_line(
                format_args!(
                    "database {name} cannot be copied, its commits wait: no thread can be started: {error}"
                ),
                Some("restart the instance with room for more threads"),
            ));
        }
    }

    fn resynchronised(&mut self, database: &Arc<Database>) {
        database.set_image_may_lack(false);
        self.environment
            .alert
            .say(format!("database {}: the full resync is in the redo", database.record().name));
    }
}

/// Fixes the state to copy and passes the job to the log writer. Commits of the database wait meanwhile, so this is
/// retried until it succeeds or is no longer needed.
fn begin_copy(environment: &Environment, shared: &PrimaryShared, database: &Arc<Database>) {
    let name = &database.record().name;
    let mut stated = String::new();
    let needed = || {
        let served = shared.database(database.id()).is_some_and(|served| Arc::ptr_eq(&served, database));
        served && !shared.ended() && database.failure().is_none()
    };
    while needed() {
        match BaselineJob::begin_within(database, COPY_ATTEMPT) {
            Ok(job) => {
                let captured = shared.buffer.captured();
                if let Err(error) = note_owed_image(environment, database, job.position(), captured) {
                    environment.alert.say(error.in_one_line());
                }
                if !stated.is_empty() {
                    environment.alert.say(format!("database {name}: the full resync begins"));
                }
                shared.command(Box::new(move |primary| {
                    primary.start_baseline(job);
                    Ok(())
                }));
                break;
            }
            Err(InstanceError::Capture(error @ CaptureError::BadIndex { .. })) => {
                database.fail(format!("it cannot be copied: {}", error.as_a_reason()));
            }
            Err(error) => {
                let error = error.in_one_line();
                if stated != error {
                    environment.alert.say(format!(
                        "the full resync of database {name} cannot begin and will be tried again; its commits wait: {error}"
                    ));
                    stated = error;
                }
                // Nothing reports when the obstacle is gone.
                std::thread::sleep(COPY_RETRY);
            }
        }
    }
    shared.await_copy(database, false);
}

/// Whether a signal to terminate is pending that no thread has taken.
fn termination_pending() -> bool {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigpending initialises the set, and only then is it read.
    unsafe {
        libc::sigpending(set.as_mut_ptr()) == 0
            && [libc::SIGTERM, libc::SIGINT]
                .iter()
                .any(|signal| libc::sigismember(set.as_ptr(), *signal) == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_pending_termination_signal_is_detected() {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is initialised first; the signal is blocked in this thread and sent to it alone.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            assert!(!termination_pending());
            libc::pthread_kill(libc::pthread_self(), libc::SIGTERM);
            assert!(termination_pending());
            let mut signal = 0;
            libc::sigwait(set.as_ptr(), &mut signal);
            assert_eq!((signal, termination_pending()), (libc::SIGTERM, false));
        }
    }
}
