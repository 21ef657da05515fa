//! The standby's side of a switchover (see [`crate::role::switchover`]): whether it can take over, and what it takes over.

use crate::role::running::{Mode, Running};
use standfast_environment::config::address::completed;
use standfast_environment::config::destination_config::{TransportMode as Configured, ValidFor};
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::config::shared_configuration::SharedConfiguration;
use standfast_environment::state::control::Upstream;
use standfast_environment::state::descriptors;
use standfast_format::LogKind;
use standfast_transport::protection::ProtectionMode;
use standfast_transport::{
    LogGeometry, NewStandby, PositionSum, Refusal, RefuseCode, StandbyLog, TakeOver, TakeOverAnswer,
    TransportMode,
};
use standfast_types::Hint;
use std::net::SocketAddr;

impl Running {
    /// Takes over from the primary that this standby follows, or says whether it is ready to.
    ///
    /// # Errors
    /// Why not; this instance is still a standby then.
    pub(crate) fn take_over_from(
        &self,
        wish: &TakeOver,
        from: Option<SocketAddr>,
    ) -> Result<TakeOverAnswer, Refusal> {
        let refused = |error: InstanceError| Refusal::new(RefuseCode::NotStandby, error.in_one_line());
        self.may_take_over_from(wish)?;
        let shared =
            SharedConfiguration::received(wish.configuration.clone(), &wish.source, from).map_err(|why| {
                Refusal::new(RefuseCode::NotStandby, format!("the shared configuration: {why}"))
            })?;
        let mut answer = TakeOverAnswer { branch: None, logs: Some(self.online_logs()), failed: None };
        let Some(end) = wish.end else { return Ok(answer) };
        self.has_everything(end)?;
        self.continue_after(&shared, wish.protection_mode).map_err(refused)?;
        match self.promote(false, true) {
            Ok(done) => answer.branch = Some(done.branch),
            Err(error) if matches!(*self.mode(), Mode::Standby(_)) => return Err(refused(error)),
            // It may be a primary after a restart: the other one must not take the role back.
            Err(error) => answer.failed = Some(error.in_one_line()),
        }
        Ok(answer)
    }

    /// The online logs that this standby begins as primary.
    fn online_logs(&self) -> LogGeometry {
        let log = self.environment.log_config(LogKind::Online);
        let groups = log.layout().groups;
        let group_bytes = groups.values().max().copied().unwrap_or(0);
        LogGeometry { groups: groups.len(), group_bytes, block_bytes: log.block_bytes }
    }

    fn may_take_over_from(&self, wish: &TakeOver) -> Result<(), Refusal> {
        let environment = &self.environment;
        let refused = |text: String| Err(Refusal::new(RefuseCode::NotStandby, text));
        let upstream = environment.control().upstream;
        let is_from = |at: Upstream| at.instance == wish.source.instance && at.name == wish.source.name;
        if !upstream.is_some_and(is_from) {
            return refused(format!("this standby gets no redo from `{}`", wish.source.name));
        }
        self.check_right()
            .and_then(|()| descriptors::check_failover(environment.control().databases.len()))
            .map_err(|error| Refusal::new(RefuseCode::NotAllowed, error.in_one_line()))?;
        if self.gap().is_some() {
            return refused("archived logs of a gap are still missing".into());
        }
        match &*self.mode() {
            Mode::Standby(standby) => match standby.standby.shared().stopped().databases.first() {
                Some(stopped) => refused(format!(
                    "redo is not applied to database {}: {}",
                    stopped.database, stopped.reason
                )),
                None => Ok(()),
            },
            _ => refused("this instance is not open as a standby".into()),
        }
    }

    /// Checks that the redo here ends where that of the primary does.
    fn has_everything(&self, end: PositionSum) -> Result<(), Refusal> {
        let failed = |text: String| Refusal::new(RefuseCode::Behind, text);
        let mode = self.mode();
        let Mode::Standby(standby) = &*mode else {
            return Err(failed("this instance is not open as a standby".into()));
        };
        let received = standby.received().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let here = received.received_end();
        let known = received.stream_crc(here).map_err(|error| failed(error.to_string()))?;
        if here == end.scn && end.matches(known) {
            return Ok(());
        }
        Err(failed(format!("the redo here ends at SCN {here}, or is another one than up to SCN {}", end.scn)))
    }

    /// Ships redo to an instance that was reinstated as a standby of this primary. A destination that is configured keeps
    /// its attributes.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub(crate) fn ship_to(&self, standby: &NewStandby, from: Option<SocketAddr>) -> Result<(), Refusal> {
        let refused = |error: InstanceError| Refusal::new(RefuseCode::Source, error.in_one_line());
        if self.open_primary().is_err() {
            return Err(Refusal::new(RefuseCode::Source, "this instance is not a primary that is open"));
        }
        let standby = at_its_address(standby, from).map_err(refused)?;
        let added = self.change_destinations(|configured| {
            configure(configured, &standby);
            Ok(())
        });
        added.map_err(refused)?;
        self.environment.alert.say(format!("redo is shipped to `{}`, which was reinstated", standby.name));
        Ok(())
    }

    /// Configures what the new primary ships to: the old one and the bystanders, each as before. Commits wait for the
    /// synchronous ones from the start, and for no other: what was synchronised with this instance in an earlier time as
    /// the primary does not count.
    fn continue_after(
        &self,
        shared: &SharedConfiguration,
        protection_mode: ProtectionMode,
    ) -> Result<(), InstanceError> {
        let _one = self.one_command();
        // The destinations are checked against it.
        self.environment.update_control(|control| control.protection_mode = protection_mode)?;
        let own = &self.environment.config.instance.name;
        self.change_settings(|changeable| {
            self.continue_configuration(shared, changeable);
            if shared.return_to(own, &mut changeable.destinations) {
                return Ok(());
            }
            let what = format!("redo cannot be shipped to `{}`: its address is not known", shared.primary);
            Err(InstanceError::refused(what, "set [instance] listen there to HOST:PORT"))
        })?;
        let synchronised = Some(shared.synchronous_with(own));
        self.environment.update_control(|control| control.synchronised = synchronised)
    }
}

/// Completes an address that names no host.
fn at_its_address(standby: &NewStandby, from: Option<SocketAddr>) -> Result<NewStandby, InstanceError> {
    let address = completed(&standby.address, from).ok_or_else(|| {
        let what = format!("`{}` of `{}` is not an address for redo", standby.address, standby.name);
        InstanceError::refused(what, "set [instance] listen there to HOST:PORT")
    })?;
    Ok(NewStandby { address, ..standby.clone() })
}

/// Makes an instance a destination that is in use while this one is a primary.
fn configure(configured: &mut Vec<DestinationConfig>, standby: &NewStandby) {
    match configured.iter_mut().find(|known| known.name == standby.name) {
        Some(known) if known.valid_for.of_a_primary() => {}
        Some(known) => known.valid_for = ValidFor::default(),
        None => configured.push(destination(standby)),
    }
}

fn destination(of: &NewStandby) -> DestinationConfig {
    let mode = match of.mode {
        TransportMode::SyncAffirm => Configured::SyncAffirm,
        TransportMode::FastSync => Configured::Fastsync,
        TransportMode::Async => Configured::Async,
    };
    DestinationConfig {
        mode: Some(mode),
        net_timeout_ms: of.net_timeout_ms,
        valid_for: ValidFor::AS_PRIMARY,
        ..DestinationConfig::new(of.name.clone(), of.address.clone())
    }
}
