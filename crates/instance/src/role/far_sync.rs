//! A far sync: an instance without databases, near its primary, that receives redo synchronously and forwards it to
//! standbys that are too far away for that. It has a standby redo log, an archiver and senders, and no apply.
//!
//! Only its destinations need its redo: archived logs are kept within `archive_bytes_max`, and standby redo logs are
//! reused once they are archived.

use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::context::environment::Environment;
use standfast_standby::forwarding::{Forwarding, SupersededCall};
use standfast_standby::received_log::{LentLog, ReceivedLog};
use standfast_standby::standby_archiver::run_archiver;
use standfast_standby::standby_shared::StandbyShared;
use standfast_transport::StandbyLog;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

pub struct FarSync {
    shared: Arc<StandbyShared>,
    received: Arc<Mutex<ReceivedLog>>,
    archiver: Option<JoinHandle<()>>,
    orders: Sender<bool>,
    pub forwarding: Arc<Forwarding>,
}

impl FarSync {
    /// Opens the standby redo log and starts to forward. Returns the log for the receiver.
    ///
    /// # Errors
    /// When the log cannot be opened or a thread cannot be started.
    pub fn start(
        environment: &Arc<Environment>,
        configured: &[DestinationConfig],
        superseded: SupersededCall,
    ) -> Result<(FarSync, Box<dyn StandbyLog>), InstanceError> {
        let mut received = ReceivedLog::open(environment)?;
        let shared = received.shared().clone();
        let (orders, taken) = channel();
        let archiver = {
            let (environment, shared) = (environment.clone(), shared.clone());
            let run = move || run_archiver(&environment, &shared, &taken);
            Builder::new().name("arc0".into()).spawn(run)
        };
        let archiver = archiver
            .map_err(InstanceError::io("begin the thread that archives in", &environment.paths.directory))?;
        let order = orders.clone();
        let _ = orders.send(true);
        received.when_full(Arc::new(move || {
            let _ = order.send(true);
        }));
        let forwarding = Forwarding::start(environment, &shared, configured, superseded)?;
        let received = Arc::new(Mutex::new(received));
        let log: Box<dyn StandbyLog> = Box::new(LentLog(received.clone()));
        Ok((FarSync { shared, received, archiver: Some(archiver), orders, forwarding }, log))
    }

    pub fn shared(&self) -> &Arc<StandbyShared> {
        &self.shared
    }

    /// The log that the receiver fills.
    pub(crate) fn received(&self) -> &Arc<Mutex<ReceivedLog>> {
        &self.received
    }

    /// Ends all threads. Call it once the receiver has released the log.
    pub fn stop(mut self) {
        self.forwarding.stop();
        self.shared.stop();
        let _ = self.orders.send(false);
        if let Some(archiver) = self.archiver.take() {
            // The runtime has already reported a panic of that thread.
            let _ = archiver.join();
        }
    }
}

/// Returns the refusal of a request that needs databases, at a far sync.
pub fn has_no_databases() -> InstanceError {
    InstanceError::refused(
        "this instance is a far sync: it forwards redo and has no databases",
        "ask the primary; to take over, run `standfast failover` at a standby that it feeds",
    )
}
