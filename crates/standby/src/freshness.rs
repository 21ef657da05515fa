//! How current the data of a standby are, as a machine without clock and I/O.
//!
//! ```text
//!  wanted ──> request to the source at T ──> answer: position P ──> applied up to P ──> current as of T
//! ```
//!
//! No commit that the primary had acknowledged at T is beyond P. T is a moment on this machine's clock, before the request
//! was sent: however long the answer was on its way, the data are at least as current as that.

use standfast_types::Scn;
use std::collections::VecDeque;

/// Answers that wait for apply; of more, some are dropped, so that the moments stay spread.
const ANSWERS_MAX: usize = 64;
/// Requests that wait for their answers; of more, the oldest is given up.
const OPEN_MAX: usize = 8;
/// Nanoseconds after which another request is sent although one waits for its answer: the source forwards redo, and may have
/// lost its own source meanwhile.
const AGAIN_NS: u64 = 1_000_000_000;

/// Order of calls in a stream: `begin`, then `want` and `answered`; `reach` whenever redo was applied.
#[derive(Default)]
pub struct Freshness {
    /// `None` while the source can be asked nothing.
    stream: Option<Stream>,
    /// Number of the last request, in all streams.
    requests: u64,
    answers: VecDeque<Answer>,
    as_of_ns: u64,
}

#[derive(Default)]
struct Stream {
    /// In the order in which they were sent.
    open: VecDeque<Request>,
    /// Asked for after the newest request was sent.
    wanted: bool,
}

#[derive(Clone, Copy)]
struct Request {
    number: u64,
    sent_ns: u64,
}

#[derive(Clone, Copy)]
struct Answer {
    position: Scn,
    as_of_ns: u64,
}

impl Freshness {
    /// A stream has begun. Answers over an earlier one are void: its positions may be of redo that exists no more.
    pub fn begin(&mut self) {
        self.end();
        self.stream = Some(Stream::default());
    }

    /// The stream has ended. What was found out stays true, and gets older.
    pub fn end(&mut self) {
        self.stream = None;
        self.answers.clear();
    }

    /// A session, or a standby that this one forwards to, asks at `now_ns` how current the data are. Returns the number of the request to send now, if any.
    pub fn want(&mut self, now_ns: u64) -> Option<u64> {
        let stream = self.stream.as_mut()?;
        if stream.open.back().is_some_and(|newest| now_ns.saturating_sub(newest.sent_ns) < AGAIN_NS) {
            stream.wanted = true;
            return None;
        }
        self.requests += 1;
        stream.wanted = false;
        if stream.open.len() == OPEN_MAX {
            stream.open.pop_front();
        }
        stream.open.push_back(Request { number: self.requests, sent_ns: now_ns });
        Some(self.requests)
    }

    /// The source has answered `request` with `position`. Returns the number of the next request, if one was wanted
    /// meanwhile; `None` when this end does not wait for that answer.
    pub fn answered(&mut self, request: u64, position: Scn, now_ns: u64) -> Option<Option<u64>> {
        let stream = self.stream.as_mut()?;
        let at = stream.open.iter().position(|open| open.number == request)?;
        // Earlier requests say nothing more.
        let sent_ns = stream.open.drain(..=at).next_back()?.sent_ns;
        let wanted = stream.wanted && stream.open.is_empty();
        // A primary that was restarted may have lost redo that it had captured.
        while self.answers.back().is_some_and(|before| before.position > position) {
            self.answers.pop_back();
        }
        debug_assert!(self.answers.back().is_none_or(|before| before.as_of_ns <= sent_ns));
        if self.answers.len() == ANSWERS_MAX {
            self.drop_one();
        }
        self.answers.push_back(Answer { position, as_of_ns: sent_ns });
        Some(if wanted { self.want(now_ns) } else { None })
    }

    /// Drops the answer that is missed least: that between the two moments that are closest to each other.
    fn drop_one(&mut self) {
        let moment = |at: usize| self.answers.get(at).map_or(0, |answer| answer.as_of_ns);
        let between = 1..self.answers.len().saturating_sub(1);
        if let Some(at) = between.min_by_key(|at| moment(at + 1).saturating_sub(moment(at - 1))) {
            self.answers.remove(at);
        }
    }

    /// Redo is applied up to `applied`. Returns the moment of which the data are current, if that is a later one now.
    pub fn reach(&mut self, applied: Scn) -> Option<u64> {
        let before = self.as_of_ns;
        // In ascending order of positions and moments.
        while let Some(answer) = self.answers.front().filter(|answer| answer.position <= applied) {
            self.as_of_ns = self.as_of_ns.max(answer.as_of_ns);
            self.answers.pop_front();
        }
        (self.as_of_ns > before).then_some(self.as_of_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_as_current_as_the_request_whose_position_is_applied() {
        let mut at = Freshness::default();
        assert_eq!(at.want(5), None, "no source can be asked");
        at.begin();
        assert_eq!(at.want(10), Some(1));
        assert_eq!(at.reach(Scn(100)), None, "no answer yet");
        // The answer was long on its way.
        assert_eq!(at.answered(1, Scn(120), 999), Some(None));
        assert_eq!(at.reach(Scn(119)), None);
        assert_eq!(at.reach(Scn(120)), Some(10));
        assert_eq!(at.reach(Scn(130)), None, "no later moment");
    }

    #[test]
    fn one_request_is_open_and_those_wanted_meanwhile_share_the_next() {
        let mut at = Freshness::default();
        at.begin();
        assert_eq!(at.want(10), Some(1));
        assert_eq!((at.want(11), at.want(12)), (None, None));
        assert_eq!(at.answered(1, Scn(50), 20), Some(Some(2)));
        assert_eq!(at.reach(Scn(50)), Some(10));
        assert_eq!(at.answered(2, Scn(50), 30), Some(None));
        assert_eq!(at.reach(Scn(50)), Some(20));
    }

    #[test]
    fn answers_of_another_stream_or_request_count_for_nothing() {
        let mut at = Freshness::default();
        at.begin();
        assert_eq!(at.want(10), Some(1));
        at.begin();
        assert_eq!(at.answered(1, Scn(5), 20), None, "the stream was another one");
        assert_eq!(at.want(30), Some(2));
        assert_eq!(at.answered(7, Scn(5), 40), None);
        assert!(at.answered(2, Scn(9), 40).is_some());
        assert_eq!(at.answered(2, Scn(5), 41), None, "twice");
        at.end();
        assert_eq!(at.reach(Scn(1_000)), None, "the redo up to there may exist no more");
    }

    #[test]
    fn request_without_an_answer_is_sent_again_and_a_late_answer_counts() {
        let mut at = Freshness::default();
        at.begin();
        assert_eq!(at.want(1), Some(1));
        assert_eq!(at.want(AGAIN_NS), None);
        assert_eq!(at.want(AGAIN_NS + 1), Some(2));
        assert_eq!(at.answered(1, Scn(5), AGAIN_NS + 2), Some(None));
        assert_eq!(at.reach(Scn(5)), Some(1), "as current as when the first was sent");
        assert_eq!(at.answered(2, Scn(5), AGAIN_NS + 3), Some(None));
        assert_eq!(at.reach(Scn(5)), Some(AGAIN_NS + 1));
    }

    #[test]
    fn any_number_of_requests_without_an_answer_takes_little_memory() {
        let mut at = Freshness::default();
        at.begin();
        for second in 1..=1_000 {
            assert_eq!(at.want(second * AGAIN_NS), Some(second));
        }
        assert!(at.stream.as_ref().is_some_and(|stream| stream.open.len() <= OPEN_MAX));
        assert_eq!(at.answered(1, Scn(5), 0), None, "given up");
        assert!(at.answered(999, Scn(5), 0).is_some());
    }

    #[test]
    fn position_that_falls_voids_earlier_answers_beyond_it() {
        let mut at = Freshness::default();
        at.begin();
        assert_eq!(at.want(1), Some(1));
        assert!(at.answered(1, Scn(900), 2).is_some());
        assert_eq!(at.want(3), Some(2));
        assert!(at.answered(2, Scn(700), 4).is_some());
        assert_eq!(at.reach(Scn(700)), Some(3));
    }

    #[test]
    fn any_number_of_answers_waits_for_apply_in_little_memory() {
        let mut at = Freshness::default();
        at.begin();
        for moment in 1..=10_000 {
            let request = at.want(moment).unwrap();
            at.answered(request, Scn(moment), moment).unwrap();
        }
        assert!(at.answers.len() <= ANSWERS_MAX);
        let mut largest = 0;
        let mut reached = 0;
        for applied in 1..=10_000 {
            if let Some(moment) = at.reach(Scn(applied)) {
                (largest, reached) = (largest.max(moment - reached), moment);
            }
        }
        assert_eq!(reached, 10_000);
        assert!(largest < 1_000, "moments are not spread: {largest}");
    }
}
