//! Parsers of option values: each is total and names the allowed forms. Pure.

use crate::plan::MAX_LENGTH;
use standfast_page::units::{self, Extent};
use std::time::Duration;

pub(super) type Parsed<T> = std::result::Result<T, String>;

pub(super) fn allowed(forms: &str) -> String {
    format!("allowed: {forms}")
}

pub(super) fn bounded(text: &str, least: u64, most: u64) -> Parsed<u32> {
    let forms = || allowed(&format!("{}, from {least} to {most} bytes", units::SIZE_FORMS));
    let bytes = units::size(text).map_err(|_| forms())?;
    u32::try_from(bytes).ok().filter(|_| (least..=most).contains(&bytes)).ok_or_else(forms)
}

/// A host, with its port when the text has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    pub port: Option<u16>,
}

/// Parses `host`, `host:port`, `address:port`, `[v6]:port`, or a bare IPv6 address.
pub(super) fn host(text: &str) -> Parsed<Host> {
    let forms = || allowed("HOST, HOST:PORT or [ADDRESS]:PORT, with a port from 1 to 65535");
    let whole = |name: &str| Host { name: name.to_owned(), port: None };
    let (name, port) = match text.rsplit_once(':') {
        _ if text.parse::<std::net::Ipv6Addr>().is_ok() => return Ok(whole(text)),
        None => return if text.is_empty() { Err(forms()) } else { Ok(whole(text)) },
        Some(parts) => parts,
    };
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name = bracketed.unwrap_or(name);
    let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(forms)?;
    if name.is_empty() || (bracketed.is_none() && name.contains(':')) {
        return Err(forms());
    }
    Ok(Host { name: name.to_owned(), port: Some(port) })
}

pub(super) fn length(text: &str) -> Parsed<u32> {
    bounded(text, 0, MAX_LENGTH.into())
}

/// Parses a size of at least one byte.
pub(super) fn amount(text: &str) -> Parsed<u64> {
    units::size(text).ok().filter(|bytes| *bytes > 0).ok_or_else(|| allowed(units::SIZE_FORMS))
}

pub(super) fn rate(text: &str) -> Parsed<f64> {
    units::rate(text).map_err(allowed)
}

pub(super) fn write_size(text: &str) -> Parsed<u32> {
    bounded(text, 1, crate::file::MAX_WRITE as u64)
}

pub(super) fn buffer(text: &str) -> Parsed<u32> {
    bounded(text, 0, 1 << 30)
}

pub(super) fn time_within(text: &str, bare: &str, least: Duration, most: Duration) -> Parsed<Duration> {
    let forms = || {
        let (least, most) = (units::classic_time(least), units::classic_time(most));
        allowed(&format!("{}, from {least} to {most}", units::TIME_FORMS))
    };
    let time = units::time(text, bare).map_err(|_| forms())?;
    (least..=most).contains(&time).then_some(time).ok_or_else(forms)
}

pub(super) const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn pause(text: &str) -> Parsed<Duration> {
    time_within(text, "ms", Duration::ZERO, Duration::from_secs(3600))
}

pub(super) fn seconds(text: &str) -> Parsed<Duration> {
    time_within(text, "s", Duration::ZERO, DAY)
}

pub(super) fn positive_seconds(text: &str) -> Parsed<Duration> {
    time_within(text, "s", Duration::from_millis(100), DAY)
}

pub(super) fn interval(text: &str) -> Parsed<Duration> {
    time_within(text, "s", Duration::from_millis(10), DAY)
}

pub(super) fn duration(text: &str) -> Parsed<Extent> {
    match units::extent(text) {
        Ok(Extent::Time(time)) if time.is_zero() => Err(allowed(units::EXTENT_FORMS)),
        Ok(Extent::Bytes(0)) => Err(allowed(units::EXTENT_FORMS)),
        other => other.map_err(allowed),
    }
}

pub(super) fn percent(text: &str) -> Parsed<f64> {
    let value = text.parse().ok().filter(|value| (0.0..=1000.0).contains(value));
    value.ok_or_else(|| allowed("percent, from 0 to 1000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_with_port_is_distinguished_from_an_ipv6_address() {
        let of = |name: &str, port| Ok(Host { name: name.into(), port });
        assert_eq!(host("far.example"), of("far.example", None));
        assert_eq!(host("far.example:7"), of("far.example", Some(7)));
        assert_eq!(host("[::1]:7"), of("::1", Some(7)));
        assert_eq!(host("::1"), of("::1", None));
        for wrong in ["", ":7", "far:", "far:no", "far:0", "far:70000", "far:-1", "[::1]", "[::1]:", "a:b:7"]
        {
            assert!(host(wrong).is_err_and(|forms| forms.contains("HOST:PORT")), "{wrong}");
        }
    }
}
