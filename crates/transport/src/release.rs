//! When a commit may return.

use standfast_types::Scn;

/// A destination as the release of commits sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseView {
    pub name: String,
    pub required: bool,
    /// Newest position that it has acknowledged, received or hardened depending on its mode.
    pub acknowledged: Scn,
}

/// Returns the position up to which commits may return: durable here and acknowledged by every required destination.
/// Not monotonic: it can fall when a destination is required again or comes back with less. Released commits stay
/// released.
pub fn releasable(local_durable: Scn, destinations: &[ReleaseView]) -> Scn {
    releasable_with(local_durable, destinations.iter().map(|at| at.required.then_some(at.acknowledged)))
}

/// [`releasable`] without names, so that a release allocates nothing: the position that each destination has
/// acknowledged, `None` when commits do not wait for it.
pub fn releasable_with(local_durable: Scn, destinations: impl IntoIterator<Item = Option<Scn>>) -> Scn {
    destinations.into_iter().flatten().fold(local_durable, Scn::min)
}

/// Returns the names of the destinations that hold back a commit at `position`, and `local` for this machine's log.
pub fn withheld_by(position: Scn, local_durable: Scn, destinations: &[ReleaseView]) -> Vec<&str> {
    let local = (local_durable < position).then_some("local");
    let behind = |destination: &&ReleaseView| destination.required && destination.acknowledged < position;
    local.into_iter().chain(destinations.iter().filter(behind).map(|at| at.name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(name: &str, required: bool, acknowledged: u64) -> ReleaseView {
        ReleaseView { name: name.into(), required, acknowledged: Scn(acknowledged) }
    }

    #[test]
    fn a_commit_needs_the_local_log_and_every_required_destination() {
        let all = [view("paris", true, 300), view("oslo", true, 200), view("far", false, 10)];
        assert_eq!(releasable(Scn(250), &all), Scn(200));
        assert_eq!(releasable(Scn(150), &all), Scn(150));
        assert_eq!(releasable(Scn(250), &all[2..]), Scn(250));
        assert_eq!(releasable(Scn(250), &[]), Scn(250));
    }

    #[test]
    fn local_log_and_destinations_delaying_a_commit_are_named() {
        let all = [view("paris", true, 300), view("oslo", true, 200), view("far", false, 10)];
        assert_eq!(withheld_by(Scn(260), Scn(250), &all), ["local", "oslo"]);
        assert!(withheld_by(Scn(200), Scn(250), &all).is_empty());
    }
}
