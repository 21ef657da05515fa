//! Strangers can knock as often as they like: each reason is told once an hour, and only so many.

use std::collections::VecDeque;
use std::time::Duration;

const AGAIN_AFTER: Duration = Duration::from_secs(3600);
const KEPT: usize = 64;

/// What has been told lately. Times are since any fixed moment.
#[derive(Default)]
pub(super) struct Once {
    told: VecDeque<(Duration, String)>,
}

impl Once {
    /// Whether `what` is to be told now.
    pub fn is_news(&mut self, now: Duration, what: &str) -> bool {
        while self.told.front().is_some_and(|(when, _)| now.saturating_sub(*when) >= AGAIN_AFTER) {
            self.told.pop_front();
        }
        if self.told.len() == KEPT || self.told.iter().any(|(_, told)| told == what) {
            return false;
        }
        self.told.push_back((now, what.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_an_hour_and_a_flood_of_reasons_ends() {
        let mut once = Once::default();
        let second = Duration::from_secs;
        assert!(
            once.is_news(second(0), "a")
                && !once.is_news(second(3599), "a")
                && once.is_news(second(3600), "a")
        );
        let told = (0..1000).filter(|n| once.is_news(second(3601), &n.to_string())).count();
        assert_eq!(told, KEPT - 1);
        assert!(once.is_news(second(7201), "b"));
    }
}
