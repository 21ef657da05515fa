//! The set of destinations of one primary: the state that each must know of the others before commits continue without
//! it.
//!
//! Two synchronous destinations that fall silent at the same moment must not each rely on the other. So the decision to
//! continue without a destination is made under one lock, and its outcome is visible before the next decision.

use crate::lock;
use standfast_types::Scn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};

/// Current state of the other destinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Commits wait for another SYNC AFFIRM destination, which writes the redo that it receives, and it has not kept
    /// them waiting too long.
    pub synchronised: bool,
    /// Newest position acknowledged by another destination that commits wait for.
    pub acknowledged: Scn,
}

/// The set of all destinations of a primary.
#[derive(Debug, Default)]
pub struct DestinationSet {
    slots: Mutex<Vec<Weak<Slot>>>,
}

/// The slot of a destination: the state that the others see. It lives as long as its sender.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    synchronised: AtomicBool,
    affirms: AtomicBool,
    acknowledged: AtomicU64,
}

impl Slot {
    /// Publishes the state: whether commits wait for it and it keeps up, and whether it writes the redo that it
    /// receives.
    pub fn show(&self, synchronised: bool, affirms: bool, acknowledged: Scn) {
        self.acknowledged.store(acknowledged.0, SeqCst);
        self.affirms.store(affirms, SeqCst);
        self.synchronised.store(synchronised, SeqCst);
    }
}

impl DestinationSet {
    pub(crate) fn sit(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        let mut slots = lock(&self.slots);
        slots.retain(|other| other.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        slot
    }

    /// Runs `decision`, which must publish its outcome in `slot`, while no other destination decides.
    pub(crate) fn decide<T>(&self, slot: &Arc<Slot>, decision: impl FnOnce(Others) -> T) -> T {
        let slots = lock(&self.slots);
        let mut others = Others::default();
        for other in slots.iter().filter_map(Weak::upgrade).filter(|other| !Arc::ptr_eq(other, slot)) {
            if other.synchronised.load(SeqCst) {
                others.synchronised |= other.affirms.load(SeqCst);
                others.acknowledged = others.acknowledged.max(Scn(other.acknowledged.load(SeqCst)));
            }
        }
        let decided = decision(others);
        drop(slots);
        decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_synchronised_other_destinations_count() {
        let destination_set = DestinationSet::default();
        let (mine, other) = (destination_set.sit(), destination_set.sit());
        mine.show(true, true, Scn(900));
        assert_eq!(destination_set.decide(&mine, |others| others), Others::default());
        other.show(true, false, Scn(500));
        let fastsync = Others { synchronised: false, acknowledged: Scn(500) };
        assert_eq!(destination_set.decide(&mine, |others| others), fastsync);
        other.show(true, true, Scn(600));
        assert!(destination_set.decide(&mine, |others| others.synchronised));
        other.show(false, true, Scn(700));
        assert_eq!(destination_set.decide(&mine, |others| others), Others::default());
        other.show(true, true, Scn(700));
        drop(other);
        assert!(
            !destination_set.decide(&mine, |others| others.synchronised),
            "one that is gone counts no more"
        );
    }

    #[test]
    fn one_of_two_destinations_stays_synchronised_when_both_degrade() {
        for _ in 0..200 {
            let destination_set = DestinationSet::default();
            let slots = [destination_set.sit(), destination_set.sit()];
            slots.iter().for_each(|slot| slot.show(true, true, Scn(1)));
            std::thread::scope(|scope| {
                for slot in &slots {
                    scope.spawn(|| {
                        destination_set.decide(slot, |others| {
                            if others.synchronised {
                                slot.show(false, true, Scn(1));
                            }
                        });
                    });
                }
            });
            let left = slots.iter().filter(|slot| slot.synchronised.load(SeqCst)).count();
            assert_eq!(left, 1);
        }
    }
}
