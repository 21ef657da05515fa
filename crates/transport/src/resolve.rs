//! Where a stream continues after a connect, or why it cannot. Pure functions of their arguments.
//!
//! A standby may hold redo that this primary does not: it was sent before it was durable here, and a crash lost it.
//! None of that redo was acknowledged, and the standby has applied nothing beyond the confirmed position. So if the
//! checksums at the standby's end differ, the stream starts over at the confirmed position, where both must agree. The
//! standby keeps the redo that it holds beyond that position and compares it: part of it may have been acknowledged, so
//! the standby drops only redo that is proven to differ. If the checksums differ even at the confirmed position, only a
//! rewind or a new copy helps.

use crate::error::{Refusal, RefuseCode};
use crate::hello::{PositionSum, ReceiverHello, StandbyPositions};
use crate::identity::{Incarnation, Meeting, PeerIdentity, Role, meet};
use crate::redo::LogSwitch;
use standfast_format::StreamCrc;
use standfast_types::Scn;

/// The sender's side of the decision.
#[derive(Clone, Debug)]
pub struct View {
    pub source: PeerIdentity,
    /// `db_unique_name` that the destination must have, if configured.
    pub expected_name: Option<String>,
    /// End of the redo durable here.
    pub durable: Scn,
    /// Start of the oldest redo that can be read here.
    pub oldest: Scn,
    /// Checksum of this stream at the standby's end, if known.
    pub crc_at_end: Option<StreamCrc>,
    /// The log of this primary that contains the standby's end.
    pub log_at_end: Option<LogSwitch>,
    /// Checksum of this stream at the standby's confirmed position, if known.
    pub crc_at_confirmed: Option<StreamCrc>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Start {
        from: Scn,
        /// The standby drops all redo beyond this position immediately: it belongs to another branch.
        keep: Scn,
    },
    /// This instance is no longer the primary.
    Fenced(Incarnation),
    Refuse(Refusal),
}

/// Decides how to continue with the peer that sent `peer`.
pub fn resolve(view: &View, peer: &ReceiverHello) -> Verdict {
    match branch_limit(view, peer).and_then(|limit| {
        let positions = peer.positions.ok_or_else(|| no_positions(&peer.standby))?;
        start(view, &peer.standby.name, &positions, limit)
    }) {
        Ok((from, keep)) => Verdict::Start { from, keep },
        Err(verdict) => verdict,
    }
}

/// Returns the position up to which the two histories are the same stream.
fn branch_limit(view: &View, peer: &ReceiverHello) -> Result<Scn, Verdict> {
    let (source, standby) = (&view.source, &peer.standby);
    let (Some(mine), Some(_)) = (source.current(), standby.current()) else {
        return refuse(RefuseCode::Protocol, "an instance without an incarnation history");
    };
    let meeting = meet(source, standby);
    // This check comes first for a member of the family: a newer incarnation must fence us whichever peer reports it.
    match meeting {
        Meeting::Unrelated => {
            let text = format!(
                "`{}` is not a copy of `{}`: its history begins with another `init`; check the address, or create the \
                 standby with `standfast standby create`",
                standby.name, source.name
            );
            return refuse(RefuseCode::WrongPeer, text);
        }
        Meeting::Newer(newer) if source.role == Role::Primary => return Err(Verdict::Fenced(newer)),
        Meeting::Newer(newer) => return Err(Verdict::Refuse(not_reached(source, standby, newer.number))),
        Meeting::Older | Meeting::Same | Meeting::Rivals => {}
    }
    if let Some(expected) = view.expected_name.as_ref().filter(|expected| **expected != standby.name) {
        let text = format!(
            "`{}` answers where `{expected}` is configured; correct db_unique_name or the address",
            standby.name
        );
        return refuse(RefuseCode::WrongPeer, text);
    }
    if meeting == Meeting::Rivals {
        let text = format!(
            "`{}` and this instance both opened an incarnation {} of their own; decide which branch to keep and create the \
             other one again with `standfast standby create`",
            standby.name, mine.number
        );
        return refuse(RefuseCode::Diverged, text);
    }
    if standby.role == Role::Primary {
        let text = if meeting == Meeting::Older {
            format!(
                "`{}` was the primary before this one, and has been told that it is replaced; stop it and run \
                 `standfast reinstate` there, which makes it a standby",
                standby.name
            )
        } else {
            format!("`{}` is a primary and takes no redo; check the address", standby.name)
        };
        return refuse(RefuseCode::NotStandby, text);
    }
    let pairs = source.incarnations.iter().zip(&standby.incarnations);
    let common = pairs.take_while(|(mine, theirs)| mine.id == theirs.id).count();
    let branches = [source.incarnations.get(common), standby.incarnations.get(common)];
    Ok(branches.into_iter().flatten().map(|next| next.branch).min().unwrap_or(Scn(u64::MAX)))
}

fn start(view: &View, name: &str, held: &StandbyPositions, limit: Scn) -> Result<(Scn, Scn), Verdict> {
    let PositionSum { scn: end, .. } = held.end;
    let PositionSum { scn: confirmed, .. } = held.confirmed;
    if end < view.oldest {
        return gap(view, name, end);
    }
    if end <= limit && held.end.matches(view.crc_at_end) && is_same_log(view, held) {
        return Ok((end, end));
    }
    if confirmed <= limit && confirmed > view.durable && view.source.role != Role::Primary {
        return behind(view, name, confirmed);
    }
    if confirmed > limit.min(view.durable) {
        let text = format!(
            "`{name}` was told that redo up to {confirmed} is durable, and may have applied it, but this stream \
             {}; stop it and run `standfast reinstate` there",
            if confirmed > limit {
                format!("left it at {limit}")
            } else {
                format!("ends at {}", view.durable)
            }
        );
        return refuse(RefuseCode::Diverged, text);
    }
    if view.crc_at_confirmed.is_none() || confirmed < view.oldest {
        return gap(view, name, confirmed);
    }
    if !held.confirmed.matches(view.crc_at_confirmed) {
        let text = format!(
            "`{name}` holds other redo than this primary before {confirmed}, which it may have applied; stop it and \
             run `standfast reinstate` there"
        );
        return refuse(RefuseCode::Diverged, text);
    }
    Ok((confirmed, end.min(limit)))
}

/// Whether the standby is filling the log that this primary has at that position, or the stream is about to announce
/// that log. A primary that captured the same bytes again after a crash may have begun another log before them.
fn is_same_log(view: &View, held: &StandbyPositions) -> bool {
    let (Some(theirs), Some(mine)) = (held.log, view.log_at_end) else { return true };
    (theirs.sequence, theirs.first_scn) == (mine.sequence, mine.first_scn) || mine.first_scn == held.end.scn
}

fn refuse<T>(code: RefuseCode, message: impl Into<String>) -> Result<T, Verdict> {
    Err(Verdict::Refuse(Refusal::new(code, message)))
}

fn gap<T>(view: &View, name: &str, at: Scn) -> Result<T, Verdict> {
    let text = format!(
        "`{name}` needs redo from {at} on, and the oldest log here begins at {}; restore the archived logs in \
         between, or stop it and run `standfast reinstate` there",
        view.oldest
    );
    refuse(RefuseCode::Gap, text)
}

/// Refusal of a forwarder that a change of the primary has not reached yet. Its redo of the older incarnation is not
/// sent: it may belong to the abandoned branch.
pub(crate) fn not_reached(source: &PeerIdentity, follower: &PeerIdentity, number: u32) -> Refusal {
    let text = format!(
        "`{}` follows incarnation {number}, which has not reached this {}, `{}`, yet; it will when the new primary ships to it",
        follower.name, source.role, source.name
    );
    Refusal::new(RefuseCode::Behind, text)
}

/// Refusal of a forwarder that has less redo than its destination got from another source before.
fn behind<T>(view: &View, name: &str, confirmed: Scn) -> Result<T, Verdict> {
    let source = &view.source;
    let text = format!(
        "`{name}` has redo up to {confirmed}, this {}, `{}`, only up to {} that its primary has confirmed: it continues when \
         more has arrived here",
        source.role, source.name, view.durable
    );
    refuse(RefuseCode::Behind, text)
}

fn no_positions(standby: &PeerIdentity) -> Verdict {
    let text = format!("`{}` has no standby log and takes no redo; check its role", standby.name);
    Verdict::Refuse(Refusal::new(RefuseCode::NotStandby, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::{IncarnationId, InstanceId};

    fn incarnations(of: &[(u32, u8, u64)]) -> Vec<Incarnation> {
        let one = |&(number, id, branch): &(u32, u8, u64)| Incarnation {
            number,
            id: IncarnationId([id; 8]),
            branch: Scn(branch),
        };
        of.iter().map(one).collect()
    }

    fn identity(name: &str, role: Role, of: &[(u32, u8, u64)]) -> PeerIdentity {
        PeerIdentity {
            instance: InstanceId([name.len() as u8; 16]),
            name: name.into(),
            family: None,
            role,
            incarnations: incarnations(of),
            promotion: None,
        }
    }

    const FIRST: &[(u32, u8, u64)] = &[(1, 1, 4096)];
    const SECOND: &[(u32, u8, u64)] = &[(1, 1, 4096), (2, 2, 5000)];

    /// A primary with redo 4500..6000 captured, 5800 durable, checksum at a position = the position.
    fn primary(of: &[(u32, u8, u64)]) -> View {
        View {
            source: identity("paris", Role::Primary, of),
            expected_name: None,
            durable: Scn(5800),
            oldest: Scn(4500),
            crc_at_end: None,
            log_at_end: None,
            crc_at_confirmed: None,
        }
    }

    /// A standby that holds the primary's redo up to `same` and other redo up to `end`.
    fn ask(view: View, of: &[(u32, u8, u64)], confirmed: u64, end: u64, same: u64) -> Verdict {
        let sum = |scn: u64| PositionSum { scn: Scn(scn), crc: if scn <= same { scn as u32 } else { 1 } };
        let known = |scn: u64| (view.oldest.0..=6000).contains(&scn).then_some(StreamCrc(scn as u32));
        let view = View { crc_at_end: known(end), crc_at_confirmed: known(confirmed), ..view };
        let positions = StandbyPositions {
            end: sum(end),
            confirmed: sum(confirmed),
            applied: Scn(confirmed),
            passed: None,
            log: None,
        };
        let standby = identity("oslo", Role::Standby, of);
        resolve(&view, &ReceiverHello::new(standby, Some(positions), 0))
    }

    #[test]
    fn both_ends_are_in_the_same_log_or_the_next_one_begins_there() {
        let log = |sequence, first_scn| {
            Some(LogSwitch { sequence, first_scn: Scn(first_scn), time_us: 0, first_record: 0 })
        };
        let is_same = |theirs, mine| {
            let at = |scn| PositionSum { scn: Scn(scn), crc: 0 };
            let (end, confirmed) = (at(5000), at(4900));
            let held = StandbyPositions { end, confirmed, applied: Scn(4900), passed: None, log: theirs };
            is_same_log(&View { log_at_end: mine, ..primary(FIRST) }, &held)
        };
        assert!(is_same(log(3, 4800), log(3, 4800)));
        assert!(!is_same(log(4, 4800), log(3, 4800)) && !is_same(log(3, 4700), log(3, 4800)));
        assert!(is_same(log(3, 4800), log(4, 5000)), "the stream is about to announce it");
        assert!(is_same(None, log(3, 4800)) && is_same(log(3, 4800), None));
    }

    fn start_at(scn: u64) -> Verdict {
        start_over(scn, scn)
    }

    fn start_over(from: u64, keep: u64) -> Verdict {
        Verdict::Start { from: Scn(from), keep: Scn(keep) }
    }

    fn code(verdict: Verdict) -> Option<RefuseCode> {
        match verdict {
            Verdict::Refuse(refusal) => Some(refusal.code),
            _ => None,
        }
    }

    #[test]
    fn same_stream_resumes_at_its_end_even_beyond_local_durability() {
        assert_eq!(ask(primary(FIRST), FIRST, 5000, 5500, 5500), start_at(5500));
        assert_eq!(ask(primary(FIRST), FIRST, 5000, 5900, 5900), start_at(5900));
    }

    #[test]
    fn divergent_suffix_is_compared_from_the_confirmed_position() {
        assert_eq!(
            ask(primary(FIRST), FIRST, 5000, 7000, 5700),
            start_over(5000, 7000),
            "longer than the primary"
        );
        assert_eq!(
            ask(primary(FIRST), FIRST, 5000, 5900, 5700),
            start_over(5000, 5900),
            "other bytes at the end"
        );
    }

    #[test]
    fn different_redo_below_the_confirmed_position_is_a_divergence() {
        assert_eq!(code(ask(primary(FIRST), FIRST, 5600, 5700, 5500)), Some(RefuseCode::Diverged));
        assert_eq!(
            code(ask(primary(FIRST), FIRST, 5900, 7000, 7000)),
            Some(RefuseCode::Diverged),
            "lost by us"
        );
    }

    #[test]
    fn redo_confirmed_up_to_exactly_the_durable_end_or_the_branch_is_shared() {
        assert_eq!(ask(primary(FIRST), FIRST, 5800, 7000, 5800), start_over(5800, 7000));
        assert_eq!(ask(primary(SECOND), FIRST, 5000, 5100, 5000), start_over(5000, 5000));
        let forwarding = View { source: identity("paris", Role::FarSync, FIRST), ..primary(FIRST) };
        assert_eq!(ask(forwarding, FIRST, 5800, 7000, 5800), start_over(5800, 7000));
    }

    #[test]
    fn refusal_says_whether_the_stream_ends_before_the_confirmed_redo_or_has_left_it() {
        let message = |of, confirmed| match ask(primary(of), FIRST, confirmed, 7000, 7000) {
            Verdict::Refuse(refusal) => refusal.message,
            other => panic!("not refused: {other:?}"),
        };
        assert!(message(FIRST, 5900).contains("up to 5900 is durable"));
        assert!(message(FIRST, 5900).contains("ends at 5800"));
        assert!(message(SECOND, 5900).contains("left it at 5000"));
    }

    #[test]
    fn older_standby_follows_when_confirmed_before_the_branch() {
        assert_eq!(ask(primary(SECOND), FIRST, 4900, 4990, 4990), start_at(4990));
        assert_eq!(ask(primary(SECOND), FIRST, 4900, 5000, 5000), start_at(5000));
        assert_eq!(
            ask(primary(SECOND), FIRST, 4900, 5100, 5000),
            start_over(4900, 5000),
            "beyond the branch"
        );
        assert_eq!(ask(primary(SECOND), FIRST, 4900, 5100, 5100), start_over(4900, 5000), "equal sum");
        assert_eq!(code(ask(primary(SECOND), FIRST, 5100, 5200, 5000)), Some(RefuseCode::Diverged));
    }

    #[test]
    fn primary_is_fenced_by_any_peer_with_a_newer_incarnation() {
        let newer = incarnations(SECOND)[1];
        assert_eq!(ask(primary(FIRST), SECOND, 4900, 5100, 5000), Verdict::Fenced(newer));
        let wrong_name = View { expected_name: Some("rome".into()), ..primary(FIRST) };
        assert_eq!(ask(wrong_name, SECOND, 4900, 5100, 5000), Verdict::Fenced(newer));
        let other_branch = &[(1, 1, 4096), (2, 9, 4800), (3, 3, 5000)];
        assert!(matches!(ask(primary(SECOND), other_branch, 4700, 4700, 4700), Verdict::Fenced(_)));
    }

    #[test]
    fn branches_with_the_same_number_do_not_mix() {
        let other = &[(1, 1, 4096), (2, 9, 5000)];
        assert_eq!(code(ask(primary(SECOND), other, 4900, 4900, 4900)), Some(RefuseCode::Diverged));
        let third = &[(1, 1, 4096), (2, 2, 5000), (3, 3, 5500)];
        assert_eq!(ask(primary(third), other, 4900, 5100, 5000), start_over(4900, 5000), "a newer one rules");
    }

    #[test]
    fn forwarding_standby_waits_for_redo_its_destination_has() {
        let forwarding = |of| View { source: identity("paris", Role::FarSync, of), ..primary(of) };
        assert_eq!(ask(forwarding(FIRST), FIRST, 5000, 5500, 5500), start_at(5500));
        // The destination has got more from another source than has arrived here.
        assert_eq!(code(ask(forwarding(FIRST), FIRST, 5900, 6500, 6000)), Some(RefuseCode::Behind));
        assert_eq!(code(ask(forwarding(FIRST), SECOND, 4900, 5100, 5000)), Some(RefuseCode::Behind));
        // A divergent suffix is compared, not discarded.
        assert_eq!(ask(forwarding(FIRST), FIRST, 5000, 6500, 6000), start_over(5000, 6500));
        // Beyond the branch, redo that still arrives cannot help.
        assert_eq!(code(ask(forwarding(SECOND), FIRST, 5900, 6500, 6000)), Some(RefuseCode::Diverged));
        assert_eq!(code(ask(forwarding(FIRST), FIRST, 5600, 5700, 5500)), Some(RefuseCode::Diverged));
    }

    #[test]
    fn unrelated_peers_and_primaries_are_refused() {
        assert_eq!(code(ask(primary(FIRST), &[(1, 7, 4096)], 5000, 5000, 5000)), Some(RefuseCode::WrongPeer));
        let named = View { expected_name: Some("rome".into()), ..primary(FIRST) };
        assert_eq!(code(ask(named, FIRST, 5000, 5000, 5000)), Some(RefuseCode::WrongPeer));
        let hello = ReceiverHello::new(identity("oslo", Role::Primary, FIRST), None, 0);
        assert_eq!(code(resolve(&primary(FIRST), &hello)), Some(RefuseCode::NotStandby));
        let Verdict::Refuse(replaced) = resolve(&primary(SECOND), &hello) else { panic!("not refused") };
        assert!(replaced.message.contains("has been told that it is replaced"), "{replaced}");
    }

    #[test]
    fn missing_redo_is_refused_with_a_remedy() {
        let Verdict::Refuse(refusal) = ask(primary(FIRST), FIRST, 4200, 4300, 4300) else {
            panic!("not refused")
        };
        assert_eq!(refusal.code, RefuseCode::Gap);
        assert!(
            refusal.message.contains("4300") && refusal.message.contains("standfast reinstate"),
            "{refusal}"
        );
        assert_eq!(code(ask(primary(FIRST), FIRST, 4200, 7000, 5000)), Some(RefuseCode::Gap));
    }

    #[test]
    fn stream_starts_at_the_oldest_redo_here_if_its_checksum_is_known() {
        assert_eq!(ask(primary(FIRST), FIRST, 4500, 7000, 5000), start_over(4500, 7000));
        let at_confirmed = |scn: u64, known: bool| {
            let view = View { crc_at_confirmed: known.then_some(StreamCrc(7)), ..primary(FIRST) };
            let (end, confirmed) =
                (PositionSum { scn: Scn(7000), crc: 1 }, PositionSum { scn: Scn(scn), crc: 7 });
            let applied = confirmed.scn;
            let held = StandbyPositions { end, confirmed, applied, passed: None, log: None };
            let standby = identity("oslo", Role::Standby, FIRST);
            resolve(&view, &ReceiverHello::new(standby, Some(held), 0))
        };
        assert_eq!(at_confirmed(4500, true), start_over(4500, 7000));
        assert_eq!(code(at_confirmed(4499, true)), Some(RefuseCode::Gap), "older than the oldest log");
        assert_eq!(code(at_confirmed(4500, false)), Some(RefuseCode::Gap), "in a log that cannot be read");
    }
}
