//! Lives of WALs as text: each line of `testdata/*.txt` is an event, and behind `->` the action that it causes and the
//! state after it. `REGENERATE=1 cargo test` writes the current ones into the files; review the difference before keeping
//! it.

use super::*;
use crate::wal_index::WalIndexHeader;
use std::collections::HashMap;
use std::path::Path;

/// Width of the column of events.
const WIDTH: usize = 64;

struct Event<'a> {
    name: &'a str,
    values: HashMap<&'a str, &'a str>,
}

impl<'a> Event<'a> {
    fn parse(line: &'a str) -> Event<'a> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        Event { name, values: words.map(|word| word.split_once('=').unwrap_or((word, "yes"))).collect() }
    }

    fn number(&self, key: &str) -> Option<u32> {
        self.values.get(key).map(|text| text.parse().unwrap())
    }

    fn is(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|text| *text == "yes")
    }
}

/// A machine and the limits of its looks.
struct Life {
    machine: WalLifecycle,
    limits: Look,
    now: Duration,
}

fn salts(number: u32) -> [u32; 2] {
    [number, 0]
}

impl Life {
    fn new(event: &Event<'_>) -> Life {
        let rhythm = match event.is("standby") {
            true => Rhythm::BetweenBatches,
            false => Rhythm::BehindGate { back_off: Duration::from_millis(200) },
        };
        let limits = Look {
            raw_salts: salts(1),
            database_pages: 20,
            backfill_frames: event.number("backfill").unwrap_or(1000),
            reset_frames: event.number("reset").unwrap_or(3000),
            reset_frames_alone: event.number("alone").unwrap_or(event.number("reset").unwrap_or(3000)),
            ..Look::default()
        };
        let size = PageSize::from_header_field(4096).unwrap();
        Life {
            machine: WalLifecycle::new(!event.is("never_rewrites"), size, rhythm),
            limits,
            now: Duration::ZERO,
        }
    }

    fn happen(&mut self, event: &Event<'_>) -> Action {
        let number = |key: &str| event.number(key);
        let raw_salts = self.limits.raw_salts;
        let machine = &mut self.machine;
        machine.tick(self.now);
        match event.name {
            "pass" => self.now += Duration::from_millis(number("ms").unwrap().into()),
            "look" => {
                self.limits.raw_salts = number("salts").map_or(raw_salts, salts);
                self.limits.database_pages = number("pages").unwrap_or(self.limits.database_pages);
                let look = Look {
                    frames: number("frames").unwrap(),
                    backfilled: number("in_file").unwrap_or(0),
                    grows: !event.is("still"),
                    ..self.limits
                };
                return machine.look(look);
            }
            "snapshot" => {
                let header = number("frames").map(|frames| WalIndexHeader::of_test(raw_salts, frames));
                return machine.snapshot(header.map(|header| WalSnapshot { header, scn: Scn(7) }));
            }
            "snapshots" => {
                let taken = machine.take_snapshots();
                assert_eq!(taken.len() as u32, number("taken").unwrap());
            }
            "backfilled" => {
                let scn = Scn(number("scn").unwrap_or(0).into());
                let suffix = number("behind").map(|backfilled| Suffix::new(raw_salts, backfilled, scn));
                let positions = number("written").map(|written| Positions {
                    raw_salts,
                    written,
                    synced: number("synced").unwrap_or(written),
                    backfilled: number("in_file").unwrap_or(written),
                    stored: number("stored").or(number("in_file")).unwrap_or(written),
                });
                return machine.backfilled(positions, suffix);
            }
            "counted" => return machine.counted(number("pages").unwrap()),
            "rewritten" if event.is("later") => return machine.rewritten(Rewrite::Later),
            "rewritten" if event.is("impossible") => return machine.rewritten(Rewrite::Impossible),
            "rewritten" => {
                self.limits.raw_salts = salts(number("salts").unwrap());
                let frames = number("frames").unwrap();
                return machine.rewritten(Rewrite::Done { raw_salts: self.limits.raw_salts, frames });
            }
            "reset" => return machine.reset(event.is("done")),
            "synced" => machine.synced_upto(Scn(number("upto").unwrap().into())),
            "end_deferral" => machine.end_deferral(),
            "backfill_now" => return machine.backfill_now(),
            "shorten_now" => return machine.shorten_now(),
            other => panic!("unknown event {other}"),
        }
        Action::Rest
    }

    fn state(&self) -> String {
        match self.machine.state() {
            State::Plain => "plain".to_owned(),
            State::Rewritten { frames, .. } => format!("rewritten with {frames}"),
            State::Deferred(suffix) => format!("deferred behind {}", suffix.backfilled()),
        }
    }
}

fn text(action: Action) -> String {
    match action {
        Action::Rest => "rest".to_owned(),
        Action::TakeSnapshot => "take a snapshot".to_owned(),
        Action::Backfill { may_pause, defers } => {
            let pace = if may_pause { "" } else { " without pauses" };
            format!("backfill{pace}{}", if defers { "" } else { ", defer nothing" })
        }
        Action::CountPages { after } => format!("count pages behind {after}"),
        Action::Rewrite => "REWRITE".to_owned(),
        Action::Reset => "RESET".to_owned(),
    }
}

/// The action that an event with this name ends.
fn answered_by(event: &str) -> Option<&'static str> {
    match event {
        "snapshot" => Some("take"),
        "backfilled" => Some("backfill"),
        "counted" => Some("count"),
        "rewritten" => Some("REWRITE"),
        "reset" => Some("RESET"),
        _ => None,
    }
}

fn replay(script: &str) -> String {
    let (mut life, mut last) = (None, Action::Rest);
    let mut lines = Vec::new();
    for line in script.lines() {
        let event = line.split("->").next().unwrap().trim_end();
        if event.is_empty() || event.starts_with('#') {
            lines.push(event.to_owned());
            continue;
        }
        let parsed = Event::parse(event);
        if parsed.name == "new" {
            life = Some(Life::new(&parsed));
            lines.push(event.to_owned());
            continue;
        }
        let life = life.as_mut().expect("`new` comes first");
        if let Some(answered) = answered_by(parsed.name) {
            assert!(text(last).starts_with(answered), "`{event}` answers no `{}`", text(last));
        }
        let action = life.happen(&parsed);
        if !matches!(parsed.name, "snapshots" | "pass" | "synced") {
            last = action;
        }
        lines.push(format!("{event:<WIDTH$} -> {}; {}", text(action), life.state()));
        println!("{}", lines[lines.len() - 1]);
    }
    lines.join("\n") + "\n"
}

#[test]
fn lives_of_wals_match_the_transcripts() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut files: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let expected = std::fs::read_to_string(&file).unwrap();
        let replayed = replay(&expected);
        if std::env::var_os("REGENERATE").is_some() {
            std::fs::write(&file, &replayed).unwrap();
            continue;
        }
        for (number, (expected, got)) in (1..).zip(expected.lines().zip(replayed.lines())) {
            assert_eq!(expected, got, "{}:{number}", file.display());
        }
    }
}

/// Lets events happen that no action asked for.
fn run(script: &str) {
    let mut lines = script.lines().map(Event::parse);
    let mut life = Life::new(&lines.next().unwrap());
    lines.for_each(|event| _ = life.happen(&event));
}

#[test]
#[should_panic = "backfilled before the WAL was synced"]
fn frames_backfilled_before_a_sync_of_the_wal_are_an_error() {
    run("new\nbackfilled written=100 synced=60 in_file=80");
}

#[test]
#[should_panic = "synced beyond the end"]
fn frames_synced_beyond_the_end_of_the_wal_are_an_error() {
    run("new\nbackfilled written=100 synced=101 in_file=80");
}

#[test]
#[should_panic = "a suffix behind frames that the file may lose"]
fn suffix_behind_frames_that_the_file_may_lose_is_an_error() {
    run("new\nbackfilled written=100 in_file=80 stored=0 behind=80 scn=5");
}

#[test]
#[should_panic = "never rewritten"]
fn suffix_of_a_wal_that_is_never_rewritten_is_an_error() {
    run("new never_rewrites\nbackfilled behind=80 scn=5");
}

#[test]
#[should_panic = "rewritten while"]
fn rewriting_a_wal_that_recovery_relies_on_is_an_error() {
    run("new\nbackfilled behind=80 scn=5\nsynced upto=6\nrewritten salts=2 frames=10");
}

#[test]
#[should_panic = "rewritten while"]
fn rewriting_a_wal_without_a_suffix_is_an_error() {
    run("new\nrewritten salts=2 frames=10");
}

#[test]
#[should_panic = "a deferred suffix was synced for a reset"]
fn resetting_a_wal_with_a_deferred_suffix_is_an_error() {
    run("new\nbackfilled behind=80 scn=5\nreset done");
}

#[test]
fn sync_makes_durable_what_the_state_leaves_to_it() {
    let (held, before) = (Scn(99), Scn(7));
    let mut at = Life::new(&Event::parse("new"));
    let mut after = |event: &str| {
        at.happen(&Event::parse(event));
        at.machine.durable_after_sync(held, before)
    };
    assert_eq!(after("backfilled"), held, "all of the WAL is synced");
    assert_eq!(after("backfilled behind=80 scn=20"), Scn(20), "the suffix is not synced");
    assert_eq!(after("backfilled behind=80 scn=5"), before);
    assert_eq!(after("rewritten salts=2 frames=10"), before, "the WAL is not synced yet");
    assert_eq!(after("end_deferral"), held);
}

#[test]
fn length_of_a_wal_is_that_of_the_last_look_and_none_between_batches_once_it_is_long() {
    for (form, once_long) in [("", 300), ("standby", 0)] {
        let mut at = Life::new(&Event::parse(&format!("new {form} backfill=100 reset=300")));
        let mut after = |event: &str| {
            at.happen(&Event::parse(event));
            at.machine.frames()
        };
        assert_eq!(after("look frames=20"), 20, "{form}");
        assert_eq!(after("look frames=299 in_file=299"), 299, "{form}");
        assert_eq!(after("look frames=300 in_file=299"), once_long, "{form}");
        assert_eq!(after("look frames=10 salts=2"), 10, "{form}");
    }
}

#[test]
fn position_for_which_recovery_relies_on_the_wal_does_not_fall() {
    let mut at = Life::new(&Event::parse("new"));
    assert_eq!(at.machine.synced_scn(), Scn::ZERO);
    for (event, synced) in [("synced upto=6", 6), ("synced upto=4", 6), ("look frames=10 salts=2", 6)] {
        at.happen(&Event::parse(event));
        assert_eq!(at.machine.synced_scn(), Scn(synced), "{event}");
    }
}

/// Whatever events come in whatever order, no WAL is rewritten or deferred with the setting off, and none that recovery
/// relies on is rewritten; a WAL with a deferred suffix is not reset.
#[test]
fn no_order_of_events_breaks_the_rules() {
    let mut seed = 1u32;
    let mut draw = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) % below
    };
    let mut seen = HashMap::new();
    for life in 0..4000 {
        let rewrites = life % 4 > 0;
        let form = ["standby ", ""][life as usize % 2];
        let off = if rewrites { "" } else { "never_rewrites" };
        let mut at = Life::new(&Event::parse(&format!("new {form}backfill=200 reset=600 {off}")));
        let (mut frames, mut in_file, mut generation, mut scn, mut synced) = (0, 0, 1, 0u32, 0u32);
        let mut action = Action::Rest;
        for _ in 0..60 {
            *seen.entry(text(action).split(' ').next().unwrap().to_owned()).or_insert(0) += 1;
            assert!(rewrites || !matches!(action, Action::Rewrite | Action::CountPages { .. }));
            let event = match action {
                Action::Rest if draw(12) == 0 => {
                    synced = scn;
                    format!("synced upto={scn}")
                }
                Action::Rest if draw(30) == 0 => "end_deferral".to_owned(),
                Action::Rest => {
                    frames += draw(150);
                    scn += 1;
                    let still = if draw(5) == 0 { "still" } else { "" };
                    at.now += Duration::from_millis(draw(300).into());
                    format!(
                        "look frames={frames} in_file={in_file} salts={generation} pages={} {still}",
                        draw(40)
                    )
                }
                Action::TakeSnapshot => format!("snapshot frames={frames}"),
                Action::Backfill { defers, .. } => {
                    assert_eq!(defers, rewrites);
                    in_file = frames.saturating_sub(draw(3));
                    match defers && in_file > 1 && draw(4) > 0 {
                        true => format!(
                            "backfilled written={frames} in_file={in_file} behind={} scn={scn}",
                            in_file - 1
                        ),
                        false => format!("backfilled written={frames} in_file={in_file}"),
                    }
                }
                Action::CountPages { .. } => format!("counted pages={}", draw(300)),
                Action::Rewrite => {
                    let State::Deferred(suffix) = at.machine.state() else { panic!("without a suffix") };
                    assert!(u64::from(synced) <= suffix.scn().0, "recovery relies on the WAL");
                    match draw(3) {
                        0 => "rewritten later".to_owned(),
                        1 => "rewritten impossible".to_owned(),
                        _ => {
                            generation += 1;
                            (frames, in_file) = (1 + draw(100), 0);
                            format!("rewritten salts={generation} frames={frames}")
                        }
                    }
                }
                Action::Reset => {
                    assert_eq!(at.machine.deferred(), None);
                    let done = draw(2) == 0;
                    if done {
                        generation += 1;
                        (frames, in_file) = (0, 0);
                    }
                    format!("reset {}", if done { "done" } else { "done=no" })
                }
            };
            action = at.happen(&Event::parse(&event));
            assert!(rewrites || at.machine.state() == State::Plain);
        }
    }
    for each in ["rest", "take", "backfill", "count", "REWRITE", "RESET"] {
        assert!(seen.get(each).copied().unwrap_or(0) > 100, "{each}: {seen:?}");
    }
}
