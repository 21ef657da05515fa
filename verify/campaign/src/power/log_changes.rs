//! Changes of the primary's log groups in a random history, and the return of lost members while it runs.

use super::world::World;
use standfast_environment::InstanceError;
use standfast_instance::role::log_changes::{LogChange, change_log};
use standfast_simulation::site::{GROWTH_BYTES, MEMBER_NAMES};
use standfast_simulation::{Outcome, trace};
use standfast_testkit::Rng;

impl World {
    /// Adds, drops or resizes a group of the primary; a refusal is fine.
    pub(super) fn change_groups(&mut self, rng: &mut Rng) -> Outcome<()> {
        let host = self.host()?;
        let group = 1 + rng.below(5) as usize;
        let bytes = host.source.redo_log().config().group_bytes + (rng.between(0, GROWTH_BYTES >> 16) << 16);
        let change = match rng.below(3) {
            0 => LogChange::AddGroup { bytes: Some(bytes) },
            1 => LogChange::DropGroup { group },
            _ => LogChange::ResizeGroup { group, bytes },
        };
        self.change_log(change)
    }

    /// Repairs the devices of the primary and adds its lost members again.
    pub(super) fn bring_members_back(&mut self) -> Outcome<()> {
        if self.host()?.source.redo_log().dropped_members().is_empty() {
            return Ok(());
        }
        self.primary_machine.repair_directories();
        MEMBER_NAMES
            .iter()
            .try_for_each(|name| self.change_log(LogChange::AddMember { directory: name.into() }))
    }

    fn change_log(&mut self, change: LogChange) -> Outcome<()> {
        let broken = self.primary_machine.has_broken_directories();
        let host = self.host()?;
        let (environment, log) = (host.environment.clone(), host.source.redo_log().clone());
        let writer = std::cell::RefCell::new(host.primary.writer());
        let printed = format!("{change:?}");
        let done = change_log(&environment, &log, &|work| work(&mut writer.borrow_mut()), change);
        trace::say(|| format!("{printed}: {done:?}"));
        match done {
            Ok(_) => self.report.log_changes += 1,
            Err(InstanceError::Refused { .. }) => {}
            // A file in the directory of the member whose device has failed.
            Err(_) if broken && self.primary_machine.is_powered() => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }
}
