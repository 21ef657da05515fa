//! Values of options: each parser is total and names the forms that are allowed. Pure.

use crate::plan::MAX_LENGTH;
use crate::units::{self, Extent};
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

pub(super) fn length(text: &str) -> Parsed<u32> {
    bounded(text, 0, MAX_LENGTH.into())
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
