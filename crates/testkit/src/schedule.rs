//! When the power fails, or a sync, or something else happens: at counted sync boundaries.

/// Where, within one call at a sync boundary, the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPlace {
    /// Nothing of the call has reached the disk.
    Before,
    /// The call is under way: what it makes durable counts as unsynced, so any sectors of a durable write may
    /// survive, a replaced file has the old or the new content and may leave its `.new` file behind.
    During,
    /// Everything is durable, but the caller never hears of it.
    After,
}

impl CrashPlace {
    /// All of them, for tests that try every place.
    pub const ALL: [CrashPlace; 3] = [CrashPlace::Before, CrashPlace::During, CrashPlace::After];
}

/// What happens at the boundary that was just reached.
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

/// Counts boundaries and knows which one is the last.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    reached: u64,
    planned: Option<(u64, Event)>,
}

impl Schedule {
    /// `event` happens at the `n`th boundary from now, 1 being the next; it replaces what was planned.
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
