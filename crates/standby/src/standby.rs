//! A standby: the receiver's log, and the threads that apply and archive its redo.

use crate::applier::Applier;
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
    apply: Option<JoinHandle<Result<Applier, InstanceError>>>,
    archiver: Option<JoinHandle<()>>,
    archive: std::sync::mpsc::Sender<bool>,
    questions: Option<(Segment, JoinHandle<()>)>,
}

/// Longest sleep of the thread that passes questions of sessions on; a stop wakes it.
const QUESTIONS_LOOK: Duration = Duration::from_secs(10);

impl Standby {
    /// Opens the standby log and the databases and starts apply. Returns the log for the receiver.
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
        let apply = {
            let (environment, shared) = (environment.clone(), shared.clone());
            let applier = Applier::open(&environment, &shared, Limits::default())?;
            let run = move || {
                environment.instruments.enter_thread("mrp0");
                run_apply(&environment, &shared, applier)
            };
            Builder::new().name("mrp0".into()).spawn(run)
        };
        let apply = apply.map_err(InstanceError::io(
            "begin the thread that applies redo in",
            &environment.paths.directory,
        ))?;
        let questions = match environment.standby_segment() {
            Some(segment) => Some((segment, pass_questions_on(environment, &shared, segment)?)),
            None => None,
        };
        let order = archive.clone();
        let _ = archive.send(true);
        received.when_full(Arc::new(move || {
            let _ = order.send(true);
        }));
        let (apply, archiver) = (Some(apply), Some(archiver));
        Ok((Standby { shared, apply, archiver, archive, questions }, received))
    }

    pub fn shared(&self) -> &Arc<StandbyShared> {
        &self.shared
    }

    /// Ends apply and archiving; returns the applier, for a failover.
    ///
    /// # Errors
    /// The error that ended apply.
    pub fn stop(mut self) -> Result<Applier, InstanceError> {
        self.shared.stop();
        let _ = self.archive.send(false);
        if let Some((segment, thread)) = self.questions.take() {
            segment.stop_questions();
            let _ = thread.join();
        }
        if let Some(archiver) = self.archiver.take() {
            let _ = archiver.join();
        }
        match self.apply.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(InstanceError::Failed("the apply thread has ended abnormally".into())),
        }
    }
}

/// Starts the thread that asks the source how current the data are, whenever a session wants to know.
fn pass_questions_on(
    environment: &Arc<Environment>,
    shared: &Arc<StandbyShared>,
    segment: Segment,
) -> Result<JoinHandle<()>, InstanceError> {
    let (environment_of_thread, shared) = (environment.clone(), shared.clone());
    let run = move || {
        environment_of_thread.instruments.enter_thread("ask0");
        // What was asked before has waited for longer than sessions wait.
        let mut seen = segment.questions();
        while !shared.is_stopping() {
            let asked = segment.await_question(seen, QUESTIONS_LOOK);
            if std::mem::replace(&mut seen, asked) != asked {
                shared.ask_how_current(None);
            }
        }
    };
    let spawned = Builder::new().name("ask0".into()).spawn(run);
    spawned.map_err(InstanceError::io(
        "begin the thread that finds out how current the data are in",
        &environment.paths.directory,
    ))
}
