//! Limits how many lines of a log others may cause. No clock.
//!
//! Every peer that reaches a port can be refused as often as it likes, and each refusal could be a line. A text is
//! logged once per hour, and each address and each member has a number of lines per hour. The three classes have
//! separate budgets, so that unauthenticated peers cannot suppress lines about members, or about addresses that members
//! are known to have. Suppressed lines are counted, and the count is logged at 1, 10, 100 and so on.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Time after which a text is logged again; also the period of the budgets.
const PERIOD: Duration = Duration::from_secs(3600);

/// The peer that a line is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A peer whose certificate proves this name.
    Member(String),
    /// An unauthenticated peer at an address from which a peer was authenticated before.
    KnownAddress(IpAddr),
    UnknownAddress(IpAddr),
}

impl About {
    pub fn unauthenticated(from: IpAddr, known: bool) -> About {
        let from = host_network(from);
        if known { About::KnownAddress(from) } else { About::UnknownAddress(from) }
    }

    /// Lines per hour for this peer, and for all peers of its class.
    fn budget(&self) -> (usize, usize) {
        match self {
            About::Member(_) => (32, 256),
            About::KnownAddress(_) => (8, 64),
            About::UnknownAddress(_) => (8, 64),
        }
    }

    fn is_class_of(&self, other: &About) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Reported,
    /// The same text about the same peer was logged within the hour.
    Repeated,
    /// The budget is used up: the line is suppressed.
    Suppressed,
    /// The line is suppressed, and this count of lines suppressed within the hour is to be logged.
    CountSuppressed(u64),
}

struct Reported {
    at: Duration,
    about: About,
    text: String,
}

/// The lines logged within the hour. Times are relative to any fixed moment.
#[derive(Default)]
pub struct LineBudget {
    reported: VecDeque<Reported>,
    suppressed: u64,
    suppressed_since: Duration,
}

impl LineBudget {
    /// Decides what happens to the line `text` about `about`.
    pub fn line(&mut self, now: Duration, about: &About, text: &str) -> Line {
        while self.reported.front().is_some_and(|reported| now.saturating_sub(reported.at) >= PERIOD) {
            self.reported.pop_front();
        }
        let of_this = || self.reported.iter().filter(|reported| reported.about == *about);
        if of_this().any(|reported| reported.text == text) {
            return Line::Repeated;
        }
        let (each, all) = about.budget();
        let of_class = self.reported.iter().filter(|reported| reported.about.is_class_of(about)).count();
        if of_this().count() < each && of_class < all {
            self.reported.push_back(Reported { at: now, about: about.clone(), text: text.to_owned() });
            return Line::Reported;
        }
        if now.saturating_sub(self.suppressed_since) >= PERIOD {
            (self.suppressed, self.suppressed_since) = (0, now);
        }
        self.suppressed += 1;
        let is_power_of_ten = 10_u64.pow(self.suppressed.ilog10()) == self.suppressed;
        if is_power_of_ten { Line::CountSuppressed(self.suppressed) } else { Line::Suppressed }
    }
}

/// Returns what one host has: an IPv4 address, or an IPv6 network of 64 bits. All loopback addresses, of either
/// version, are one: a host that can use one of them can use them all.
pub fn host_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(v6) => {
            let mut parts = v6.segments();
            parts[4..].fill(0);
            IpAddr::V6(parts.into())
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn unknown_address(last: u8) -> About {
        About::unauthenticated([203, 0, 113, last].into(), false)
    }

    #[test]
    fn text_is_reported_once_an_hour_per_address() {
        let mut budget = LineBudget::default();
        assert_eq!(budget.line(at(0), &unknown_address(1), "a"), Line::Reported);
        assert_eq!(budget.line(at(3599), &unknown_address(1), "a"), Line::Repeated);
        assert_eq!(budget.line(at(3599), &unknown_address(2), "a"), Line::Reported);
        assert_eq!(budget.line(at(3600), &unknown_address(1), "a"), Line::Reported);
    }

    #[test]
    fn unauthenticated_flood_cannot_suppress_lines_about_members() {
        let mut budget = LineBudget::default();
        let reported = |line| matches!(line, Line::Reported);
        let flood = (0..50_000_u32)
            .filter(|n| reported(budget.line(at(1), &unknown_address(*n as u8), &n.to_string())));
        assert_eq!(flood.count(), 64);
        let known = About::unauthenticated([10, 0, 0, 2].into(), true);
        assert_eq!(budget.line(at(2), &known, "its certificate has expired"), Line::Reported);
        assert_eq!(budget.line(at(2), &About::Member("oslo".into()), "not listed"), Line::Reported);
    }

    #[test]
    fn one_address_leaves_lines_for_other_peers() {
        let mut budget = LineBudget::default();
        let reported = (0..1000)
            .filter(|n| budget.line(at(1), &unknown_address(1), &n.to_string()) == Line::Reported)
            .count();
        assert_eq!(reported, 8);
        assert_eq!(budget.line(at(1), &unknown_address(2), "a"), Line::Reported);
    }

    #[test]
    fn suppressed_lines_are_counted_in_few_lines() {
        let mut budget = LineBudget::default();
        let lines: Vec<_> =
            (0..50_008).map(|n| budget.line(at(1), &unknown_address(1), &n.to_string())).collect();
        let counts = lines.iter().filter_map(|line| match line {
            Line::CountSuppressed(count) => Some(*count),
            _ => None,
        });
        assert_eq!(counts.collect::<Vec<_>>(), [1, 10, 100, 1000, 10_000]);
    }

    #[test]
    fn loopback_and_an_ipv6_network_count_as_one_host_each() {
        let network = |text: &str| host_network(text.parse().unwrap());
        assert_eq!(network("127.9.8.7"), network("::1"));
        assert_eq!(network("::ffff:127.0.0.1"), network("127.0.0.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8::1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }
}
