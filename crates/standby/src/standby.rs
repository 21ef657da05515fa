//! A standby: the receiver's log, and the threads that apply and archive its redo.

use crate::applier::{Applier, STANDBY_DATABASES};
use crate::apply_thread::run_apply;
use crate::received_log::ReceivedLog;
use crate::standby_archiver::run_archiver;
use crate::standby_shared::StandbyShared;
use standfast_apply::Limits;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_session::Segment;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

pub struct Standby {
    shared: Arc<StandbyShared>,
    /// `None`: a snapshot standby.
    apply: Option<ApplyThread>,
    archiver: Option<JoinHandle<()>>,
    archive: std::sync::mpsc::Sender<bool>,
    questions: Option<Segment>,
}

/// Longest sleep of the thread that passes questions of sessions on; a stop wakes it.
const QUESTIONS_LOOK: Duration = Duration::from_secs(1);
/// Pause after a question, which limits the requests that sessions can cause.
const QUESTIONS_APART: Duration = Duration::from_millis(1);

impl Standby {
    /// Opens the standby log and the databases and starts apply, unless this is a snapshot standby. Returns the log for the
    /// receiver.
    ///
    /// # Errors
    /// When the log or the apply journal cannot be opened.
    pub fn start(environment: &Arc<Environment>) -> Result<(Standby, ReceivedLog), InstanceError> {
        let mut received = ReceivedLog::open(environment)?;
        let shared = received.shared().clone();
        let (archive, orders) = std::sync::mpsc::channel();
        let archiver = {
            let (environment, shared) = (environment.clone(), shared.clone());
            let run = move || {
                environment.instruments.enter_thread("arc0");
                run_archiver(&environment, &shared, &orders);
            };
            Builder::new().name("arc0".into()).spawn(run)
        };
        let archiver = archiver
            .map_err(InstanceError::io("begin the thread that archives in", &environment.paths.directory))?;
        let snapshot = environment.of_control(|control| control.snapshot.clone());
        let apply = match &snapshot {
            Some(snapshot) => {
                shared.rest_as_snapshot(snapshot);
                // What apply has had open is not at these paths.
                environment.places.register(STANDBY_DATABASES, Vec::new(), Arc::new(|_| {}));
                None
            }
            None => Some(start_apply(environment, &shared)?),
        };
        // Without apply no data get more current.
        let questions = match environment.standby_segment().filter(|_| apply.is_some()) {
            Some(segment) => Some(pass_questions_on(environment, &shared, segment)?),
            None => None,
        };
        let order = archive.clone();
        let _ = archive.send(true);
        received.when_full(Arc::new(move || {
            let _ = order.send(true);
        }));
        Ok((Standby { shared, apply, archiver: Some(archiver), archive, questions }, received))
    }

    pub fn shared(&self) -> &Arc<StandbyShared> {
        &self.shared
    }

    /// Ends apply and archiving; returns the applier, for a failover, unless this is a snapshot standby.
    ///
    /// # Errors
    /// The error that ended apply.
    pub fn stop(mut self) -> Result<Option<Applier>, InstanceError> {
        self.shared.stop();
        let _ = self.archive.send(false);
        // Not waited for: a process may have swallowed the wake-up.
        if let Some(segment) = self.questions.take() {
            segment.stop_questions();
        }
        if let Some(archiver) = self.archiver.take() {
            let _ = archiver.join();
        }
        match self.apply.take().map(JoinHandle::join) {
            None => Ok(None),
            Some(Ok(result)) => result.map(Some),
            Some(Err(_)) => Err(InstanceError::Failed("the apply thread has ended abnormally".into())),
        }
    }
}

type ApplyThread = JoinHandle<Result<Applier, InstanceError>>;

fn start_apply(
    environment: &Arc<Environment>,
    shared: &Arc<StandbyShared>,
) -> Result<ApplyThread, InstanceError> {
    let (environment_of_thread, shared) = (environment.clone(), shared.clone());
    let applier = Applier::open(environment, &shared, Limits::default())?;
    let run = move || {
        environment_of_thread.instruments.enter_thread("mrp0");
        run_apply(&environment_of_thread, &shared, applier)
    };
    let spawned = Builder::new().name("mrp0".into()).spawn(run);
    spawned.map_err(InstanceError::io("begin the thread that applies redo in", &environment.paths.directory))
}

/// Starts the thread that asks the source how current the data are, whenever a session wants to know.
fn pass_questions_on(
    environment: &Arc<Environment>,
    shared: &Arc<StandbyShared>,
    segment: Segment,
) -> Result<Segment, InstanceError> {
    let (instruments, shared) = (environment.instruments.clone(), Arc::downgrade(shared));
    let run = move || {
        instruments.enter_thread("ask0");
        // What was asked before has waited for longer than sessions wait.
        let mut seen = segment.questions();
        loop {
            let asked = segment.await_question(seen, QUESTIONS_LOOK);
            let Some(shared) = shared.upgrade().filter(|shared| !shared.is_stopping()) else { return };
            if std::mem::replace(&mut seen, asked) != asked {
                shared.ask_how_current(None);
                std::thread::park_timeout(QUESTIONS_APART);
            }
        }
    };
    let spawned = Builder::new().name("ask0".into()).spawn(run);
    spawned.map(|_| segment).map_err(InstanceError::io(
        "begin the thread that finds out how current the data are in",
        &environment.paths.directory,
    ))
}
