//! When the power fails, or a sync: at counted sync boundaries.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Nothing,
    Crash(CrashPlace),
    Fail,
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
        match self.planned {
            Some((at, event)) if at == self.reached => {
                self.planned = None;
                event
            }
            _ => Event::Nothing,
        }
    }
}
