//! Paces archived logs while commits wait for other destinations, so that the logs do not delay the answers of those
//! destinations. Both kinds of traffic share processors, disks and network cards here, and may share them at the other
//! end. Pure; all times in nanoseconds. Reasons: `docs/decisions/0022-pace-of-archivers.md`.

/// Shortest interval to judge.
const INTERVAL_NS: u64 = 100_000_000;
/// Answers that a judgement needs. With fewer within [`SILENCE_NS`], hardly a commit waits.
const ENOUGH: u32 = 20;
const SILENCE_NS: u64 = 1_000_000_000;
/// Up to one answer in this many may be late.
const LATE_ONE_IN: u32 = 50;
/// An answer is late if it takes 25 % longer than usual plus this, an allowance for disks and processors.
const LATE_NS: f64 = 500_000.0;
/// Lowest rate, bytes per second: below it a gap would never end.
const LEAST: f64 = 16e6;
/// The usual time is a moving mean of about this many answers.
const MEMORY: f64 = 256.0;

/// Usual answer time of one destination while no archived log is sent.
#[derive(Debug, Default)]
pub struct Usual {
    /// 0: not known yet.
    mean_ns: f64,
}

/// Pace of the archivers.
#[derive(Debug, Default)]
pub struct Pace {
    /// Bytes per second; `None`: unlimited.
    rate: Option<f64>,
    /// When the next chunk may be sent.
    next_ns: u64,
    /// When the last chunk was sent.
    sent_ns: u64,
    interval: Interval,
}

#[derive(Debug, Default)]
struct Interval {
    began_ns: u64,
    answers: u32,
    late: u32,
    bytes: u64,
}

impl Pace {
    /// Records the answer to a commit's redo by a destination that commits wait for; `usual` is that destination's
    /// usual answer time.
    pub fn answered(&mut self, now_ns: u64, took_ns: u64, usual: &mut Usual) {
        let took = took_ns as f64;
        // Not known yet: the first answer, while archived logs are sent, becomes the reference.
        if usual.mean_ns == 0.0 {
            usual.mean_ns = took;
        }
        if now_ns.saturating_sub(self.sent_ns) > SILENCE_NS {
            usual.mean_ns += (took - usual.mean_ns) / MEMORY;
            return;
        }
        self.interval.answers += 1;
        self.interval.late += u32::from(took > usual.mean_ns * 1.25 + LATE_NS);
    }

    /// How long the next `bytes` must wait.
    pub fn wait_ns(&mut self, now_ns: u64, bytes: u64) -> u64 {
        self.judge(now_ns);
        self.interval.bytes += bytes;
        self.sent_ns = now_ns;
        let Some(rate) = self.rate else { return 0 };
        let at_ns = self.next_ns.max(now_ns);
        self.next_ns = at_ns + (bytes as f64 / rate * 1e9) as u64;
        at_ns - now_ns
    }

    fn judge(&mut self, now_ns: u64) {
        let Interval { began_ns, answers, late, bytes } = self.interval;
        let lasted_ns = now_ns.saturating_sub(began_ns);
        if lasted_ns < INTERVAL_NS || (answers < ENOUGH && lasted_ns < SILENCE_NS) {
            return;
        }
        self.interval = Interval { began_ns: now_ns, ..Interval::default() };
        if answers < ENOUGH || lasted_ns > 2 * SILENCE_NS {
            self.rate = None;
        } else if late * LATE_ONE_IN > answers {
            let went = bytes as f64 / lasted_ns as f64 * 1e9;
            self.rate = Some((self.rate.map_or(went, |rate| rate.min(went)) * 0.7).max(LEAST));
        } else {
            self.rate = self.rate.map(|rate| rate * 1.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const CHUNK: u64 = 1 << 20;

    /// A second in which chunks go as fast as they may, with an answer every millisecond that took `answer_ms`. Returns
    /// the bytes sent.
    fn second(pace: &mut Pace, usual: &mut Usual, from_ns: u64, answer_ms: impl Fn(u64) -> u64) -> u64 {
        let (mut went, mut free_ns) = (0, from_ns);
        for ms in 0..1000 {
            let now_ns = from_ns + ms * MS;
            pace.answered(now_ns, answer_ms(ms) * MS, usual);
            // The network takes a chunk every ten milliseconds.
            if now_ns >= free_ns {
                free_ns = now_ns + pace.wait_ns(now_ns, CHUNK).max(10 * MS);
                went += CHUNK;
            }
        }
        went
    }

    /// A second in which no archived log is sent and answers take `answer_ms`.
    fn usual(pace: &mut Pace, answer_ms: u64) -> Usual {
        let mut usual = Usual::default();
        (0..1000).for_each(|ms| pace.answered((10_000 + ms) * MS, answer_ms * MS, &mut usual));
        usual
    }

    #[test]
    fn gap_transfer_is_unthrottled_when_no_commit_waits() {
        let mut pace = Pace::default();
        assert!((0..1000).all(|n| pace.wait_ns(n * 10 * MS, CHUNK) == 0));
    }

    #[test]
    fn usual_answer_times_do_not_throttle_gap_transfer() {
        let mut pace = Pace::default();
        let mut usual = usual(&mut pace, 10);
        assert_eq!(second(&mut pace, &mut usual, 11_000 * MS, |_| 11), 100 * CHUNK);
    }

    #[test]
    fn late_answer_threshold_depends_on_the_destination() {
        let mut pace = Pace::default();
        let (mut near, mut far) = (usual(&mut pace, 1), usual(&mut pace, 20));
        for ms in 11_000..12_000 {
            pace.answered(ms * MS, MS, &mut near);
            pace.answered(ms * MS, 20 * MS, &mut far);
            assert_eq!(pace.wait_ns(ms * MS, CHUNK), 0);
        }
    }

    #[test]
    fn late_answers_throttle_gap_transfer_until_they_recover() {
        let mut pace = Pace::default();
        let mut usual = usual(&mut pace, 10);
        let seconds: Vec<u64> = (11..18)
            .map(|s| second(&mut pace, &mut usual, s * 1000 * MS, |ms| if ms % 10 == 0 { 30 } else { 10 }))
            .collect();
        assert!(seconds[0] < 90 * CHUNK, "{seconds:?}");
        let least = seconds[6];
        assert!((LEAST as u64 - CHUNK..=LEAST as u64 + CHUNK).contains(&least), "{seconds:?}");
        let faster = (18..22).map(|s| second(&mut pace, &mut usual, s * 1000 * MS, |_| 10)).last();
        assert!(faster > Some(2 * least), "{faster:?} after {least}");
    }

    #[test]
    fn gap_transfer_speeds_up_when_commits_end() {
        let mut pace = Pace::default();
        let mut usual = usual(&mut pace, 10);
        (11..18).for_each(|s| {
            second(&mut pace, &mut usual, s * 1000 * MS, |_| 30);
        });
        let waits: Vec<u64> = (0..300).map(|n| pace.wait_ns(18_000 * MS + n * 10 * MS, CHUNK)).collect();
        assert!(waits[0] > 0 && waits[299] == 0, "{waits:?}");
    }

    #[test]
    fn usual_answer_time_is_a_moving_mean_of_answers_beside_no_archived_logs() {
        let mut pace = Pace::default();
        let mut usual = Usual::default();
        // Archived logs were sent within the last second, a second ago included: only the first answer counts.
        pace.wait_ns(5_000 * MS, CHUNK);
        pace.answered(6_000 * MS, 10 * MS, &mut usual);
        pace.answered(6_000 * MS, 90 * MS, &mut usual);
        assert_eq!(usual.mean_ns, (10 * MS) as f64);
        pace.answered(6_000 * MS + 1, 266 * MS, &mut usual);
        assert_eq!(usual.mean_ns, (11 * MS) as f64, "a 256th of the way");
        pace.answered(7_000 * MS, 11 * MS, &mut usual);
        assert_eq!(usual.mean_ns, (11 * MS) as f64);
    }

    #[test]
    fn answer_is_late_from_a_quarter_and_half_a_millisecond_more_on() {
        for (took_ns, is_late) in [(13 * MS, 0), (13 * MS + 1, 1)] {
            let mut pace = Pace::default();
            let mut usual = Usual { mean_ns: (10 * MS) as f64 };
            pace.wait_ns(100 * MS, CHUNK);
            pace.answered(100 * MS, took_ns, &mut usual);
            assert_eq!((pace.interval.answers, pace.interval.late), (1, is_late), "{took_ns}");
        }
    }

    #[test]
    fn first_late_interval_slows_to_seven_tenths_of_all_chunks_that_went_in_it() {
        let mut pace = Pace::default();
        let mut usual = Usual { mean_ns: (10 * MS) as f64 };
        for ms in 10_000..10_100 {
            assert_eq!(pace.wait_ns(ms * MS, CHUNK), 0);
            pace.answered(ms * MS, 30 * MS, &mut usual);
        }
        pace.wait_ns(10_100 * MS, CHUNK);
        assert_eq!(pace.rate.map(f64::round), Some(700.0 * CHUNK as f64), "a thousand in a second");
    }

    /// Judges an interval that ends now, in which so much was sent and answered.
    fn judged(pace: &mut Pace, lasted_ns: u64, answers: u32, late: u32, bytes: u64) -> Option<u64> {
        pace.interval = Interval { began_ns: 50_000 * MS, answers, late, bytes };
        pace.judge(50_000 * MS + lasted_ns);
        pace.rate.map(|rate| rate as u64)
    }

    #[test]
    fn rate_follows_from_what_went_and_how_many_answers_were_late() {
        let slowed = || Pace { rate: Some(100e6), ..Pace::default() };
        // 200 bytes a millisecond are slowed to 140, unless they were slower already.
        let went = 200_000 * 1000;
        assert_eq!(judged(&mut Pace::default(), 1_000 * MS, 100, 3, went), Some(140_000_000));
        assert_eq!(judged(&mut slowed(), 1_000 * MS, 100, 3, went), Some(70_000_000));
        assert_eq!(judged(&mut slowed(), 1_000 * MS, 100, 3, 1_000), Some(LEAST as u64));
        // One in fifty is usual.
        assert_eq!(judged(&mut slowed(), 1_000 * MS, 100, 2, went), Some(110_000_000));
        assert_eq!(judged(&mut Pace::default(), 1_000 * MS, 100, 2, went), None);
        // Too few answers: hardly a commit waits.
        assert_eq!(judged(&mut slowed(), 1_000 * MS, ENOUGH - 1, 19, went), None);
        assert_eq!(judged(&mut slowed(), 1_000 * MS, ENOUGH, 20, went), Some(70_000_000));
        assert_eq!(judged(&mut slowed(), 2_000 * MS, 100, 100, went), Some(70_000_000));
        assert_eq!(judged(&mut slowed(), 2_001 * MS, 100, 100, went), None, "nothing was sent for long");
        // Not yet.
        assert_eq!(judged(&mut slowed(), 999 * MS, ENOUGH - 1, 19, went), Some(100_000_000));
        assert_eq!(judged(&mut slowed(), 999 * MS, ENOUGH, 20, went), Some(70_000_000), "enough answers");
        assert_eq!(judged(&mut slowed(), 99 * MS, 100, 100, went), Some(100_000_000));
        assert_eq!(judged(&mut slowed(), 100 * MS, 100, 100, went / 10), Some(70_000_000));
    }
}
