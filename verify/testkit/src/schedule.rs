//! Schedules a power failure, a failed sync or other work at a counted sync boundary.

/// The point within a call at a sync boundary at which the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPlace {
    /// No effect of the call has reached the disk.
    Before,
    /// The call is in flight: what it should make durable counts as unsynced, so any sectors of a durable write may
    /// survive, and a replaced file has the old or the new content and may leave its `.new` file behind.
    During,
    /// Everything is durable, but the caller does not get the result.
    After,
}

impl CrashPlace {
    /// All places, for tests that try each of them.
    pub const ALL: [CrashPlace; 3] = [CrashPlace::Before, CrashPlace::During, CrashPlace::After];
}

/// Event at the boundary that was just reached.
pub(crate) enum Event {
    Nothing,
    Crash(CrashPlace),
    Fail,
    Run(Box<dyn FnOnce() + Send>),
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Event::Nothing => f.write_str("Nothing"),
            Event::Crash(place) => f.debug_tuple("Crash").field(place).finish(),
            Event::Fail => f.write_str("Fail"),
            Event::Run(_) => f.write_str("Run"),
        }
    }
}

/// Counts boundaries and holds the planned event.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    reached: u64,
    planned: Option<(u64, Event)>,
}

impl Schedule {
    /// Plans `event` at the `n`th boundary from now, 1 being the next; replaces any earlier plan.
    pub(crate) fn plan(&mut self, n: u64, event: Event) {
        self.planned = Some((self.reached + n, event));
    }

    pub(crate) fn cancel(&mut self) {
        self.planned = None;
    }

    pub(crate) fn reached(&self) -> u64 {
        self.reached
    }

    pub(crate) fn next(&mut self) -> Event {
        self.reached += 1;
        match self.planned.take() {
            Some((at, event)) if at == self.reached => event,
            later => {
                self.planned = later;
                Event::Nothing
            }
        }
    }
}
