//! The newest observation of an instance, from which its pages are made.

use standfast_instruments::Observation;
use standfast_live::{Dashboard, Looks, Machine, Severity, Thresholds, metrics};
use std::sync::{Mutex, PoisonError};

/// The newest observation, with what rates need from earlier ones.
pub struct Live {
    observation: Observation,
    looks: Looks,
    machine: Machine,
}

impl Live {
    pub fn dashboard(&self) -> Dashboard {
        Dashboard::of(&self.observation, &self.looks, &self.machine)
    }

    /// Returns the metrics in the exposition format.
    pub fn exposition(&self) -> String {
        let estimate = self.looks.estimate(&self.observation);
        metrics::exposition(metrics::families(&self.observation, &estimate))
    }

    /// Returns the severity and one line of text that names the instance.
    pub fn check(&self) -> (Severity, String) {
        let status = &self.observation.status;
        standfast_live::line(&self.observation.name, status, &Thresholds::of(status))
    }
}

/// The newest observation; empty before the first.
#[derive(Default)]
pub struct Latest(Mutex<Option<Live>>);

impl Latest {
    /// Calls `show` with it; with `None` before the first observation.
    pub fn with<T>(&self, show: impl FnOnce(Option<&Live>) -> T) -> T {
        show(self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref())
    }

    /// Replaces the observation.
    pub(crate) fn take(&self, observation: Observation, machine: Machine) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looks = latest.take().map(|live| live.looks).unwrap_or_default();
        looks.take(&observation);
        *latest = Some(Live { observation, looks, machine });
    }
}
