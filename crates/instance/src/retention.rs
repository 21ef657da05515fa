//! Which archived logs are kept for destinations. Pure.
//!
//! - A destination that commits wait for keeps what it lacks, whatever `archive_bytes_max` says. That is little: commits
//!   wait until it has it or is degraded. One that has not been heard of since the start keeps everything: what it lacks
//!   is not known, and a restart of the primary must not lose it.
//! - One that commits do not wait for, asynchronous or degraded, keeps nothing beyond `archive_bytes_max`: a standby that
//!   is away must not fill the volume and hold up the primary. When redo that it lacks is removed, that is said once.

use standfast_types::Scn;

/// A destination, as far as archived logs are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// Commits wait for it.
    pub required: bool,
    /// End of the redo on disk there; `None` when it has not been heard of since the start.
    pub hardened: Option<Scn>,
}

/// Archived logs that end after this position are kept, whatever their volume.
pub fn needed_from(holders: impl IntoIterator<Item = Holder>) -> Scn {
    let required = holders.into_iter().filter(|holder| holder.required);
    required.map(|holder| holder.hardened.unwrap_or(Scn::ZERO)).min().unwrap_or(Scn(u64::MAX))
}

/// What removed redo means for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftBehind {
    /// It has what was removed.
    No,
    /// It has not been heard of, and redo was removed meanwhile.
    Perhaps,
    /// It lacks redo that exists no more.
    Yes {
        /// It would have to go on here.
        needs: Scn,
    },
}

/// Judges a destination when the oldest redo begins at `oldest`, and at `oldest_then` when it was last started.
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
    fn only_destinations_that_commits_wait_for_keep_logs_beyond_the_volume() {
        assert_eq!(needed_from([]), Scn(u64::MAX));
        assert_eq!(needed_from([holder(false, Some(10)), holder(false, None)]), Scn(u64::MAX));
        assert_eq!(
            needed_from([holder(true, Some(30)), holder(true, Some(20)), holder(false, Some(10))]),
            Scn(20)
        );
        // Not heard of since the start: nobody knows what it lacks.
        assert_eq!(needed_from([holder(true, Some(30)), holder(true, None)]), Scn::ZERO);
    }

    #[test]
    fn whoever_lacks_redo_that_is_gone_is_left_behind() {
        let judge = |hardened, oldest| left_behind(holder(false, hardened), Scn(100), Scn(oldest));
        assert_eq!(judge(Some(200), 200), LeftBehind::No);
        assert_eq!(judge(Some(199), 200), LeftBehind::Yes { needs: Scn(199) });
        assert_eq!(judge(None, 100), LeftBehind::No);
        assert_eq!(judge(None, 200), LeftBehind::Perhaps);
    }
}
