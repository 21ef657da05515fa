//! The configuration that all instances share: which there are, how redo is shipped to each, and what holds for changes of
//! role. The primary makes it from its own settings, its standbys keep what it sends them, and whichever becomes the
//! primary continues with it. See `docs/decisions/0068-shared-configuration.md`.

use crate::config::address::{completed, own_address};
use crate::config::destination_config::{DestinationConfig, ValidFor};
use crate::config::role_change_config::RoleChangeConfig;
use crate::config::settings::InstanceConfig;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

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
        let standbys = destinations.iter().filter(|at| !at.is_local() && at.valid_for.of_a_primary());
        let made = SharedConfiguration {
            incarnation,
            version: kept.map_or(1, |kept| kept.version),
            primary: instance.name.clone(),
            address: own_address(&instance.listen),
            role_change,
            standbys: standbys.cloned().collect(),
        };
        match kept {
            Some(kept) if *kept != made => SharedConfiguration { version: kept.version + 1, ..made },
            _ => made,
        }
    }

    pub fn is_newer_than(&self, other: &SharedConfiguration) -> bool {
        (self.incarnation, self.version) > (other.incarnation, other.version)
    }

    /// The configuration as it came over a connection from this address.
    #[must_use]
    pub fn received(self, from: Option<SocketAddr>) -> SharedConfiguration {
        let address = completed(&self.address, from).unwrap_or_default();
        SharedConfiguration { address, ..self }
    }

    /// Puts into the destinations of an instance that becomes the primary the other standbys of the old one, as they were
    /// shipped to. A destination that is configured already keeps its attributes. The old primary itself is shipped to
    /// once it has become a standby.
    pub fn continue_in(&self, own: &InstanceConfig, destinations: &mut Vec<DestinationConfig>) {
        if !self.role_change.bystanders_follow || self.primary == own.name {
            return;
        }
        for standby in self.standbys.iter().filter(|at| at.name != own.name) {
            match destinations.iter_mut().find(|known| known.name == standby.name) {
                Some(known) if known.valid_for.of_a_primary() => {}
                Some(known) => known.valid_for = ValidFor::default(),
                None => {
                    let is_taken = destinations.iter().any(|known| known.id == standby.id);
                    let id = if is_taken { 0 } else { standby.id };
                    destinations.push(DestinationConfig {
                        id,
                        valid_for: ValidFor::AS_PRIMARY,
                        ..standby.clone()
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::destination_config::TransportMode;
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
        SharedConfiguration::of_primary(&instance("alpha"), &all, role_change, 4, None)
            .received(Some("192.0.2.1:9".parse().unwrap()))
    }

    #[test]
    fn new_primary_ships_to_the_bystanders_as_they_were_shipped_to() {
        let shared = shared(RoleChangeConfig::default());
        assert_eq!(shared.address, "192.0.2.1:7501", "where its redo came from");
        let mut destinations = Vec::new();
        shared.continue_in(&instance("beta"), &mut destinations);
        let gamma = standby(2, "gamma", TransportMode::Async);
        assert_eq!(destinations, [DestinationConfig { valid_for: ValidFor::AS_PRIMARY, ..gamma }]);
    }

    #[test]
    fn destinations_of_the_new_primary_keep_their_numbers_and_attributes() {
        let shared = shared(RoleChangeConfig::default());
        let own = vec![standby(1, "gamma", TransportMode::Fastsync)];
        let mut destinations = own.clone();
        shared.continue_in(&instance("beta"), &mut destinations);
        assert_eq!(destinations, own);
        let mut destinations = vec![standby(2, "delta", TransportMode::Async)];
        shared.continue_in(&instance("beta"), &mut destinations);
        assert_eq!((destinations[1].name.as_str(), destinations[1].id), ("gamma", 0), "its number is taken");
    }

    #[test]
    fn bystanders_that_are_not_to_follow_are_left_alone() {
        let mut destinations = Vec::new();
        let alone = RoleChangeConfig { bystanders_follow: false, ..RoleChangeConfig::default() };
        shared(alone).continue_in(&instance("beta"), &mut destinations);
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
