//! Finds the primary that an instance is to follow, and compares the histories of the two.

use super::branch::{Relation, relation};
use crate::role::create::online_logs;
use crate::role::fence::{self, Other};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::identity::peer_identity;
use standfast_environment::state::control::Role;
use standfast_transport::{
    Discarded, LogGeometry, PeerIdentity, Security, TransportError, fetch_snapshot, fetch_status,
};
use standfast_types::{Scn, hint};

/// The primary that this instance is to follow.
pub struct Source {
    pub name: String,
    /// HOST:PORT.
    pub address: String,
    pub security: Security,
    pub identity: PeerIdentity,
    /// Its online logs.
    pub logs: LogGeometry,
}

impl Source {
    /// Finds the primary: at `from`, else the newest one among the destinations.
    ///
    /// # Errors
    /// `Refused` when there is none.
    pub fn find(environment: &Environment, from: Option<&str>) -> Result<Source, InstanceError> {
        let own = &environment.config.instance.name;
        let members = environment.keeper.members()?;
        // Its pages replace those here: they are taken only from a member that may be the primary.
        let candidates: Vec<String> = members.candidates().into_iter().filter(|name| name != own).collect();
        let asked: Vec<(String, Security)> = match from {
            Some(address) => vec![(address.to_owned(), environment.security().only(candidates))],
            None => {
                let remote = environment.config.destinations.iter().filter(|at| !at.is_local());
                let may = |name: &str| {
                    environment.config.instance.insecure || candidates.iter().any(|at| at == name)
                };
                let remote = remote.filter(|at| may(&at.name));
                remote
                    .map(|at| (at.address.clone(), environment.security().only([at.name.clone()])))
                    .collect()
            }
        };
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for (address, security) in asked {
            let answer =
                fetch_status(&address, &security, false, fence::SILENCE).map_err(|error| error.to_string());
            match fence::judge(answer.clone()) {
                Other::Primary(incarnation) => {
                    found.push((incarnation, address, security, answer.unwrap_or_default()))
                }
                Other::NotPrimary(state) => others.push(format!("{address} is no primary: {state}")),
                Other::Silent(why) => others.push(format!("{address} does not answer: {why}")),
            }
        }
        let newest = found.into_iter().max_by_key(|(incarnation, ..)| *incarnation);
        let Some((_, address, security, observation)) = newest else {
            if others.is_empty() {
                others.push("there is no destination that could be it".into());
            }
            let hint = format!(
                "name the primary: standfast reinstate -D {} --from HOST:PORT",
                environment.paths.directory.display()
            );
            return Err(InstanceError::refused(
                format!("the primary was not found: {}", others.join("; ")),
                hint,
            ));
        };
        let no_logs = || InstanceError::Failed(format!("{address} does not say which redo logs it has"));
        let logs = online_logs(&observation).ok_or_else(no_logs)?;
        let mut sink = Discarded::new(false);
        fetch_snapshot(&address, &security, own, &mut sink).map_err(|error| not_copied(&address, &error))?;
        let identity = sink.manifest.map(|manifest| manifest.source).ok_or_else(no_logs)?;
        Ok(Source { name: identity.name.clone(), address, security, identity, logs })
    }

    /// Returns where the redo here and that of the primary part; `None`: the redo here is all the primary's.
    ///
    /// # Errors
    /// `Refused` when this instance must not follow it.
    pub fn parted_at(&self, environment: &Environment) -> Result<Option<Scn>, InstanceError> {
        let control = environment.control();
        let own = peer_identity(environment, control.role.of_peer());
        let refused = |what: String, hint: String| Err(InstanceError::refused(what, hint));
        if control.trust.disowns(&self.identity.incarnations) {
            return refused(
                format!(
                    "`{}` follows an incarnation that was disowned here when a fence was lifted",
                    self.name
                ),
                "name another primary: --from".into(),
            );
        }
        let fenced_by = control.trust.fenced_by.as_ref().map(|by| (by.incarnation.number, by.incarnation.id));
        let known = control.known_incarnations().last().map(|known| (known.number, known.id));
        for (number, id) in fenced_by.into_iter().chain(known) {
            let newest = self.identity.incarnations.last().map_or(0, |newest| newest.number);
            let follows = self.identity.incarnations.iter().any(|there| there.id == id);
            if !follows && newest <= number && own.incarnations.iter().all(|here| here.id != id) {
                return refused(
                    format!(
                        "`{}` is itself replaced: incarnation {number}, which this instance has met, is newer",
                        self.name
                    ),
                    "name the primary of that incarnation: --from".into(),
                );
            }
        }
        if self.identity.family.unwrap_or(self.identity.instance) != control.family {
            let what = format!("{} is no instance of this family", self.address);
            return refused(what, "look at the address; --from names another one".into());
        }
        match relation(&own.incarnations, &self.identity.incarnations) {
            Relation::Parted(branch) => Ok(Some(branch)),
            Relation::Same if control.role == Role::Standby => Ok(None),
            Relation::Same => refused(
                format!(
                    "`{}` is the primary of the incarnation of this one, which is a primary, too",
                    self.name
                ),
                "one of the two directories is a copy of the other: remove the copy".into(),
            ),
            Relation::Newer => refused(
                format!("this instance is not older than `{}`", self.name),
                format!(
                    "if `{}` is to follow this one, run `standfast reinstate` there; which one counts is your decision",
                    self.name
                ),
            ),
            Relation::Unrelated => refused(
                format!("`{}` has another history than this instance from the beginning", self.name),
                "create this standby again: standfast standby create".into(),
            ),
        }
    }

    /// Returns the error for the operator when the databases could not be copied.
    pub fn not_copied(&self, error: &TransportError) -> InstanceError {
        not_copied(&self.address, error)
    }
}

fn not_copied(address: &str, error: &TransportError) -> InstanceError {
    let text = error.to_string();
    let (why, hint) = hint::split(&text);
    InstanceError::refused(
        format!("the databases cannot be copied from {address}: {why}"),
        hint.unwrap_or("the alert logs of both say more; then run this again"),
    )
}
