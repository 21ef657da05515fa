//! Decides which archived logs are kept for destinations, and for standbys that are being copied. Pure.
//!
//! - A destination that commits wait for keeps the redo that it lacks, regardless of `archive_bytes_max`. That is
//!   little: commits wait until the destination has it or is degraded. One that has not connected since the start keeps
//!   everything: what it lacks is unknown, and a restart of the primary must not lose it.
//! - A destination that commits do not wait for, asynchronous or degraded, keeps nothing beyond `archive_bytes_max`: an
//!   unreachable standby must not fill the volume and stop the primary. The removal of redo that it lacks is reported
//!   once.

use standfast_types::Scn;
use std::time::{Duration, Instant};

/// Time for a copied standby to connect after the end of the copy.
const CONNECT_WITHIN: Duration = Duration::from_secs(600);

/// State of a destination that matters for archived logs.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub required: bool,
    /// End of its redo on disk; `None` if it has not connected since the start.
    pub hardened: Option<Scn>,
}

/// Copies for new standbys. Redo from the position of a copy on is kept while any copy is in progress, and then until
/// the standby has connected: by then it has all its databases. Nothing else records that the standby needs that redo.
#[derive(Debug, Default)]
pub struct Copies(Vec<Copy>);

/// A destination that may be the new standby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    /// End of its redo on disk; zero if it has not connected.
    pub hardened: Scn,
    pub connected: bool,
}

#[derive(Debug)]
struct Copy {
    from: Scn,
    /// The destinations when the copy began. A destination connected then is not the new standby; another one may be
    /// recreated under its name.
    before: Vec<Known>,
    ended: Option<Instant>,
}

impl Copy {
    /// Whether the destination is the new standby and has connected, now or earlier.
    fn is_of(&self, destination: &Known) -> bool {
        let before = self.before.iter().find(|before| before.name == destination.name);
        destination.hardened >= self.from
            && before.is_none_or(|before| !before.connected && destination.hardened > before.hardened)
    }
}

impl Copies {
    /// Records the begin of a copy that stands at `from` or later.
    pub fn begin(&mut self, from: Scn, destinations: Vec<Known>) {
        self.0.push(Copy { from, before: destinations, ended: None });
    }

    /// Records the end, successful or not, of the copy that began at `from`.
    pub fn end(&mut self, from: Scn, now: Instant) {
        if let Some(copy) = self.0.iter_mut().find(|copy| copy.from == from && copy.ended.is_none()) {
            copy.ended = Some(now);
        }
    }

    /// Forgets the copies that are no longer needed; returns the position from which redo is kept for the others.
    pub fn needed_from(&mut self, destinations: &[Known], now: Instant) -> Scn {
        let in_progress = self.0.iter().any(|copy| copy.ended.is_none());
        self.0.retain(|copy| {
            let in_time = copy.ended.is_some_and(|ended| now < ended + CONNECT_WITHIN);
            in_progress || in_time && !destinations.iter().any(|destination| copy.is_of(destination))
        });
        self.0.iter().map(|copy| copy.from).min().unwrap_or(Scn(u64::MAX))
    }
}

/// Returns the position beyond which archived logs are kept, regardless of their size.
pub fn needed_from(holders: impl IntoIterator<Item = Holder>) -> Scn {
    let required = holders.into_iter().filter(|holder| holder.required);
    required.map(|holder| holder.hardened.unwrap_or(Scn::ZERO)).min().unwrap_or(Scn(u64::MAX))
}

/// Consequence of removed redo for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftBehind {
    No,
    /// It has not connected, and redo was removed meanwhile.
    Perhaps,
    /// It lacks redo that no longer exists.
    Yes {
        /// Position from which it needs redo.
        needs: Scn,
    },
}

/// Judges a destination, given the begin of the oldest redo now (`oldest`) and at its last start (`oldest_then`).
pub fn left_behind(holder: Holder, oldest_then: Scn, oldest: Scn) -> LeftBehind {
    match holder.hardened {
        Some(needs) if needs < oldest => LeftBehind::Yes { needs },
        None if oldest > oldest_then => LeftBehind::Perhaps,
        _ => LeftBehind::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(required: bool, hardened: Option<u64>) -> Holder {
        Holder { required, hardened: hardened.map(Scn) }
    }

    #[test]
    fn only_destinations_commits_await_keep_logs_beyond_the_limit() {
        assert_eq!(needed_from([]), Scn(u64::MAX));
        assert_eq!(needed_from([holder(false, Some(10)), holder(false, None)]), Scn(u64::MAX));
        assert_eq!(
            needed_from([holder(true, Some(30)), holder(true, Some(20)), holder(false, Some(10))]),
            Scn(20)
        );
        // Not connected since the start: what it lacks is unknown.
        assert_eq!(needed_from([holder(true, Some(30)), holder(true, None)]), Scn::ZERO);
    }

    #[test]
    fn redo_of_a_copy_is_kept_until_the_new_standby_connects() {
        let at = |name: &str, hardened| Known { name: name.into(), hardened: Scn(hardened), connected: true };
        let away = |name: &str, hardened| Known { connected: false, ..at(name, hardened) };
        let (mut copies, begun) = (Copies::default(), Instant::now());
        assert_eq!(copies.needed_from(&[], begun), Scn(u64::MAX));
        copies.begin(Scn(10), vec![at("old", 9)]);
        copies.begin(Scn(20), vec![at("old", 19), away("again", 20)]);
        // Kept without a time limit while a copy is in progress, even one of another standby.
        copies.end(Scn(10), begun);
        let later = begun + CONNECT_WITHIN;
        assert_eq!(copies.needed_from(&[at("old", 99)], later), Scn(10));
        copies.end(Scn(20), later);
        let soon = later + CONNECT_WITHIN / 2;
        // The first one has timed out; another destination proves nothing, nor does the new one with less redo.
        assert_eq!(copies.needed_from(&[at("old", 99), at("new", 19)], soon), Scn(20));
        assert_eq!(copies.needed_from(&[away("again", 20)], soon), Scn(20));
        // It may have disconnected again meanwhile.
        assert_eq!(copies.needed_from(&[at("old", 99), away("new", 20)], soon), Scn(u64::MAX));
        copies.begin(Scn(30), vec![away("again", 20)]);
        copies.end(Scn(30), soon);
        assert_eq!(copies.needed_from(&[at("again", 31)], soon), Scn(u64::MAX));
    }

    #[test]
    fn redo_of_a_copy_is_released_if_its_standby_never_connects() {
        let (mut copies, begun) = (Copies::default(), Instant::now());
        copies.begin(Scn(10), Vec::new());
        copies.end(Scn(10), begun);
        assert_eq!(copies.needed_from(&[], begun), Scn(10));
        assert_eq!(copies.needed_from(&[], begun + CONNECT_WITHIN), Scn(u64::MAX));
    }

    #[test]
    fn destination_that_needs_deleted_redo_is_left_behind() {
        let judge = |hardened, oldest| left_behind(holder(false, hardened), Scn(100), Scn(oldest));
        assert_eq!(judge(Some(200), 200), LeftBehind::No);
        assert_eq!(judge(Some(199), 200), LeftBehind::Yes { needs: Scn(199) });
        assert_eq!(judge(None, 100), LeftBehind::No);
        assert_eq!(judge(None, 200), LeftBehind::Perhaps);
    }
}
