//! Some seeds of each kind of arbiter; `standfast-campaign arbitration` runs more.

use standfast_voices::{Kind, run};

fn seeds_of(kind: Kind) {
    let count = std::env::var("STANDFAST_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let first: u64 = std::env::var("STANDFAST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let trace = std::env::var_os("STANDFAST_SEED").is_some();
    let count = if trace { 1 } else { count };
    let mut promotions = 0;
    let mut failed = Vec::new();
    for seed in first..first + count {
        match run(seed, kind, trace) {
            Ok(report) => promotions += report.promotions,
            Err(finding) => failed.push((seed, finding)),
        }
    }
    assert!(failed.is_empty(), "{} of {count} seeds of {kind:?}: {:?}", failed.len(), failed.first());
    assert!(promotions > count / 4 || trace, "{promotions} failovers in {count} seeds");
}

#[test]
fn two_of_three_voices_with_an_observer_lose_nothing() {
    seeds_of(Kind::Observer);
}

#[test]
fn two_of_three_voices_with_a_store_of_revisions_lose_nothing() {
    seeds_of(Kind::Revisions);
}

#[test]
fn two_of_three_voices_with_a_store_of_objects_lose_nothing() {
    seeds_of(Kind::Objects);
}
