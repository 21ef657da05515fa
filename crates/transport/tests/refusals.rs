//! The effect of each refusal code on commits, and that the documentation states it.

use standfast_transport::*;
use standfast_types::Scn;
use std::time::Duration;

const NET_TIMEOUT: Duration = Duration::from_secs(8);
const REOPEN: Duration = Duration::from_secs(15);

/// Codes after which commits continue without the destination immediately. When adding one, say in `docs/protocol.md`
/// why waiting for such a destination is useless.
const AT_ONCE: [RefuseCode; 6] = [
    RefuseCode::Stopping,
    RefuseCode::Version,
    RefuseCode::WrongPeer,
    RefuseCode::NotStandby,
    RefuseCode::Diverged,
    RefuseCode::Gap,
];

fn refused_with(code: RefuseCode) -> Destination {
    let config = DestinationConfig {
        name: "oslo".into(),
        mode: TransportMode::SyncAffirm,
        net_timeout: NET_TIMEOUT,
        reopen: REOPEN,
        max_failure: 0,
        grouped: false,
        on_timeout: OnTimeout::Degrade,
        sync_latency: Duration::ZERO,
    };
    let mut at = Destination::new(config, true, Duration::ZERO);
    assert!(at.tick(Duration::ZERO, Scn(5000)).is_none());
    at.connected(Duration::ZERO);
    at.refused(Duration::ZERO, Refusal::new(code, "because"));
    at
}

#[test]
fn only_listed_refusals_degrade_before_the_net_timeout() {
    for code in RefuseCode::ALL {
        let mut at = refused_with(code);
        assert_eq!(at.is_required(), !AT_ONCE.contains(&code), "{code}");
        if at.is_required() {
            let retry = at.connect_due(Duration::ZERO).unwrap();
            assert!(retry < Duration::from_secs(1), "{code}: tried again only after {retry:?}");
        }
        at.tick(NET_TIMEOUT - Duration::from_millis(1), Scn(5000));
        assert_eq!(at.is_required(), !AT_ONCE.contains(&code), "{code}");
        at.tick(NET_TIMEOUT, Scn(5000));
        assert!(!at.is_required(), "{code}: commits wait longer than the net timeout");
    }
}

#[test]
fn documentation_lists_the_same_immediate_refusals() {
    let page = include_str!("../../../docs/protocol.md");
    for code in RefuseCode::ALL {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{code}` |")));
        let row = row.unwrap_or_else(|| panic!("{code} is not in docs/protocol.md"));
        let at_once = row.split('|').nth(2).unwrap().trim() == "at once";
        assert_eq!(at_once, AT_ONCE.contains(&code), "{row}");
    }
}
