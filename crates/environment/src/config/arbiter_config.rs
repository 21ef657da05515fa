//! The third voice of fast-start failover: who it is, and how an instance proves to it who asks.

use crate::config::address::{is_address, is_name};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Rule for the third voice, for error messages.
pub const ARBITER_RULE: &str =
    "NAME@HOST:PORT, or etcd:https://HOST:PORT, with a comma before each further one";

const ETCD: &str = "etcd:";
/// As many members as a cluster of etcd has at most.
const ENDPOINTS_MAX: usize = 9;

/// `FastStartFailoverObserver`: the third voice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArbiterAddress {
    Observer {
        name: String,
        /// HOST:PORT.
        address: String,
    },
    /// URLs of servers, without a slash at the end.
    Etcd { endpoints: Vec<String> },
}

impl ArbiterAddress {
    /// Reads the text of the setting; `None`: it breaks [`ARBITER_RULE`].
    pub fn parse(text: &str) -> Option<ArbiterAddress> {
        match text.strip_prefix(ETCD) {
            None => {
                let (name, address) = text.split_once('@')?;
                (is_name(name) && is_address(address))
                    .then(|| ArbiterAddress::Observer { name: name.into(), address: address.into() })
            }
            Some(urls) => {
                let endpoints: Vec<String> = urls.split(',').map(str::to_owned).collect();
                let is_well = endpoints.len() <= ENDPOINTS_MAX && endpoints.iter().all(|url| is_url(url));
                is_well.then_some(ArbiterAddress::Etcd { endpoints })
            }
        }
    }
}

fn is_url(text: &str) -> bool {
    let address = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    address.is_some_and(|address| is_address(address) && !address.contains(['/', '@', '?', '#', '\\']))
}

/// `[arbiter]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArbiterConfig {
    /// File with the certificates of the authorities that sign the store's, PEM, relative to the instance directory; empty: those
    /// that the system trusts.
    pub authorities: PathBuf,
    /// File with this instance's certificate for the store, PEM, relative to the instance directory; empty: none. The store's
    /// own authority signs it: it has nothing to do with the certificates of the family. etcd wants it without a common name.
    pub certificate: PathBuf,
    /// File with the key of that certificate, PEM.
    pub key: PathBuf,
    /// User of the store; empty: none.
    pub user: String,
    /// File with the password of that user, relative to the instance directory.
    pub password_file: PathBuf,
    /// Plain HTTP may be used. Anyone who reaches the store, or the network to it, can then give the primary's place away.
    pub insecure: bool,
}

impl ArbiterConfig {
    /// Returns the first setting that breaks its rule: its name, its value and the rule.
    pub fn first_fault(&self) -> Option<(&'static str, String, &'static str)> {
        let is_set = |path: &PathBuf| !path.as_os_str().is_empty();
        if is_set(&self.certificate) != is_set(&self.key) {
            let value = self.key.display().to_string();
            return Some(("arbiter.key", value, "a file if, and only if, `certificate` is set"));
        }
        if is_set(&self.password_file) == self.user.is_empty() {
            let value = self.password_file.display().to_string();
            return Some(("arbiter.password_file", value, "a file if, and only if, `user` is set"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn third_voice_is_an_observer_or_servers_of_etcd() {
        let etcd = |urls: &[&str]| {
            Some(ArbiterAddress::Etcd { endpoints: urls.iter().map(|url| (*url).to_owned()).collect() })
        };
        let parse = ArbiterAddress::parse;
        assert_eq!(
            parse("tokyo@10.0.0.3:7413"),
            Some(ArbiterAddress::Observer { name: "tokyo".into(), address: "10.0.0.3:7413".into() })
        );
        assert_eq!(parse("etcd:https://a:2379"), etcd(&["https://a:2379"]));
        assert_eq!(parse("etcd:https://a:1,http://[::1]:2"), etcd(&["https://a:1", "http://[::1]:2"]));
        for wrong in [
            "",
            "tokyo",
            "tokyo@",
            "etcd:",
            "etcd:a:2379",
            "etcd:https://a",
            "etcd:https://a:1/",
            "etcd:https://a:1,",
            "etcd:https://u:p@a:1",
            "etcd:ftp://a:1",
            "etcd:https://a:1, https://b:1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_belongs_together_is_set_together() {
        let fault = |config: ArbiterConfig| config.first_fault().map(|(setting, ..)| setting);
        assert_eq!(fault(ArbiterConfig::default()), None);
        let with_key = ArbiterConfig { key: "k.pem".into(), ..ArbiterConfig::default() };
        assert_eq!(fault(with_key), Some("arbiter.key"));
        let with_user = ArbiterConfig { user: "beta".into(), ..ArbiterConfig::default() };
        assert_eq!(fault(with_user), Some("arbiter.password_file"));
    }
}
