//! Application processes that write continuously and record what was acknowledged.

use crate::support::{A_WHILE, INSERT, Place};
use standfast_campaign::application::client::Answer;
use standfast_campaign::process::await_condition;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Range of ids of one writer; far more than it can write.
const IDS: i64 = 1_000_000;
/// Pause between transactions: some load, on a machine that others use as well.
const PAUSE: Duration = Duration::from_millis(5);

/// Ends all writers, including those that pause.
#[derive(Default)]
struct Stop {
    reported: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn tell(&self) {
        *self.reported.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Whether the order comes within `time`.
    fn comes_within(&self, time: Duration) -> bool {
        *self
            .changed
            .wait_timeout_while(self.reported.lock().unwrap(), time, |reported| !*reported)
            .unwrap()
            .0
    }
}

/// Each writer has one process, and writes one row a transaction, with ids of its own in ascending order.
pub struct Writers {
    stop: Arc<Stop>,
    abandon: Arc<AtomicBool>,
    acknowledged: Vec<Arc<AtomicI64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    pub fn start(place: &Place, database: &Path, count: i64) -> Writers {
        let mut writers = Writers {
            stop: Arc::default(),
            abandon: Arc::default(),
            acknowledged: Vec::new(),
            threads: Vec::new(),
        };
        for writer in 1..=count {
            let (stop, abandon) = (writers.stop.clone(), writers.abandon.clone());
            let acknowledged = Arc::new(AtomicI64::new(0));
            writers.acknowledged.push(acknowledged.clone());
            let mut application = place.application(database);
            writers.threads.push(std::thread::spawn(move || {
                while !stop.comes_within(PAUSE) {
                    let id = writer * IDS + acknowledged.load(SeqCst) + 1;
                    let sql = INSERT.replace("(x) VALUES(", &format!("(id, x) VALUES({id}, "));
                    application.send(&sql);
                    // A commit that fails, or is not answered before the end of the test, was not acknowledged.
                    let answer = loop {
                        match application.answer_within(A_WHILE) {
                            Some(answer) => break answer,
                            None if abandon.load(SeqCst) => return,
                            None => {}
                        }
                    };
                    if !matches!(answer, Answer::Rows(_)) {
                        return;
                    }
                    acknowledged.fetch_add(1, SeqCst);
                }
            }));
        }
        writers
    }

    pub fn acknowledged(&self) -> Vec<i64> {
        self.acknowledged.iter().map(|writer| writer.load(SeqCst)).collect()
    }

    /// Waits until every writer has had at least two more commits acknowledged: the second one began after this call.
    #[track_caller]
    pub fn await_progress(&self) {
        let before = self.acknowledged();
        await_condition("every writer commits", crate::support::TIMEOUT, || {
            let now = self.acknowledged();
            let all = now.iter().zip(&before).all(|(now, before)| *now > before + 1);
            Ok(if all { Ok(()) } else { Err(format!("{before:?} became {now:?}")) })
        })
        .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Lets every writer finish its transaction; none may have failed. Returns the commits acknowledged to each.
    #[track_caller]
    pub fn finish(mut self) -> Acknowledged {
        let running = self.threads.iter().all(|thread| !thread.is_finished());
        assert!(running, "a writer has failed: {:?}", self.acknowledged());
        self.stop.tell();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        self.noted()
    }

    /// Returns what was acknowledged so far; the writers continue.
    pub fn noted(&self) -> Acknowledged {
        Acknowledged(self.acknowledged())
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.tell();
        self.abandon.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            // A panic of a writer has been printed already.
            let _ = thread.join();
        }
    }
}

/// Number of commits acknowledged to each writer.
#[derive(Debug)]
pub struct Acknowledged(Vec<i64>);

impl Acknowledged {
    /// Asserts that every acknowledged row is in `database`.
    #[track_caller]
    pub fn all_in(&self, database: &Path) {
        let connection = standfast_campaign::verify::open_plain(database).unwrap();
        for (writer, acknowledged) in (1..).zip(&self.0) {
            let range = (writer * IDS + 1, writer * IDS + acknowledged);
            let there: i64 = connection
                .query_row("SELECT count(*) FROM t WHERE id BETWEEN ?1 AND ?2", range, |row| row.get(0))
                .unwrap();
            assert_eq!(there, *acknowledged, "of writer {writer}, in {}", database.display());
        }
    }
}
