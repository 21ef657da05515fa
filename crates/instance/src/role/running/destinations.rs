//! The senders of a primary or a standby, and changes of their configuration.

use super::changeable::Changeable;
use super::{Running, RunningPrimary};
use standfast_documents::status::LocalDestination;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::{CONFIG_FILE, Config, DestinationConfig};
use standfast_environment::ship::destination_groups::Ships;
use standfast_environment::state::control::FencedBy;
use standfast_primary::commit::primary::PrimaryShared;
use standfast_primary::ship::destinations::{Destinations, FencedCall};
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_types::Scn;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Running {
    pub(super) fn start_destinations(
        &self,
        shared: &Arc<PrimaryShared>,
        source: &Arc<PrimarySource>,
        before: Option<&Destinations>,
    ) -> Result<Arc<Destinations>, InstanceError> {
        let me = self.me.clone();
        let fenced: FencedCall = Arc::new(move |why: String, by: FencedBy| {
            let me = me.clone();
            // Not on the sender's own thread, which the role change ends.
            let _ = std::thread::Builder::new().name("fence".into()).spawn(move || {
                if let Some(running) = me.upgrade() {
                    running.fence(&why, by);
                }
            });
        });
        Destinations::start(&self.environment, shared, source, &self.configured(), before, &fenced)
    }

    /// Changes the configured destinations, durably and immediately: the file first, then the senders.
    ///
    /// # Errors
    /// When the configuration is invalid with the change, or cannot be written. Nothing is changed then.
    pub(crate) fn change_destinations(
        &self,
        change: impl FnOnce(&mut Vec<DestinationConfig>) -> Result<(), InstanceError>,
    ) -> Result<(), InstanceError> {
        let _one = self.one_command();
        self.set_destinations(change)
    }

    /// Does the work of [`Running::change_destinations`] for a command that is being carried out.
    pub(crate) fn set_destinations(
        &self,
        change: impl FnOnce(&mut Vec<DestinationConfig>) -> Result<(), InstanceError>,
    ) -> Result<(), InstanceError> {
        self.change_settings(|changeable| change(&mut changeable.destinations))
    }

    pub(crate) fn change_settings(
        &self,
        change: impl FnOnce(&mut Changeable) -> Result<(), InstanceError>,
    ) -> Result<(), InstanceError> {
        let before = self.changeable();
        let mut changeable = before.clone();
        change(&mut changeable)?;
        if changeable == before {
            return Ok(());
        }
        crate::role::protection::check(self.environment.control().protection_mode, &changeable.destinations)?;
        let required = self.environment.of_control(|control| control.required.members.clone());
        crate::role::protection::check_required(&required, &changeable.destinations)?;
        crate::role::protection::check_observer(&before.role_change, &changeable.role_change)?;
        // Other settings may have been changed in the file, to count from the next start.
        let directory = &self.environment.paths.directory;
        let mut config = Config::load(directory).unwrap_or_else(|_| self.environment.config.clone());
        (config.destinations, config.role_change) = (changeable.destinations, changeable.role_change);
        let path = self.environment.paths.directory.join(CONFIG_FILE);
        let config = Config::parse(&config.to_toml(), &path)?;
        config
            .store(self.environment.disk.as_ref(), &self.environment.paths.directory)
            .map_err(InstanceError::io("write the configuration", &path))?;
        let names: BTreeSet<String> = config.destinations.iter().map(|at| at.name.clone()).collect();
        *self.configured.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            Changeable { destinations: config.destinations, role_change: config.role_change };
        // A destination that is configured again later counts as new.
        self.environment.update_control(|control| {
            if let Some(synchronised) = &mut control.synchronised {
                synchronised.retain(|name| names.contains(name));
            }
        })?;
        if let Some(primary) = self.primary() {
            self.restart_destinations(&primary)?;
            self.share_configuration();
        }
        self.forwarding().map_or(Ok(()), |forwarding| forwarding.configure(&self.configured()))
    }

    pub(crate) fn reapply_destinations(&self) -> Result<(), InstanceError> {
        let _one = self.one_command();
        if let Some(primary) = self.primary() {
            self.restart_destinations(&primary)?;
        }
        self.forwarding().map_or(Ok(()), |forwarding| forwarding.configure(&self.configured()))
    }

    /// The senders, if there are any.
    pub(crate) fn ships(&self) -> Option<Arc<dyn Ships>> {
        if let Some(primary) = self.primary() {
            return Some(primary.destinations());
        }
        self.forwarding().map(|forwarding| forwarding as Arc<dyn Ships>)
    }

    fn restart_destinations(&self, primary: &RunningPrimary) -> Result<(), InstanceError> {
        let shared = primary.threads.shared().clone();
        let before = primary.destinations();
        // The new senders take effect before the old ones end, so that no commit escapes both.
        let fresh = self.start_destinations(&shared, &primary.source, Some(&*before))?;
        shared.ship_through(fresh.clone());
        let mut destinations = primary.destinations.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *destinations = fresh.clone();
        drop(destinations);
        fresh.let_others_go(&before);
        before.stop_without(&fresh);
        Ok(())
    }

    pub(crate) fn note_local(&self, local: Vec<LocalDestination>) {
        *self.local.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = local;
    }

    pub fn local_destinations(&self) -> Vec<LocalDestination> {
        self.local.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// How far each destination of this primary has redo on disk, by name.
    pub(crate) fn hardened_at_destinations(&self) -> Vec<(String, Scn)> {
        let Some(primary) = self.primary() else { return Vec::new() };
        let status = primary.destinations().status();
        status.into_iter().map(|(status, _)| (status.name, status.hardened)).collect()
    }
}
