//! Axes: which values have a tick, and the position of a value. Pure.

use std::fmt::Display;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spacing {
    Linear,
    Logarithmic,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What the axis shows, with its unit in words.
    pub label: String,
    low: f64,
    high: f64,
    spacing: Spacing,
    /// Values with their names, ascending, all of them within the axis.
    ticks: Vec<(f64, String)>,
}

/// Largest magnitude: neither memory nor time beyond it is measured here, and numbers stay short on the page.
const MOST: f64 = 1e15;
/// Smallest positive value: nothing is measured finer.
const LEAST: f64 = 1e-12;

/// Returns the lowest and the highest finite value.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).map(|value| value.clamp(-MOST, MOST)).fold(
        None,
        |seen, value| {
            Some(seen.map_or((value, value), |(low, high): (f64, f64)| (low.min(value), high.max(value))))
        },
    )
}

/// Returns the bounds of the values above zero, limited to the range of the logarithm.
fn bounds_above_zero(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = bounds(values.filter(|value| *value > 0.0)).unwrap_or((1.0, 1.0));
    (low.max(LEAST), high.max(LEAST))
}

/// Returns the smallest of 1, 2 or 5 times a power of ten that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(power * 10.0)
}

/// Formats a number with as many digits as a step of its axis needs.
fn number(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.digits$}");
    // Avoids "-0".
    if text.trim_start_matches(['-', '0', '.']).is_empty() { "0".into() } else { text }
}

impl Axis {
    /// Builds an axis from zero to what all values need, with about `steps` steps of a round size.
    pub fn from_zero(label: impl Display, values: impl Iterator<Item = f64>, steps: usize) -> Axis {
        let high = bounds(values).map_or(1.0, |(_, high)| high);
        // An axis exists even without values: a link that stood still shows as a line at zero.
        let high = if high > LEAST { high } else { 1.0 };
        let step = round_step(high / steps.max(1) as f64);
        let count = (high / step * 0.999_999).ceil().max(1.0) as usize;
        let ticks =
            (0..=count).map(|tick| tick as f64 * step).map(|value| (value, number(value, step))).collect();
        Axis {
            label: label.to_string(),
            low: 0.0,
            high: count as f64 * step,
            spacing: Spacing::Linear,
            ticks,
        }
    }

    /// Builds an axis from zero to exactly `end`, for time, where an empty range at the end would look like a pause.
    pub fn until(label: impl Display, end: f64, steps: usize) -> Axis {
        let mut axis = Axis::from_zero(label, std::iter::once(end), steps);
        if end.is_finite() && end > LEAST {
            axis.high = end.min(MOST);
            let high = axis.high;
            axis.ticks.retain(|(value, _)| *value <= high);
        }
        axis
    }

    /// Builds an axis with ticks at 1, 2, 5, 10 and so on around all values above zero; `name` names at most `most` of
    /// them.
    pub fn logarithmic(
        label: impl Display,
        values: impl Iterator<Item = f64>,
        most: usize,
        name: impl Fn(f64) -> String,
    ) -> Axis {
        let (low, high) = bounds_above_zero(values);
        let first = low.log10().floor() as i32;
        // One decade more than the highest value needs, so that a range of one value has an end as well.
        let last = high.log10().floor() as i32 + 2;
        let around = |digits: &[f64]| -> Vec<f64> {
            let tens = |power| digits.iter().map(move |digit| digit * 10_f64.powi(power));
            let all: Vec<f64> = (first..=last).flat_map(tens).collect();
            let begin = all.iter().rposition(|tick| *tick <= low * 1.000_001).unwrap_or(0);
            let end = all.iter().position(|tick| *tick >= high * 0.999_999).unwrap_or(all.len() - 1);
            // A single value has two ticks as well, because an axis needs a length.
            let end = end.max(begin + 1).min(all.len() - 1);
            all[begin.min(end - 1)..=end].to_vec()
        };
        let mut ticks = around(&[1.0, 2.0, 5.0]);
        if ticks.len() < 4 {
            ticks = around(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        } else if ticks.len() > most.max(2) {
            // Whole decades, so that both ends have a name.
            ticks = around(&[1.0]);
        }
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        let every = ticks.len().div_ceil(most.max(2)).max(1);
        let ticks = ticks.into_iter().step_by(every).map(|value| (value, name(value))).collect();
        Axis { label: label.to_string(), low, high, spacing: Spacing::Logarithmic, ticks }
    }

    /// Builds an axis of doublings (of bytes) around all values above zero, with at most `most` names.
    pub fn doublings(
        label: impl Display,
        values: impl Iterator<Item = f64>,
        most: usize,
        name: impl Fn(f64) -> String,
    ) -> Axis {
        let (low, high) = bounds_above_zero(values);
        let first = low.log2().floor() as i32;
        let last = (high.log2().ceil() as i32).max(first + 1);
        let every = (last - first + 1).unsigned_abs().div_ceil(most.max(2) as u32).max(1) as usize;
        let ticks =
            (first..=last).step_by(every).map(|power| 2_f64.powi(power)).map(|value| (value, name(value)));
        Axis {
            label: label.to_string(),
            low: 2_f64.powi(first),
            high: 2_f64.powi(last),
            spacing: Spacing::Logarithmic,
            ticks: ticks.collect(),
        }
    }

    /// Builds an axis from zero to `high` with given ticks; ticks outside are omitted.
    pub fn with_ticks(label: impl Display, high: f64, ticks: &[(f64, &str)]) -> Axis {
        let high = if high.is_finite() && high > LEAST { high.min(MOST) } else { 1.0 };
        let ticks = ticks.iter().filter(|(value, _)| (0.0..=high).contains(value));
        let ticks = ticks.map(|(value, name)| (*value, (*name).to_owned())).collect();
        Axis { label: label.to_string(), low: 0.0, high, spacing: Spacing::Linear, ticks }
    }

    /// Returns the position of a value: 0 at the start of the axis, 1 at its end. A value outside is at the nearer end.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.spacing {
            Spacing::Linear => (value - self.low) / (self.high - self.low),
            Spacing::Logarithmic => (value.max(LEAST) / self.low).log10() / (self.high / self.low).log10(),
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// Returns the ticks with their positions and names.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().map(|(value, name)| (self.place(*value), name.as_str()))
    }

    /// Returns whether the value can be shown: a logarithmic axis has no zero.
    pub fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.spacing == Spacing::Linear || value > 0.0)
    }
}

/// Formats a number for a logarithmic axis, without insignificant digits.
pub fn plain(value: f64) -> String {
    match value {
        value if (0.001..1e6).contains(&value) => number(value, 10_f64.powf(value.log10().floor().min(0.0))),
        value => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.ticks().map(|(_, name)| name).collect()
    }

    #[test]
    fn axis_steps_are_round_with_only_needed_digits() {
        let axis = |high: f64| Axis::from_zero("MiB/s", [high].into_iter(), 5);
        assert_eq!(names(&axis(112.3)), ["0", "50", "100", "150"]);
        assert_eq!(names(&axis(100.0)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(names(&axis(0.3)), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(names(&axis(0.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(names(&Axis::until("s", 4.7, 5)), ["0", "1", "2", "3", "4"]);
    }

    #[test]
    fn logarithmic_axis_starts_and_ends_at_ticks_around_the_values() {
        let axis = |values: &[f64], most| Axis::logarithmic("ms", values.iter().copied(), most, plain);
        assert_eq!(names(&axis(&[0.3, 1.2], 9)), ["0.2", "0.5", "1", "2"]);
        assert_eq!(names(&axis(&[0.013, 730.0], 6)), ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(names(&axis(&[0.013, 730.0, f64::NAN, 0.0, -4.0], 3)), ["0.01", "1", "100"]);
        assert_eq!(names(&axis(&[0.3, 4.0], 4)), ["0.1", "1", "10"]);
        assert_eq!(names(&axis(&[66.0, 75.0], 9)), ["60", "70", "80"]);
        assert_eq!(names(&axis(&[5.0, 5.0], 9)), ["5", "6"]);
        assert_eq!(names(&axis(&[], 9)), ["1", "2"]);
    }

    #[test]
    fn buffer_axis_has_ticks_at_doublings() {
        let values = [196_608.0, 2_097_152.0, 9_437_184.0];
        let name = |bytes: f64| format!("{} KiB", bytes / 1024.0);
        let axis = Axis::doublings("socket buffer", values.into_iter(), 4, name);
        assert_eq!(names(&axis), ["128 KiB", "512 KiB", "2048 KiB", "8192 KiB"]);
        assert!((axis.place(2_097_152.0) - 4.0 / 7.0).abs() < 1e-9);
    }

    fn anything() -> impl Strategy<Value = f64> {
        prop_oneof![prop::num::f64::ANY, 1e-9..1e9_f64, Just(0.0), Just(f64::NAN)]
    }

    proptest! {
        #[test]
        fn every_axis_has_distinct_ticks_and_places_every_value(
            values in prop::collection::vec(anything(), 0..12), most in 1_usize..12
        ) {
            let all = || values.iter().copied();
            for axis in [
                Axis::from_zero("x", all(), most),
                Axis::until("x", values.first().copied().unwrap_or(0.0), most),
                Axis::logarithmic("x", all(), most, plain),
                Axis::doublings("x", all(), most, plain),
                Axis::with_ticks("x", values.first().copied().unwrap_or(0.0), &[(0.0, "a"), (1.0, "b"), (9.0, "c")]),
            ] {
                prop_assert!(axis.low.is_finite() && axis.high.is_finite() && axis.low < axis.high, "{axis:?}");
                prop_assert!(!axis.ticks.is_empty() && axis.ticks.len() <= 2 * most + 3, "{axis:?}");
                for (value, name) in &axis.ticks {
                    prop_assert!((axis.low..=axis.high).contains(value), "{axis:?}");
                    prop_assert!(name.len() <= 24, "{name}");
                }
                prop_assert!(axis.ticks.windows(2).all(|pair| pair[0].0 < pair[1].0), "{axis:?}");
                prop_assert!(values.iter().all(|value| (0.0..=1.0).contains(&axis.place(*value))), "{axis:?}");
            }
        }

        #[test]
        fn larger_values_lie_further_along_the_axis(low in 1e-6..1e6_f64, more in 1.001..1e3_f64) {
            let values = || [low, low * more].into_iter();
            for axis in [
                Axis::from_zero("x", values(), 5),
                Axis::logarithmic("x", values(), 5, plain),
                Axis::doublings("x", values(), 5, plain),
            ] {
                prop_assert!(axis.place(low) < axis.place(low * more), "{axis:?}");
                prop_assert!(axis.place(low) >= 0.0 && axis.place(low * more) <= 1.0);
            }
        }
    }
}
