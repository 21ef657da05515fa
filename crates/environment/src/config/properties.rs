//! Properties of the shared configuration under the names of Data Guard's broker: those of a member say how redo is
//! shipped to it, those of the configuration what holds for changes of role. Names and values are case-insensitive; times
//! are in seconds unless the name says otherwise.

use crate::config::address::is_address;
use crate::config::destination_config::{Compression, DestinationConfig, State, TransportMode};
use crate::config::role_change_config::RoleChangeConfig;

/// A property of a `T`.
pub struct Property<T> {
    pub name: &'static str,
    /// Values that it takes, in words.
    pub values: &'static str,
    pub meaning: &'static str,
    show: fn(&T) -> String,
    /// Returns false when the value is none of those that it takes.
    set: fn(&mut T, &str) -> bool,
}

impl<T> Property<T> {
    pub fn show(&self, of: &T) -> String {
        (self.show)(of)
    }

    /// Sets the property; `None`: to the value that it has in `default`.
    ///
    /// # Errors
    /// When the value is none of those that it takes.
    pub fn set(&self, of: &mut T, value: Option<&str>, default: &T) -> Result<(), PropertyError> {
        let value = value.map_or_else(|| self.show(default), str::to_owned);
        if (self.set)(of, &value) {
            return Ok(());
        }
        Err(PropertyError::Value { name: self.name, value, values: self.values })
    }
}

/// Why a property is not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    #[error("there is no property {name}; there are: {known}")]
    Unknown { name: String, known: String },
    #[error("{name} = {value}: it takes {values}")]
    Value { name: &'static str, value: String, values: &'static str },
}

/// Finds a property of this name.
///
/// # Errors
/// When there is none.
pub fn find<T>(all: &'static [Property<T>], name: &str) -> Result<&'static Property<T>, PropertyError> {
    all.iter().find(|property| property.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known = all.iter().map(|property| property.name).collect::<Vec<_>>().join(", ");
        PropertyError::Unknown { name: name.into(), known }
    })
}

/// Puts a number into `at`, if the text is one.
fn number<N: std::str::FromStr>(text: &str, at: &mut N) -> bool {
    text.parse().map(|number| *at = number).is_ok()
}

/// Puts a time into `at`, milliseconds, if the text is a number of seconds.
fn seconds(text: &str, at: &mut u64) -> bool {
    let ms =
        text.parse::<f64>().ok().filter(|s| (0.0..=1e6).contains(s)).map(|s| (s * 1000.0).round() as u64);
    ms.map(|ms| *at = ms).is_some()
}

fn in_seconds(ms: u64) -> String {
    (ms as f64 / 1000.0).to_string()
}

/// Puts a text into `at`. Its rule is checked with the configuration.
fn text(text: &str, at: &mut String) -> bool {
    text.clone_into(at);
    true
}

/// Puts the value of the row with this word into `at`.
fn one_of<T: Copy>(text: &str, rows: &[(&str, T)], at: &mut T) -> bool {
    let found = rows.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *at = *value).is_some()
}

fn word_of<T: PartialEq>(rows: &[(&str, T)], value: &T) -> String {
    rows.iter().find(|(_, at)| at == value).map_or("", |(word, _)| word).to_owned()
}

const MODES: [(&str, TransportMode); 3] = [
    ("SYNC", TransportMode::SyncAffirm),
    ("FASTSYNC", TransportMode::Fastsync),
    ("ASYNC", TransportMode::Async),
];
const COMPRESSIONS: [(&str, Compression); 4] = [
    ("DISABLE", Compression::None),
    ("LZ4", Compression::Lz4),
    ("ZSTD", Compression::Zstd),
    ("ENABLE", Compression::Zstd),
];
const SHIPPING: [(&str, State); 2] = [("ON", State::Enable), ("OFF", State::Defer)];
const TRUTH: [(&str, bool); 2] = [("TRUE", true), ("FALSE", false)];
const FOLLOWING: [(&str, bool); 2] = [("ALL", true), ("NONE", false)];

/// Properties of a member to which the primary ships.
pub static OF_A_MEMBER: [Property<DestinationConfig>; 9] = [
    Property {
        name: "DGConnectIdentifier",
        values: "HOST:PORT",
        meaning: "where it listens",
        show: |of| of.address.clone(),
        set: |of, value| {
            let is_address = is_address(value);
            if is_address {
                of.address = value.into();
            }
            is_address
        },
    },
    Property {
        name: "LogXptMode",
        values: "SYNC, FASTSYNC or ASYNC",
        meaning: "what commits wait for: redo on its disk, redo in its memory, nothing",
        show: |of| word_of(&MODES, &of.transport_mode()),
        set: |of, value| {
            let mut mode = of.transport_mode();
            let known = one_of(value, &MODES, &mut mode);
            of.mode = Some(mode);
            known
        },
    },
    Property {
        name: "LogShipping",
        values: "ON or OFF",
        meaning: "whether redo is shipped to it",
        show: |of| if of.state == State::Defer { "OFF".into() } else { "ON".into() },
        set: |of, value| one_of(value, &SHIPPING, &mut of.state),
    },
    Property {
        name: "NetTimeout",
        values: "0.1 to 1200 seconds",
        meaning: "longest wait of a commit for it, and longest silence of a connection",
        show: |of| in_seconds(of.net_timeout_ms),
        set: |of, value| seconds(value, &mut of.net_timeout_ms),
    },
    Property {
        name: "ReopenSecs",
        values: "seconds",
        meaning: "longest pause between attempts to reach it",
        show: |of| in_seconds(of.reopen_ms),
        set: |of, value| seconds(value, &mut of.reopen_ms),
    },
    Property {
        name: "MaxFailure",
        values: "a number, 0 for any number",
        meaning: "attempts that may fail before it is abandoned",
        show: |of| of.failures_allowed().to_string(),
        set: |of, value| number(value, of.max_failure.insert(0)),
    },
    Property {
        name: "MaxConnections",
        values: "1 to 20",
        meaning: "connections that carry one archived log",
        show: |of| of.max_connections.to_string(),
        set: |of, value| number(value, &mut of.max_connections),
    },
    Property {
        name: "DelayMins",
        values: "minutes",
        meaning: "how long it leaves transactions unapplied",
        show: |of| of.delay_min.to_string(),
        set: |of, value| number(value, &mut of.delay_min),
    },
    Property {
        name: "RedoCompression",
        values: "DISABLE, LZ4, ZSTD or ENABLE (ZSTD)",
        meaning: "compression of redo in transit",
        show: |of| word_of(&COMPRESSIONS, &of.compression),
        set: |of, value| one_of(value, &COMPRESSIONS, &mut of.compression),
    },
];

/// Properties of the configuration.
pub static OF_THE_CONFIGURATION: [Property<RoleChangeConfig>; 9] = [
    Property {
        name: "BystandersFollowRoleChange",
        values: "ALL or NONE",
        meaning: "whether a new primary ships to the other standbys of the old one",
        show: |of| word_of(&FOLLOWING, &of.bystanders_follow),
        set: |of, value| one_of(value, &FOLLOWING, &mut of.bystanders_follow),
    },
    Property {
        name: "DrainTimeout",
        values: "0 to 3600 seconds",
        meaning: "how long running write transactions may take to end in a switchover",
        show: |of| of.drain_timeout_s.to_string(),
        set: |of, value| number(value, &mut of.drain_timeout_s),
    },
    Property {
        name: "FastStartFailoverObserver",
        values: "NAME@HOST:PORT, etcd:https://HOST:PORT,..., or nothing",
        meaning: "the observer, and where it listens; or etcd in its place",
        show: |of| of.fast_start_failover.observer.clone(),
        set: |of, value| text(value, &mut of.fast_start_failover.observer),
    },
    Property {
        name: "FastStartFailoverTarget",
        values: "a member, or nothing",
        meaning: "which member takes over; without one, whichever is synchronised",
        show: |of| of.fast_start_failover.target.clone(),
        set: |of, value| text(value, &mut of.fast_start_failover.target),
    },
    Property {
        name: "FastStartFailoverThreshold",
        values: "1 to 3600 seconds",
        meaning: "how long the primary must be silent before the target takes over",
        show: |of| of.fast_start_failover.threshold_s.to_string(),
        set: |of, value| number(value, &mut of.fast_start_failover.threshold_s),
    },
    Property {
        name: "FastStartFailoverPmyShutdown",
        values: "TRUE or FALSE",
        meaning: "whether a primary that reaches neither target nor observer for the threshold stops",
        show: |of| word_of(&TRUTH, &of.fast_start_failover.primary_shutdown),
        set: |of, value| one_of(value, &TRUTH, &mut of.fast_start_failover.primary_shutdown),
    },
    Property {
        name: "ObserverOverride",
        values: "TRUE or FALSE",
        meaning: "whether the observer's view suffices: the target takes over although it hears the primary",
        show: |of| word_of(&TRUTH, &of.fast_start_failover.observer_override),
        set: |of, value| one_of(value, &TRUTH, &mut of.fast_start_failover.observer_override),
    },
    Property {
        name: "ObserverPingInterval",
        values: "100 to 60000 milliseconds",
        meaning: "time between two looks at the observer",
        show: |of| of.fast_start_failover.ping_interval_ms.to_string(),
        set: |of, value| number(value, &mut of.fast_start_failover.ping_interval_ms),
    },
    Property {
        name: "ObserverPingRetry",
        values: "10 to 1000, or 0",
        meaning: "with this many looks without success the target takes over, whatever the threshold; 0: the threshold counts",
        show: |of| of.fast_start_failover.ping_retry.to_string(),
        set: |of, value| number(value, &mut of.fast_start_failover.ping_retry),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> DestinationConfig {
        DestinationConfig { id: 2, ..DestinationConfig::new("beta", "beta:7501") }
    }

    #[test]
    fn each_property_keeps_what_it_shows_and_returns_to_its_default() {
        let values = [
            "host:1", "FASTSYNC", "OFF", "2.5", "7", "3", "4", "15", "LZ4", // of a member
        ];
        let mut changed = member();
        for (property, value) in OF_A_MEMBER.iter().zip(values) {
            let name = property.name;
            assert_ne!(property.show(&member()), value, "{name}");
            property.set(&mut changed, Some(&value.to_lowercase()), &member()).unwrap();
            assert!(
                property.show(&changed).eq_ignore_ascii_case(value),
                "{name}: {}",
                property.show(&changed)
            );
        }
        for property in &OF_A_MEMBER[1..] {
            property.set(&mut changed, None, &member()).unwrap();
        }
        let explicit = DestinationConfig {
            address: "host:1".into(),
            mode: Some(TransportMode::SyncAffirm),
            max_failure: Some(0),
            ..member()
        };
        assert_eq!(changed, explicit);
        let (mut changed, default) = (RoleChangeConfig::default(), RoleChangeConfig::default());
        for (property, value) in OF_THE_CONFIGURATION
            .iter()
            .zip(["NONE", "60", "far@h:1", "beta", "9", "FALSE", "TRUE", "200", "12"])
        {
            property.set(&mut changed, Some(value), &default).unwrap();
            assert_eq!(property.show(&changed), value);
            property.set(&mut changed, None, &default).unwrap();
        }
        assert_eq!(changed, default);
    }

    #[test]
    fn wrong_value_or_name_is_refused_with_those_that_are_taken() {
        let set = |name: &str, value: &str| {
            find(&OF_A_MEMBER, name).and_then(|property| property.set(&mut member(), Some(value), &member()))
        };
        for (name, value) in
            [("logxptmode", "SYNCH"), ("NETTIMEOUT", "-1"), ("MaxFailure", "x"), ("LogShipping", "")]
        {
            let error = set(name, value).unwrap_err();
            assert!(matches!(error, PropertyError::Value { .. }), "{error}");
        }
        let error = set("NetTimeOuts", "1").unwrap_err().to_string();
        assert!(
            error.contains("no property NetTimeOuts; there are: DGConnectIdentifier, LogXptMode"),
            "{error}"
        );
        set("NetTimeout", "30").unwrap();
    }
}
