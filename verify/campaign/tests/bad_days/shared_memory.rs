//! Processes that write garbage into the shared memory, truncate it, or replace it by their own.

use crate::support::{
    Client, INSERT, Place, SQLITE_READONLY, assert_same, await_alert, must, rows, segment_of, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_session::published_path;
use standfast_testkit::Rng;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SQLITE_BUSY: i32 = 5;
/// A user id without an account.
const OTHER_USER: u32 = 60_001;
const TIMEOUT: Duration = Duration::from_secs(60);

/// How often everything is overwritten: `STANDFAST_TRUST_ROUNDS`, small by default.
fn rounds() -> usize {
    std::env::var("STANDFAST_TRUST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(12)
}

/// Writes random numbers, large numbers and zeros into every word, as any process can that may write the file.
fn scribble(path: &Path, rng: &mut Rng) {
    let file = File::options().write(true).open(path).unwrap();
    let word = |rng: &mut Rng| match rng.below(4) {
        0 => u64::MAX,
        1 => 0,
        2 => rng.below(1 << 16),
        _ => rng.below(u64::MAX),
    };
    let words: Vec<u8> =
        (0..file.metadata().unwrap().len() / 8).flat_map(|_| word(rng).to_ne_bytes()).collect();
    file.write_all_at(&words, 0).unwrap();
}

/// Eight applications that commit to two databases.
struct Family {
    clients: Vec<Client>,
    /// Answers that arrived while no commit could become durable.
    early: Vec<Option<Answer>>,
    databases: [PathBuf; 2],
}

impl Family {
    fn of(place: &Place, databases: [PathBuf; 2]) -> Family {
        let clients = (0..8).map(|nth| place.application(&databases[nth % 2])).collect();
        Family { clients, early: Vec::new(), databases }
    }

    fn send(&mut self) {
        self.clients.iter_mut().for_each(|client| client.send(INSERT));
    }

    fn rows(&self) -> [i64; 2] {
        [rows(&self.databases[0]), rows(&self.databases[1])]
    }

    /// Returns how many commits were acknowledged in each database; all others must have failed with one of `codes`.
    fn answers(&mut self, codes: &[i32]) -> [i64; 2] {
        let mut acknowledged = [0; 2];
        let mut early = std::mem::take(&mut self.early);
        early.resize_with(self.clients.len(), || None);
        for (nth, (client, early)) in self.clients.iter().zip(early).enumerate() {
            match early.unwrap_or_else(|| client.answer()) {
                Answer::Rows(_) => acknowledged[nth % 2] += 1,
                Answer::Failed { code, .. } if codes.contains(&(code & 0xFF)) => {}
                other => panic!("{other:?}; it printed: {}", client.printed()),
            }
        }
        acknowledged
    }
}

/// Sets up a primary without a standby, applications on two of its databases, and the path of the shared memory that
/// applications may write.
fn primary_with_family(place: &Place) -> (Instance, Family, PathBuf) {
    let (primary, first) = place.protecting();
    let second = place.database("second.db");
    must(&primary, &["protect", &second.to_string_lossy()]);
    let segment = segment_of(&first);
    (primary, Family::of(place, [first, second]), segment)
}

#[test]
fn random_requests_acknowledge_nothing_and_end_no_process() {
    let place = Place::new("requests");
    let (primary, standby, first) = place.pair(&[]);
    let second = place.database("second.db");
    must(&primary, &["protect", &second.to_string_lossy()]);
    let mut family = Family::of(&place, [first.clone(), second]);
    let (segment, mut rng) = (segment_of(&first), Rng::new(34));
    let mut acknowledged = family.rows();
    for round in 0..rounds() {
        // While the primary is frozen, no commit becomes durable.
        primary.process().unwrap().freeze(true);
        let before = family.rows();
        family.send();
        await_condition("a commit waits in each database", TIMEOUT, || {
            let now = family.rows();
            Ok(if now[0] > before[0] && now[1] > before[1] { Ok(()) } else { Err(format!("{now:?}")) })
        })
        .unwrap();
        (0..3).for_each(|_| scribble(&segment, &mut rng));
        family.early =
            family.clients.iter().map(|client| client.answer_within(Duration::from_millis(1))).collect();
        let is_acknowledged = |early: &Option<Answer>| matches!(early, Some(Answer::Rows(_)));
        assert!(
            !family.early.iter().any(is_acknowledged),
            "round {round}: acknowledged before it was durable"
        );
        primary.process().unwrap().freeze(false);
        // An application that does not get the write lock within its busy timeout gets SQLITE_BUSY.
        let answers = family.answers(&[SQLITE_BUSY]);
        // While the primary runs.
        family.send();
        (0..3).for_each(|_| scribble(&segment, &mut rng));
        let more = family.answers(&[SQLITE_BUSY]);
        acknowledged = [0, 1].map(|nth| acknowledged[nth] + answers[nth] + more[nth]);
        let there = family.rows();
        assert!(there[0] >= acknowledged[0] && there[1] >= acknowledged[1], "{there:?} {acknowledged:?}");
    }
    assert!(acknowledged[0] > 1 && acknowledged[1] > 1, "{acknowledged:?}");
    for database in &family.databases {
        place.application(database).run(INSERT);
        assert_same(&primary, &standby, database);
    }
}

#[test]
fn random_published_words_end_no_process_and_are_repaired() {
    let place = Place::new("published");
    let (primary, mut family, segment) = primary_with_family(&place);
    let (path, mut rng) = (published_path(&segment), Rng::new(35));
    // Only root and the user of the instance can write it.
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    for _ in 0..rounds().div_ceil(4) {
        family.send();
        scribble(&path, &mut rng);
        // Any statement may be refused then.
        let answers: Vec<Answer> = family.clients.iter().map(Client::answer).collect();
        assert_eq!(answers.len(), 8);
        await_condition("commits are acknowledged again", TIMEOUT, || {
            family.send();
            let answers: Vec<Answer> = family.clients.iter().map(Client::answer).collect();
            let refused = answers.iter().filter(|answer| matches!(answer, Answer::Failed { .. })).count();
            Ok(if refused == 0 { Ok(()) } else { Err(format!("{refused} were refused")) })
        })
        .unwrap();
    }
    await_alert(&primary, "words of what this instance publishes");
}

#[test]
fn truncated_shared_memory_ends_no_instance_and_no_application() {
    let place = Place::new("truncated-memory");
    let (primary, mut family, segment) = primary_with_family(&place);
    family.send();
    family.answers(&[]);
    let length = std::fs::metadata(&segment).unwrap().len();
    for _ in 0..rounds().div_ceil(6) {
        family.send();
        File::options().write(true).open(&segment).unwrap().set_len(0).unwrap();
        family.answers(&[SQLITE_BUSY, SQLITE_READONLY]);
        await_condition("it is whole again", TIMEOUT, || {
            let now = std::fs::metadata(&segment).unwrap().len();
            Ok(if now == length { Ok(()) } else { Err(now.to_string()) })
        })
        .unwrap();
        family.send();
        assert_eq!(family.answers(&[]), [4, 4]);
    }
    await_alert(&primary, "was truncated by another process");
}

#[test]
fn shared_memory_owned_by_another_user_is_not_used() {
    let place = Place::new("foreign-memory");
    let (mut primary, database) = place.protecting();
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("only root can make files of another user; not tried");
        return;
    }
    let segment = segment_of(&database);
    place.application(&database).run(INSERT);
    for path in [segment.clone(), published_path(&segment)] {
        // Another user's file is there before the instance starts, as an exact copy.
        primary.stop().unwrap();
        chown(&path, Some(OTHER_USER), None).unwrap();
        start(&mut primary);
        assert_eq!(std::fs::metadata(&path).unwrap().uid(), 0, "{} was taken over", path.display());
        place.application(&database).run(INSERT);
        // The file changes its owner while the instance runs.
        chown(&path, Some(OTHER_USER), None).unwrap();
        let mut application = place.application(&database);
        application.run("PRAGMA busy_timeout=50");
        application.fails(INSERT, SQLITE_READONLY);
        assert!(application.printed().contains("belongs to user"), "{}", application.printed());
        chown(&path, Some(0), None).unwrap();
        application.run(INSERT);
    }
}
