//! The links for `net advise`, the expected verdict on each, and why.

use serde_json::Value;
use standfast_wan::settings::{Change, Nanos, Queue, Settings, WHOLE};

use super::lab::link;
use super::readings::{Verdict, verdicts};

/// Fewest links for a test of the advice to count.
pub(in super::super) const LEAST_LINKS: usize = 12;

/// Grade of a transport mode and the names of all its causes.
type Expected = (&'static str, &'static [&'static str]);

/// A link with its hosts and its redo, and the expected verdicts on ASYNC, FASTSYNC and SYNC AFFIRM.
pub(super) struct Link {
    pub(super) name: &'static str,
    pub(super) rtt_ms: f64,
    /// Megabits per second; below, those of the way back when they differ.
    pub(super) megabits: f64,
    pub(super) megabits_back: Option<f64>,
    pub(super) loss_percent: f64,
    pub(super) jitter_ms: f64,
    /// Bytes that may wait for the transmitter; None for the emulator's default.
    pub(super) queue: Option<u64>,
    /// Largest automatic send buffer of the primary; below, receive buffer of the standby; bytes.
    pub(super) send_ceiling: Option<u64>,
    pub(super) receive_ceiling: Option<u64>,
    /// The standby's durable writes take tens of milliseconds.
    pub(super) slow_disk: bool,
    /// Peak rate of the redo in MiB/s, as given to `advise`.
    pub(super) peak: f64,
    pub(super) expected: [Expected; 3],
    /// Why the expected verdict is right.
    pub(super) why: &'static str,
}

const PASS: Expected = ("PASS", &[]);
const FAR: Expected = ("WARN", &["distance"]);

/// A suitable queue for a narrow link: ten segments, or 12 ms at 10 Mbit/s.
const SHORT_QUEUE: Option<u64> = Some(15_000);

/// The link from which the others differ.
const GOOD: Link = Link {
    name: "good",
    rtt_ms: 0.5,
    megabits: 1000.0,
    megabits_back: None,
    loss_percent: 0.0,
    jitter_ms: 0.0,
    queue: None,
    send_ceiling: None,
    receive_ceiling: None,
    slow_disk: false,
    peak: 20.0,
    expected: [PASS; 3],
    why: "four times the bandwidth that is required, and no distance",
};

pub(super) const LINKS: &[Link] = &[
    GOOD,
    Link {
        name: "good, another town",
        rtt_ms: 3.0,
        why: "commits bear 3 ms; automatic buffers cover 375 KB of bandwidth x delay",
        ..GOOD
    },
    Link {
        name: "narrow, little redo",
        rtt_ms: 2.0,
        megabits: 10.0,
        queue: SHORT_QUEUE,
        peak: 0.5,
        why: "1.2 MB/s is nearly twice of what 0.5 MiB/s requires: a narrow link is no bad link",
        ..GOOD
    },
    Link {
        name: "narrow, long queue",
        rtt_ms: 2.0,
        megabits: 10.0,
        queue: Some(128 << 10),
        peak: 0.5,
        expected: [PASS, ("WARN", &["queueing"]), ("WARN", &["queueing"])],
        why: "whatever fills the link fills a queue of 100 ms as well, and commits wait behind it",
        ..GOOD
    },
    Link {
        name: "jitter",
        rtt_ms: 3.0,
        jitter_ms: 1.0,
        why: "a delay that wanders loses nothing and keeps the order",
        ..GOOD
    },
    Link {
        name: "too slow",
        rtt_ms: 2.0,
        megabits: 10.0,
        queue: SHORT_QUEUE,
        peak: 5.0,
        expected: [("FAIL", &["bandwidth"]); 3],
        why: "1.2 MB/s is a quarter of the peak: no mode works, whatever the settings",
        ..GOOD
    },
    Link {
        name: "slow towards the standby only",
        rtt_ms: 2.0,
        megabits: 10.0,
        megabits_back: Some(1000.0),
        queue: SHORT_QUEUE,
        peak: 5.0,
        expected: [("FAIL", &["bandwidth"]); 3],
        why: "redo goes one way, and that is the slow one",
        ..GOOD
    },
    Link {
        name: "no headroom",
        rtt_ms: 2.0,
        megabits: 100.0,
        peak: 10.0,
        expected: [("WARN", &["bandwidth"]); 3],
        why: "12.1 MB/s carries the peak of 10.5 MB/s, but not 30 % more",
        ..GOOD
    },
    Link {
        name: "far",
        rtt_ms: 25.0,
        peak: 5.0,
        expected: [PASS, FAR, FAR],
        why: "25 ms is over the 5 ms that commits bear and below the 50 ms that rule SYNC out; ASYNC does not wait",
        ..GOOD
    },
    Link {
        name: "too far",
        rtt_ms: 100.0,
        megabits: 100.0,
        peak: 2.0,
        expected: [PASS, ("FAIL", &["distance"]), ("FAIL", &["distance"])],
        why: "a commit that waits 100 ms is no choice; ASYNC does not wait",
        ..GOOD
    },
    Link {
        name: "lossy",
        rtt_ms: 4.0,
        loss_percent: 1.0,
        peak: 1.0,
        expected: [("WARN", &["loss"]); 3],
        why: "what TCP gets out of 1 % loss at 4 ms, some MB/s, carries 1 MiB/s; the loss wants mending all the same",
        ..GOOD
    },
    Link {
        name: "too lossy",
        rtt_ms: 20.0,
        loss_percent: 2.0,
        peak: 20.0,
        expected: [("FAIL", &["loss"]), ("FAIL", &["loss", "distance"]), ("FAIL", &["loss", "distance"])],
        why: "a connection gets some 0.7 MB/s out of 2 % loss at 20 ms, sixteen of them less than the peak: not the \
              bandwidth is at fault",
        ..GOOD
    },
    Link {
        name: "small receive buffers",
        rtt_ms: 4.0,
        receive_ceiling: Some(32 << 10),
        expected: [("WARN", &["buffers"]); 3],
        why: "automatic buffers of 32 KiB carry 8 MB/s at 4 ms, of 27 required; larger ones carry it",
        ..GOOD
    },
    Link {
        name: "small send buffers",
        rtt_ms: 4.0,
        send_ceiling: Some(32 << 10),
        expected: [("WARN", &["buffers"]); 3],
        why: "the same at the other end",
        ..GOOD
    },
    Link {
        name: "slow far disk",
        rtt_ms: 1.0,
        slow_disk: true,
        peak: 5.0,
        expected: [PASS, PASS, ("WARN", &["far_disk"])],
        why: "only SYNC AFFIRM waits for the disk; FASTSYNC is the way out",
        ..GOOD
    },
    Link {
        name: "far, and a slow far disk",
        rtt_ms: 25.0,
        slow_disk: true,
        peak: 5.0,
        expected: [PASS, FAR, ("WARN", &["distance", "far_disk"])],
        why: "both are over their bounds, and both are to be named",
        ..GOOD
    },
];

impl Link {
    /// Settings of the link, and the change that applies to the way back.
    pub(super) fn settings(&self) -> (Settings, Change) {
        let there = Settings {
            queue: self.queue.map_or(Queue::Auto, Queue::Bytes),
            loss: (self.loss_percent / 100.0 * f64::from(WHOLE)) as u32,
            jitter: (self.jitter_ms * 1e6) as Nanos,
            ..link(self.rtt_ms, self.megabits)
        };
        let rate = self.megabits_back.map(|megabits| link(self.rtt_ms, megabits).rate);
        (there, Change { rate, ..Change::default() })
    }

    /// Compares the document of `net advise --json` with the expected verdicts; the error names every difference.
    pub(super) fn judge(&self, document: &Value) -> Result<(), String> {
        const MODES: [&str; 3] = ["ASYNC", "FASTSYNC", "SYNC AFFIRM"];
        let verdicts = verdicts(document).map_err(|error| error.to_string())?;
        let mut differences = Vec::new();
        for (mode, (grade, causes)) in MODES.iter().zip(self.expected) {
            let verdict = verdicts.iter().find(|verdict| verdict.mode == *mode);
            let found = verdict.map_or_else(|| "nothing".to_owned(), in_words);
            let expected = words(grade, causes.to_vec());
            if found != expected {
                differences.push(format!("{mode} {found} instead of {expected}"));
            }
        }
        if differences.is_empty() { Ok(()) } else { Err(differences.join(", ")) }
    }
}

fn in_words(verdict: &Verdict<'_>) -> String {
    words(verdict.grade, verdict.causes.clone())
}

/// Grade and causes as text, with the causes sorted and without duplicates.
fn words(grade: &str, mut causes: Vec<&str>) -> String {
    causes.sort_unstable();
    causes.dedup();
    format!("{grade} {}", causes.join("+")).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn advice(modes: [(&str, &str, &[&str]); 3]) -> Value {
        let verdict = |(mode, grade, causes): (&str, &str, &[&str])| {
            let causes: Vec<Value> =
                causes.iter().map(|name| json!({ "name": name, "grade": grade })).collect();
            json!({ "mode": mode, "grade": grade, "causes": causes })
        };
        json!({ "to_server": { "advice": { "verdicts": modes.map(verdict) } } })
    }

    #[test]
    fn wrong_grade_and_missing_or_extra_cause_are_named() {
        let far = LINKS.iter().find(|link| link.name == "far").unwrap();
        let right = [
            ("ASYNC", "PASS", &[][..]),
            ("FASTSYNC", "WARN", &["distance"][..]),
            ("SYNC AFFIRM", "WARN", &["distance", "distance"][..]),
        ];
        assert_eq!(far.judge(&advice(right)), Ok(()));
        let mut wrong = right;
        wrong[0].1 = "WARN";
        assert_eq!(far.judge(&advice(wrong)), Err("ASYNC WARN instead of PASS".into()));
        let mut wrong = right;
        wrong[1].2 = &["buffers"];
        wrong[2].2 = &["far_disk", "distance"];
        let difference = far.judge(&advice(wrong)).unwrap_err();
        assert!(difference.contains("FASTSYNC WARN buffers instead of WARN distance"), "{difference}");
        assert!(difference.contains("WARN distance+far_disk instead of WARN distance"), "{difference}");
        assert!(far.judge(&json!({})).unwrap_err().contains("/to_server/advice/verdicts"));
        let none = json!({ "to_server": { "advice": { "verdicts": [] } } });
        assert!(far.judge(&none).unwrap_err().contains("ASYNC nothing"));
    }

    #[test]
    fn every_cause_and_the_faultless_case_have_a_link() {
        assert!(LINKS.len() >= LEAST_LINKS);
        for cause in ["bandwidth", "distance", "loss", "buffers", "far_disk", "queueing"] {
            let named = |link: &&Link| link.expected.iter().any(|(_, causes)| causes.contains(&cause));
            assert!(LINKS.iter().any(|link| named(&link)), "{cause}");
        }
        assert!(LINKS.iter().filter(|link| link.expected == [PASS; 3]).count() >= 2);
        for (nth, link) in LINKS.iter().enumerate() {
            assert!(LINKS[..nth].iter().all(|other| other.name != link.name), "{}", link.name);
            let bad = link.expected.iter().any(|(grade, _)| *grade != "PASS");
            assert_eq!(bad, link.expected.iter().any(|(_, causes)| !causes.is_empty()), "{}", link.name);
        }
    }

    #[test]
    fn return_path_differs_only_where_the_table_defines_it() {
        let back = |name: &str| LINKS.iter().find(|link| link.name == name).unwrap().settings().1;
        assert_eq!(back("good"), Change::default());
        assert_eq!(back("slow towards the standby only").rate, Some(Some(1_000_000_000)));
        let lossy = LINKS.iter().find(|link| link.name == "lossy").unwrap().settings().0;
        assert_eq!(lossy.loss, WHOLE / 100);
    }
}
