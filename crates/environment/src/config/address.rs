//! Syntax of names and addresses.

use std::net::SocketAddr;

/// Rule for names, for error messages.
pub const NAME_RULE: &str = "1 to 64 letters, digits, dots, underscores or hyphens";
/// Rule for addresses, for error messages.
pub const ADDRESS_RULE: &str = "HOST:PORT, as in 10.0.0.2:7411 or [::1]:7411";

/// Whether `text` is a valid name of an instance or destination.
pub fn is_name(text: &str) -> bool {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    (1..=64).contains(&text.len()) && text.chars().all(allowed)
}

/// Splits into host and port. Does not look the host up.
fn split_address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // IPv6 addresses have their colons in brackets.
    let host = bare.or_else(|| (!host.contains(':')).then_some(host))?;
    let port = port.parse().ok()?;
    (!host.is_empty() && !host.contains(|at: char| at.is_whitespace() || at.is_control()))
        .then_some((host, port))
}

pub fn is_address(text: &str) -> bool {
    split_address(text).is_some()
}

/// Returns the address for others of an instance that listens on `listen`: without a host when it listens on all.
pub fn own_address(listen: &str) -> String {
    match listen.rsplit_once(':') {
        Some((host, port)) if ["", "0.0.0.0", "[::]", "*"].contains(&host) => format!(":{port}"),
        _ => listen.to_owned(),
    }
}

/// Completes an address without a host (`:PORT`) by the host that the connection comes from.
pub fn completed(address: &str, from: Option<SocketAddr>) -> Option<String> {
    match address.strip_prefix(':') {
        None => Some(address.to_owned()),
        Some(port) => Some(SocketAddr::new(from?.ip(), port.parse().ok()?).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_a_host_is_completed() {
        let from = |text: &str| Some(text.parse().unwrap());
        assert_eq!(completed("h:1", None), Some("h:1".into()));
        assert_eq!(completed(":7", from("10.0.0.2:99")), Some("10.0.0.2:7".into()));
        assert_eq!(completed(":7", from("[::1]:99")), Some("[::1]:7".into()));
        assert_eq!((completed(":7", None), completed(":x", from("10.0.0.2:99"))), (None, None));
    }

    #[test]
    fn malformed_addresses_and_names_are_rejected() {
        for good in ["h:1", "10.0.0.2:7411", "[::1]:7411", "far.example:65535"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["nonsense", "h:", ":1", "h:70000", "::1:7411", "a b:1", ""] {
            assert!(!is_address(bad), "{bad}");
        }
        assert!(is_name("oslo-2") && !is_name("") && !is_name("a b"));
    }
}
