//! The addresses that a server serves. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

const FORMS: &str = "an address, or a network with its length: 10.1.2.3, 10.1.0.0/16, fd00:1::/64";

/// A network, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("allowed: {FORMS}");
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            // The parser of numbers would accept "+8".
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse().ok().filter(|length| *length <= most).ok_or_else(wrong)?
            }
            Some(_) => return Err(wrong()),
        };
        let network = Network { address: masked(address, length), length };
        // Either the address or the length is a mistake.
        match network.address == address {
            true => Ok(network),
            false => {
                Err(format!("the network of this length is {}/{length}; allowed: {FORMS}", network.address))
            }
        }
    }
}

impl Network {
    /// Returns whether an address belongs to the network. An IPv4 address that arrived through an IPv6 socket counts as
    /// IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.length) == self.address
    }
}

/// Clears all bits of the address after the first `length`.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// Returns whether an address is served; without networks all are.
pub fn is_allowed(networks: &[Network], address: IpAddr) -> bool {
    networks.is_empty() || networks.iter().any(|network| network.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn network_contains_its_own_addresses_and_no_others() {
        assert!(contains("10.1.0.0/16", "10.1.255.3") && !contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.4"));
        assert!(contains("0.0.0.0/0", "255.1.2.3") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("fd00:1::/64", "fd00:1::9") && !contains("fd00:1::/64", "fd00:1:0:1::9"));
        assert!(contains("::/0", "::1") && !contains("::/0", "10.0.0.1"));
        assert!(contains("10.1.0.0/16", "::ffff:10.1.2.3"));
        assert!(contains("10.1.2.2/31", "10.1.2.3") && !contains("10.1.2.2/31", "10.1.2.4"));
    }

    #[test]
    fn malformed_network_is_refused_with_an_example() {
        for wrong in ["", "10.1", "10.1.0.0/33", "::/129", "10.1.0.0/", "10.1.0.0/+8", "beta", "10.0.0.0/8/8"]
        {
            assert!(wrong.parse::<Network>().unwrap_err().contains("10.1.0.0/16"), "{wrong}");
        }
        assert!("10.1.2.3/16".parse::<Network>().unwrap_err().contains("is 10.1.0.0/16"));
    }

    #[test]
    fn every_address_is_allowed_without_configured_networks() {
        let networks = ["10.1.0.0/16".parse().unwrap()];
        let (inside, outside) = ("10.1.0.9".parse().unwrap(), "10.2.0.9".parse().unwrap());
        assert!(is_allowed(&[], outside) && is_allowed(&networks, inside) && !is_allowed(&networks, outside));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_refused_or_a_network_with_its_address(text in "[0-9a-f.:/]{0,24}") {
            if let Ok(network) = text.parse::<Network>() {
                proptest::prop_assert!(network.contains(network.address));
            }
        }
    }
}
