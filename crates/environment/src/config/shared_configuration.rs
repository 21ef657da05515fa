//! The configuration that all instances share: which there are, how redo is shipped to each, and what holds for changes of
//! role. The primary makes it from its own settings, its standbys keep what it sends them, and whichever becomes the
//! primary continues with it. See `docs/decisions/0068-shared-configuration.md`.

use crate::config::address::{ADDRESS_RULE, NAME_RULE, completed, is_address, is_name, own_address};
use crate::config::destination_config::{DestinationConfig, ValidFor, check_all, number};
use crate::config::role_change_config::RoleChangeConfig;
use crate::config::settings::InstanceConfig;
use serde::{Deserialize, Serialize};
use standfast_transport::PeerIdentity;
use standfast_types::DESTINATIONS_MAX;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Names that a document may list as removed: more than a family ever has members.
const REMOVED_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedConfiguration {
    /// Number of the incarnation in which the primary made it.
    pub incarnation: u64,
    /// Counts the changes, also across incarnations.
    pub version: u64,
    /// Name of the primary.
    pub primary: String,
    /// HOST:PORT on which the primary listens. Without a host (`:PORT`): the host that its redo comes from. Empty: it does
    /// not listen.
    pub address: String,
    pub role_change: RoleChangeConfig,
    /// The standbys and far syncs to which the primary ships, by number.
    pub standbys: Vec<DestinationConfig>,
    /// Names of those to which redo is no longer shipped.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed: BTreeSet<String>,
}

/// A standby of the old primary that a new one does not ship to, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotContinued {
    pub name: String,
    pub address: String,
    pub why: String,
}

impl SharedConfiguration {
    /// The configuration of a primary with these settings, as the successor of the one that is kept.
    pub fn of_primary(
        instance: &InstanceConfig,
        destinations: &[DestinationConfig],
        role_change: RoleChangeConfig,
        incarnation: u64,
        kept: Option<&SharedConfiguration>,
    ) -> SharedConfiguration {
        let standbys: Vec<_> =
            destinations.iter().filter(|at| !at.is_local() && at.valid_for.of_a_primary()).cloned().collect();
        // What the primary before this one shipped to was not removed by this one.
        let own = kept.filter(|kept| kept.primary == instance.name);
        let before = own.iter().flat_map(|kept| &kept.standbys).map(|at| at.name.clone());
        let mut removed: BTreeSet<String> =
            kept.iter().flat_map(|kept| kept.removed.clone()).chain(before).collect();
        removed.retain(|name| *name != instance.name && standbys.iter().all(|at| at.name != *name));
        let made = SharedConfiguration {
            incarnation,
            version: kept.map_or(1, |kept| kept.version),
            primary: instance.name.clone(),
            address: own_address(&instance.listen),
            role_change,
            standbys,
            removed,
        };
        match kept {
            Some(kept) if *kept != made => {
                SharedConfiguration { version: kept.version.saturating_add(1), ..made }
            }
            _ => made,
        }
    }

    /// Whether it takes the place of the one that is kept. `source`: the instance that sent it. What the primary itself
    /// sends counts also if its version is lower: it has lost what it kept.
    pub fn replaces(&self, kept: Option<&SharedConfiguration>, source: &str) -> bool {
        kept.is_none_or(|kept| {
            let is_current = self.incarnation >= kept.incarnation && source == self.primary;
            self != kept && (is_current || self.is_newer_than(kept))
        })
    }

    /// Reads what the instance `source` has sent, over a connection from the address `from`.
    ///
    /// # Errors
    /// The first rule that it breaks, as text.
    pub fn received(
        document: serde_json::Value,
        source: &PeerIdentity,
        from: Option<SocketAddr>,
    ) -> Result<SharedConfiguration, String> {
        let mut sent: SharedConfiguration =
            serde_json::from_value(document).map_err(|error| error.to_string())?;
        sent.address = completed(&sent.address, from).unwrap_or_default();
        let newest = source.current().map_or(0, |incarnation| incarnation.number.into());
        if sent.incarnation > newest {
            return Err(format!("it is of incarnation {}, and its sender of {newest}", sent.incarnation));
        }
        sent.check().map(|()| sent)
    }

    fn check(&self) -> Result<(), String> {
        if !is_name(&self.primary) {
            return Err(NAME_RULE.into());
        }
        if !self.address.is_empty() && !is_address(&self.address) {
            return Err(ADDRESS_RULE.into());
        }
        if self.standbys.len() > DESTINATIONS_MAX || self.removed.len() > REMOVED_MAX {
            return Err("more standbys than there can be".into());
        }
        if let Some(local) = self.standbys.iter().find(|at| at.is_local()) {
            return Err(format!("`{}` is a directory", local.name));
        }
        if let Some((setting, value, rule)) = self.role_change.fast_start_failover.first_fault() {
            return Err(format!("{setting} = {value}: {rule}"));
        }
        let mut numbered = self.standbys.clone();
        number(&mut numbered);
        check_all(&numbered).map_err(|rule| rule.to_string())
    }

    pub fn is_newer_than(&self, other: &SharedConfiguration) -> bool {
        (self.incarnation, self.version) > (other.incarnation, other.version)
    }

    /// Makes the destinations of an instance that becomes the primary those of the old one, with their attributes: it
    /// ships to the other standbys, and no longer to those that were removed. `is_member`: whether an instance of this
    /// name is known. Group, priority and MANDATORY belong to the place of a primary and do not follow. The old primary
    /// itself is shipped to once it has become a standby. Returns what cannot be continued.
    pub fn continue_in(
        &self,
        own: &InstanceConfig,
        destinations: &mut Vec<DestinationConfig>,
        is_member: impl Fn(&str) -> bool,
    ) -> Vec<NotContinued> {
        let mut left = Vec::new();
        if !self.role_change.bystanders_follow || self.primary == own.name {
            return left;
        }
        let is_removed = |at: &DestinationConfig| self.removed.contains(&at.name);
        destinations.retain(|at| at.is_local() || !at.valid_for.of_a_primary() || !is_removed(at));
        for standby in self.standbys.iter().filter(|at| at.name != own.name) {
            let mut continued = destinations.clone();
            put(&mut continued, standby);
            number(&mut continued);
            let why = match is_member(&standby.name) {
                true => check_all(&continued).err().map(|rule| rule.to_string()),
                false => Some("it is not listed among the members".into()),
            };
            match why {
                None => *destinations = continued,
                Some(why) => {
                    let (name, address) = (standby.name.clone(), standby.address.clone());
                    left.push(NotContinued { name, address, why });
                }
            }
        }
        left
    }

    /// Makes the old primary, which is a standby from now on, a destination of the instance called `own`: it is shipped to
    /// as that one was. False: its address, or how it shipped, is not known.
    pub fn return_to(&self, own: &str, destinations: &mut Vec<DestinationConfig>) -> bool {
        let as_shipped_to = self.standbys.iter().find(|at| at.name == own);
        let old = as_shipped_to.filter(|_| !self.address.is_empty()).map(|at| {
            let (name, address) = (self.primary.clone(), self.address.clone());
            DestinationConfig { name, address, ..at.clone() }
        });
        old.as_ref().map(|old| put(destinations, old)).is_some()
    }

    /// Names of the instances that commits of a primary wait for, the old primary included, once `own` is that primary.
    pub fn synchronous_with(&self, own: &str) -> BTreeSet<String> {
        let name =
            |at: &DestinationConfig| if at.name == own { self.primary.clone() } else { at.name.clone() };
        self.standbys.iter().filter(|at| at.is_sync()).map(name).collect()
    }
}

fn put(destinations: &mut Vec<DestinationConfig>, standby: &DestinationConfig) {
    let is_free = destinations.iter().all(|known| known.id != standby.id);
    let fresh = DestinationConfig {
        id: if is_free { standby.id } else { 0 },
        // The default depends on the number.
        mode: Some(standby.transport_mode()),
        valid_for: ValidFor::AS_PRIMARY,
        group: 0,
        priority: 1,
        mandatory: false,
        ..standby.clone()
    };
    match destinations.iter_mut().find(|known| known.name == standby.name && !known.is_local()) {
        None => destinations.push(fresh),
        Some(known) => {
            let valid_for =
                if known.valid_for.of_a_primary() { known.valid_for } else { ValidFor::default() };
            let DestinationConfig { id, group, priority, mandatory, .. } = *known;
            *known = DestinationConfig { id, valid_for, group, priority, mandatory, ..fresh };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::destination_config::TransportMode;
    use serde_json::json;
    use standfast_transport::{Incarnation, Role};
    use standfast_types::{IncarnationId, InstanceId, Scn};
    use std::path::PathBuf;

    fn instance(name: &str) -> InstanceConfig {
        InstanceConfig { name: name.into(), listen: "0.0.0.0:7501".into(), ..InstanceConfig::default() }
    }

    fn standby(id: u8, name: &str, mode: TransportMode) -> DestinationConfig {
        DestinationConfig { id, mode: Some(mode), ..DestinationConfig::new(name, format!("{name}:1")) }
    }

    /// Of `alpha`, which ships to `beta` and `gamma`, as `beta` has it.
    fn shared(role_change: RoleChangeConfig) -> SharedConfiguration {
        let archive = DestinationConfig {
            id: 3,
            location: Some(PathBuf::from("/archive")),
            ..DestinationConfig::new("archive", "")
        };
        let all = [
            standby(1, "beta", TransportMode::SyncAffirm),
            standby(2, "gamma", TransportMode::Async),
            archive,
        ];
        let made = SharedConfiguration::of_primary(&instance("alpha"), &all, role_change, 4, None);
        received(&made).unwrap()
    }

    /// `alpha`, in its fourth incarnation.
    fn source() -> PeerIdentity {
        let newest = Incarnation { number: 4, id: IncarnationId([4; 8]), branch: Scn(4096) };
        PeerIdentity {
            instance: InstanceId([1; 16]),
            name: "alpha".into(),
            family: None,
            role: Role::Primary,
            incarnations: vec![newest],
            promotion: None,
        }
    }

    fn received(sent: &SharedConfiguration) -> Result<SharedConfiguration, String> {
        SharedConfiguration::received(json!(sent), &source(), Some("192.0.2.1:9".parse().unwrap()))
    }

    fn continued(shared: &SharedConfiguration, own: &[DestinationConfig]) -> Vec<DestinationConfig> {
        let mut destinations = own.to_vec();
        assert_eq!(shared.continue_in(&instance("beta"), &mut destinations, |_| true), []);
        destinations
    }

    #[test]
    fn new_primary_ships_to_the_bystanders_as_they_were_shipped_to() {
        let shared = shared(RoleChangeConfig::default());
        assert_eq!(shared.address, "192.0.2.1:7501", "where its redo came from");
        let gamma = standby(2, "gamma", TransportMode::Async);
        let expected = [DestinationConfig { valid_for: ValidFor::AS_PRIMARY, ..gamma }];
        assert_eq!(continued(&shared, &[]), expected);
        // What it has configured for an earlier time as the primary does not count any more, but for its own matters.
        let stale = DestinationConfig {
            id: 7,
            address: "elsewhere:1".into(),
            net_timeout_ms: 500,
            group: 2,
            priority: 3,
            ..standby(7, "gamma", TransportMode::Fastsync)
        };
        let now = continued(&shared, &[stale])[0].clone();
        assert_eq!((now.id, now.group, now.priority), (7, 2, 3));
        assert_eq!((now.address.as_str(), now.net_timeout_ms), ("gamma:1", 30_000));
        assert_eq!(now.mode, Some(TransportMode::Async));
    }

    #[test]
    fn number_that_is_taken_changes_no_mode() {
        let shared = shared(RoleChangeConfig::default());
        let mut default = shared.clone();
        // Asynchronous by its number.
        default.standbys[1] = DestinationConfig { id: 12, mode: None, ..default.standbys[1].clone() };
        let own = standby(12, "delta", TransportMode::Async);
        let all = continued(&default, std::slice::from_ref(&own));
        assert_eq!((all[0].clone(), all[1].id, all[1].mode), (own, 1, Some(TransportMode::Async)));
    }

    #[test]
    fn standby_that_was_removed_does_not_come_back_with_an_earlier_primary() {
        let of = |own: &str, destinations: &[DestinationConfig], kept: &SharedConfiguration| {
            let role_change = RoleChangeConfig::default();
            SharedConfiguration::of_primary(&instance(own), destinations, role_change, 5, Some(kept))
        };
        let alpha = shared(RoleChangeConfig::default());
        // `beta` takes over, and no longer ships to `gamma`.
        let (old, gamma) =
            (standby(1, "alpha", TransportMode::Async), standby(2, "gamma", TransportMode::Async));
        let first = of("beta", &[old.clone(), gamma.clone()], &alpha);
        assert_eq!(first.removed, BTreeSet::new(), "`beta` itself was not removed");
        let second = of("beta", std::slice::from_ref(&old), &first);
        assert_eq!(second.removed, BTreeSet::from(["gamma".to_owned()]));
        let mut destinations = vec![standby(1, "beta", TransportMode::SyncAffirm), gamma.clone()];
        assert_eq!(second.continue_in(&instance("alpha"), &mut destinations, |_| true), []);
        assert_eq!(destinations, [standby(1, "beta", TransportMode::SyncAffirm)]);
        // Added again, it is no longer removed.
        assert_eq!(of("beta", &[old, gamma], &second).removed, BTreeSet::new());
    }

    #[test]
    fn standby_that_cannot_be_continued_is_named_and_the_others_are_continued() {
        let mut shared = shared(RoleChangeConfig::default());
        shared.standbys.push(standby(4, "unlisted", TransportMode::Async));
        shared.standbys.push(standby(5, "epsilon", TransportMode::Async));
        let archive = DestinationConfig {
            id: 2,
            location: Some(PathBuf::from("/archive")),
            ..DestinationConfig::new("gamma", "")
        };
        let mut destinations = vec![archive];
        let left = shared.continue_in(&instance("beta"), &mut destinations, |name| name != "unlisted");
        let left: Vec<_> = left.iter().map(|at| (at.name.as_str(), at.why.as_str())).collect();
        assert_eq!(left.len(), 2);
        assert!(left[0].0 == "gamma" && left[0].1.contains("a name of its own"), "{left:?}");
        assert_eq!(left[1], ("unlisted", "it is not listed among the members"));
        assert_eq!(destinations.iter().map(|at| at.name.as_str()).collect::<Vec<_>>(), ["gamma", "epsilon"]);
    }

    #[test]
    fn document_of_another_instance_is_checked() {
        let sound = shared(RoleChangeConfig::default());
        assert_eq!(received(&sound), Ok(sound.clone()));
        let wrong = |change: &dyn Fn(&mut SharedConfiguration)| {
            let mut changed = sound.clone();
            change(&mut changed);
            received(&changed).unwrap_err()
        };
        wrong(&|at| at.primary = "\u{1b}[2J".into());
        wrong(&|at| at.address = "no address".into());
        wrong(&|at| at.address = "\u{1b}[2J:1".into());
        wrong(&|at| at.standbys[0].address = "\u{1b}[2J:1".into());
        wrong(&|at| at.standbys[1].name = "beta".into());
        wrong(&|at| at.standbys[0].location = Some(PathBuf::from("/etc")));
        wrong(&|at| at.standbys = vec![at.standbys[0].clone(); 32]);
        let later = wrong(&|at| at.incarnation = 5);
        assert_eq!(later, "it is of incarnation 5, and its sender of 4");
        let unknown = SharedConfiguration::received(json!({ "version": 1 }), &source(), None).unwrap_err();
        assert!(unknown.contains("missing field"), "{unknown}");
    }

    #[test]
    fn what_the_primary_itself_sends_counts_if_its_version_is_lower() {
        let kept = SharedConfiguration { version: 40, ..shared(RoleChangeConfig::default()) };
        let again = SharedConfiguration { version: 1, removed: BTreeSet::from(["x".into()]), ..kept.clone() };
        assert!(again.replaces(Some(&kept), "alpha") && !again.replaces(Some(&kept), "near"));
        let older = SharedConfiguration { incarnation: 3, ..again.clone() };
        assert!(!older.replaces(Some(&kept), "alpha"));
        let newer = SharedConfiguration { version: 41, ..kept.clone() };
        assert!(newer.replaces(Some(&kept), "near") && newer.replaces(None, "near"));
        assert!(!kept.replaces(Some(&kept), "alpha"), "the same");
    }

    #[test]
    fn old_primary_is_shipped_to_as_the_new_one_was() {
        let mut shared = shared(RoleChangeConfig::default());
        shared.standbys[0].net_timeout_ms = 700;
        let mut destinations = Vec::new();
        assert!(shared.return_to("beta", &mut destinations));
        let alpha = &destinations[0];
        assert_eq!((alpha.name.as_str(), alpha.address.as_str()), ("alpha", "192.0.2.1:7501"));
        assert_eq!((alpha.net_timeout_ms, alpha.valid_for), (700, ValidFor::AS_PRIMARY));
        assert_eq!(shared.synchronous_with("beta"), BTreeSet::from(["alpha".to_owned()]));
        assert_eq!(shared.synchronous_with("gamma"), BTreeSet::from(["beta".to_owned()]));
        assert!(!shared.return_to("delta", &mut destinations), "it did not ship there");
        shared.address = String::new();
        assert!(!shared.return_to("beta", &mut destinations));
    }

    #[test]
    fn bystanders_that_are_not_to_follow_are_left_alone() {
        let mut destinations = Vec::new();
        let alone = RoleChangeConfig { bystanders_follow: false, ..RoleChangeConfig::default() };
        shared(alone).continue_in(&instance("beta"), &mut destinations, |_| true);
        assert_eq!(destinations, []);
    }

    #[test]
    fn version_counts_changes_and_nothing_else() {
        let of = |destinations: &[DestinationConfig], incarnation, kept: &SharedConfiguration| {
            let role_change = RoleChangeConfig::default();
            SharedConfiguration::of_primary(
                &instance("alpha"),
                destinations,
                role_change,
                incarnation,
                Some(kept),
            )
        };
        let beta = [standby(1, "beta", TransportMode::Async)];
        let first =
            SharedConfiguration::of_primary(&instance("alpha"), &beta, RoleChangeConfig::default(), 1, None);
        assert_eq!((first.version, &of(&beta, 1, &first)), (1, &first));
        let second = of(&[], 1, &first);
        assert_eq!(second.version, 2);
        assert!(
            second.is_newer_than(&first) && !first.is_newer_than(&second) && !first.is_newer_than(&first)
        );
        let third = of(&[], 2, &second);
        assert!(third.version == 3 && third.is_newer_than(&second));
        // A later incarnation counts, however many changes an abandoned one has had.
        let abandoned = SharedConfiguration { version: 90, ..second };
        assert!(third.is_newer_than(&abandoned));
    }
}
