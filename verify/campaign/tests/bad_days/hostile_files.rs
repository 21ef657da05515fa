//! A user with write permission to a database can write anything into its file, its WAL, its wal-index and its marker,
//! or replace them by something else. Only that database may fail.
//!
//! `STANDFAST_HOSTILE_FILES=10000` sets the number of changes, small by default; `STANDFAST_HOSTILE_SEED` repeats a
//! run.

use crate::support::{
    Client, INSERT, Place, TIMEOUT, add_destination, await_status, beside, must, rows, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::isolation::wal_index::{Number, publish};
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use standfast_campaign::verify::{check_integrity, compare_pages};
use standfast_testkit::Rng;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Number of changes unless the environment sets it.
const FEW: usize = 48;
const VICTIMS: usize = 4;
/// Maximum number of changes of one database before it is repaired.
const CHANGES_MAX: usize = 6;
/// Timeout for the answer to a commit in an attacked database, which may never come.
const MOMENT: Duration = Duration::from_millis(20);
/// Maximum database size in pages that is written into a wal-index. An application that then commits makes the size
/// real, and every page goes into the redo.
const PAGES_MAX: u64 = 1 << 15;
/// Suffixes of the files that SQLite and Standfast keep of a database.
const FILES: [&str; 4] = ["-shm", "-wal", "-standfast", ""];
/// Size of the part at the begin of each that determines the rest: both copies of the wal-index header with the read
/// marks, the headers of a WAL and its first frame, a complete marker, the header of a database.
const HEADERS: [u64; 4] = [136, 56, 400, 100];

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// Commits to a database that is not attacked, until it is dropped.
struct Committer {
    database: PathBuf,
    acknowledged: Arc<AtomicI64>,
    refused: Arc<Mutex<Option<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts to commit. `gate` is held for writing while the instance is down.
    fn start(place: &Place, database: PathBuf, gate: &Arc<RwLock<()>>) -> Committer {
        let (acknowledged, refused) = (Arc::new(AtomicI64::new(0)), Arc::new(Mutex::new(None)));
        let stop = Arc::new(AtomicBool::new(false));
        let mut application = place.application(&database);
        let thread = std::thread::spawn({
            let (gate, acknowledged) = (gate.clone(), acknowledged.clone());
            let (refused, stop) = (refused.clone(), stop.clone());
            move || {
                while !stop.load(SeqCst) {
                    let _open = gate.read().unwrap();
                    application.send(INSERT);
                    match application.answer_within(TIMEOUT) {
                        Some(Answer::Rows(_)) => acknowledged.fetch_add(1, SeqCst),
                        other => {
                            *refused.lock().unwrap() = Some(format!("{other:?}: {}", application.printed()));
                            return;
                        }
                    };
                }
            }
        });
        Committer { database, acknowledged, refused, stop, thread: Some(thread) }
    }

    fn acknowledged(&self) -> i64 {
        self.acknowledged.load(SeqCst)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        // A panic of the thread has been printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Victim {
    name: String,
    path: PathBuf,
    application: Option<Client>,
    changes: usize,
}

struct Siege {
    place: Place,
    primary: Instance,
    standby: Instance,
    committers: Vec<Committer>,
    victims: Vec<Victim>,
    gate: Arc<RwLock<()>>,
    rng: Rng,
    /// The changes, for the message of a failure.
    log: File,
    /// Number of databases that the first remedy repaired, and of all that were repaired.
    cured: [usize; 2],
}

/// Removes a file or a directory.
fn remove(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir_all(path);
    }
}

fn fifo(path: &Path) {
    let path = std::ffi::CString::new(path.to_string_lossy().as_bytes()).unwrap();
    // SAFETY: the path is null-terminated.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
}

/// Draws a number that is likely to be out of range.
fn number(rng: &mut Rng) -> u32 {
    match rng.below(6) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << 31,
        3 => rng.below(1 << 16) as u32,
        4 => rng.below(1 << 24) as u32,
        _ => rng.next_u64() as u32,
    }
}

/// Changes bytes of a file, as often near its begin as anywhere. Returns a description.
fn change_bytes(path: &Path, header: u64, rng: &mut Rng) -> std::io::Result<String> {
    // Another change may have replaced the file, and opening a FIFO must not wait for its other end.
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok("nothing, it is no file".into());
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let within = if rng.chance(60) { length.min(header) } else { length }.max(1);
    let at = rng.below(within);
    Ok(match rng.below(7) {
        0 => {
            let mut bytes = [0; 1];
            let _ = file.read_at(&mut bytes, at)?;
            let bit = rng.below(8);
            file.write_all_at(&[bytes[0] ^ 1 << bit], at)?;
            format!("bit {bit} of byte {at}")
        }
        1 => {
            let (at, word) = (at & !3, number(rng));
            file.write_all_at(&if rng.chance(50) { word.to_ne_bytes() } else { word.to_be_bytes() }, at)?;
            format!("the word at {at} is {word:#x}")
        }
        2 => {
            let count = rng.between(1, 4096).min(length.saturating_sub(at).max(1));
            file.write_all_at(&rng.bytes(count as usize), at)?;
            format!("{count} random bytes at {at}")
        }
        3 => {
            file.write_all_at(&rng.bytes(header as usize), 0)?;
            "a random header".into()
        }
        4 => {
            let zeros = vec![0; header.min(length.max(1)) as usize];
            file.write_all_at(&zeros, 0)?;
            "a header of zeros".into()
        }
        5 => {
            let to = if rng.chance(30) { 0 } else { rng.below(length + 1) };
            file.set_len(to)?;
            format!("cut from {length} to {to}")
        }
        _ => {
            let to = length + rng.between(1, 1 << 22);
            file.set_len(to)?;
            format!("extended from {length} to {to}")
        }
    })
}

impl Siege {
    fn new() -> Siege {
        let place = Place::new("hostile-files");
        let seed = setting("STANDFAST_HOSTILE_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 16);
        eprintln!("STANDFAST_HOSTILE_SEED={seed} makes the same changes");
        let primary = place.primary("south");
        let standby = place.standby_of(&primary, "north");
        add_destination(&primary, &standby, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
        let protected = |name: &str| {
            let path = place.database(name);
            must(&primary, &["protect", &path.to_string_lossy()]);
            path
        };
        let gate = Arc::default();
        let committers = ["a.db", "b.db"].map(|name| Committer::start(&place, protected(name), &gate));
        let victims = (0..VICTIMS).map(|number| {
            let name = format!("victim-{number}.db");
            Victim { path: protected(&name), name, application: None, changes: 0 }
        });
        let victims = victims.collect();
        let log = File::create(place.path("changes")).unwrap();
        Siege {
            committers: committers.into(),
            victims,
            primary,
            standby,
            gate,
            rng: Rng::new(seed),
            log,
            place,
            cured: [0, 0],
        }
    }

    /// Reads the status directly, without a process for every request.
    fn status(&self) -> Status {
        let mut stream = UnixStream::connect(self.primary.directory.join("control.sock")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        writeln!(stream, "{{\"op\":\"status\"}}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        Status::parse(&answer["ok"].to_string()).unwrap()
    }

    /// Makes one change to one database.
    fn attack(&mut self, nth: usize) {
        let nth_victim = self.rng.below(VICTIMS as u64) as usize;
        let which = self.rng.below(FILES.len() as u64) as usize;
        let others = self.committers[0].database.clone();
        let victim = &mut self.victims[nth_victim];
        victim.changes += 1;
        let path = beside(&victim.path, FILES[which]);
        let rng = &mut self.rng;
        let done = match rng.below(20) {
            0 => {
                remove(&path);
                fifo(&path);
                "a FIFO".into()
            }
            1 => {
                remove(&path);
                fs::create_dir(&path).unwrap();
                "a directory".into()
            }
            2 => {
                remove(&path);
                "removed".into()
            }
            3 => {
                // The target belongs to a database of another user: the instance must not write where the attacker may
                // not.
                remove(&path);
                symlink(beside(&others, FILES[which]), &path).unwrap();
                "a link to that of another database".into()
            }
            4 => {
                let fresh = path.with_extension("other");
                let source = self.place.path(&format!("kept{}", FILES[which]));
                let is_copy = rng.chance(50) && fs::copy(&source, &fresh).is_ok();
                if !is_copy {
                    let count = rng.below(1 << 17) as usize;
                    fs::write(&fresh, rng.bytes(count)).unwrap();
                }
                if path.is_dir() {
                    remove(&path);
                }
                fs::rename(&fresh, &path).unwrap();
                format!("another file, {}", if is_copy { "an earlier one" } else { "random bytes" })
            }
            5..=7 if FILES[which] == "-shm" => {
                let what = if rng.chance(50) {
                    Number::Frames(number(rng))
                } else {
                    Number::Pages(rng.below(PAGES_MAX) as u32)
                };
                let is_file = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
                let done = is_file && publish(&victim.path, what).is_ok();
                format!("a number with its checksum: {done}")
            }
            _ => change_bytes(&path, HEADERS[which], rng).unwrap_or_else(|error| error.to_string()),
        };
        writeln!(self.log, "{nth}: {}{}: {done}", victim.name, FILES[which]).unwrap();
    }

    /// Runs one statement on each attacked database, if possible. Their answers prove nothing.
    fn use_victims(&mut self) {
        for victim in &mut self.victims {
            if victim.application.is_none() && fs::metadata(&victim.path).is_ok_and(|found| found.is_file()) {
                victim.application = Some(self.place.application(&victim.path));
            }
            if let Some(application) = &mut victim.application
                && !(application.offer(INSERT) && application.answer_within(MOMENT).is_some())
            {
                // It has died, for example on a truncated wal-index, or waits for a lock.
                victim.application = None;
            }
        }
    }

    /// Asserts that databases that are not attacked take commits, and that every attacked one has a state with a
    /// reason.
    fn check(&self) {
        let before: Vec<i64> = self.committers.iter().map(Committer::acknowledged).collect();
        let progress = await_condition("the others commit", TIMEOUT, || {
            if self.primary.has_ended() {
                panic!("the instance has ended: {}", self.primary.last_words());
            }
            let resume = |(committer, before): (&Committer, &i64)| committer.acknowledged() > before + 1;
            let refused = self.committers.iter().find_map(|at| at.refused.lock().unwrap().clone());
            assert_eq!(refused, None, "a commit of another database was refused");
            Ok(if self.committers.iter().zip(&before).all(resume) { Ok(()) } else { Err(String::new()) })
        });
        progress.unwrap_or_else(|error| panic!("{error}: {}", self.primary.last_words()));
        let status = self.status();
        for committer in &self.committers {
            let name = committer.database.file_name().unwrap().to_string_lossy();
            assert_eq!(status.database_state(&name), "open", "{name}: {}", self.primary.last_words());
        }
        for database in status.json()["databases"].as_array().unwrap() {
            let has = |key: &str| database[key].as_str().is_some_and(|reason| !reason.is_empty());
            let is_explained = database["state"] == "open" || has("failure") || has("why");
            assert!(is_explained || database["state"] == "recovering", "no reason: {database}");
        }
    }

    /// Asserts that the acknowledged rows of databases that are not attacked are at the standby.
    fn check_standby(&self) {
        for committer in &self.committers {
            let acknowledged = committer.acknowledged();
            let name = committer.database.file_name().unwrap().to_string_lossy();
            let copy = self.standby.standby_database(&name);
            await_condition(&format!("{acknowledged} rows of {name} at the standby"), TIMEOUT, || {
                let there = rows(&copy);
                Ok(if there > acknowledged { Ok(()) } else { Err(there.to_string()) })
            })
            .unwrap_or_else(|error| panic!("{error}: {}", self.standby.last_words()));
        }
    }

    /// Restarts the instance with the files as the attacks left them, or attacks again while it is down.
    fn restart(&mut self, nth: usize) {
        let gate = self.gate.clone();
        let _closed = gate.write().unwrap();
        if self.rng.chance(50) {
            self.primary.kill()
        } else {
            // It exits with an error when a database was not shut down cleanly.
            let _ = self.primary.stop();
        }
        if self.rng.chance(50) {
            self.attack(nth);
        }
        writeln!(self.log, "{nth}: restart").unwrap();
        start(&mut self.primary);
    }

    /// Repairs the attacked databases as the messages advise: removes what is not a regular file, restarts so that the
    /// files are examined, and keeps the redo. A database that this does not repair is protected again from scratch.
    fn cure(&mut self, nth: usize) {
        for victim in &mut self.victims {
            victim.application = None;
            for suffix in FILES {
                let path = beside(&victim.path, suffix);
                if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
                    remove(&path);
                }
            }
        }
        self.restart_to_cure(nth);
        let status = self.status();
        for number in 0..VICTIMS {
            let (name, path) = (self.victims[number].name.clone(), self.victims[number].path.clone());
            let state = status.database_state(&name).to_owned();
            let text = path.to_string_lossy().into_owned();
            if state == "left out" {
                let resolved = self.primary.run(&["database", "resolve", &name, "--keep", "redo"]).unwrap();
                writeln!(self.log, "{nth}: resolve {name}: {} {}", resolved.code, resolved.stderr).unwrap();
            }
            // Writes a damaged marker again; with an intact one the command is refused.
            let _ = self.primary.run(&["protect", &text]).unwrap();
            let is_well = self.status().database_state(&name) == "open" && self.takes_a_commit(&path);
            self.cured[0] += usize::from(is_well);
            self.cured[1] += 1;
            writeln!(self.log, "{nth}: {name} was {state}, cured by that: {is_well}").unwrap();
            if !is_well {
                let _ = self.primary.run(&["unprotect", &name]).unwrap();
                for suffix in FILES {
                    remove(&beside(&path, suffix));
                }
                self.place.database(&name);
                must(&self.primary, &["protect", &text]);
                assert!(self.takes_a_commit(&path), "{name} takes no commit after it was protected again");
            }
            self.victims[number].changes = 0;
        }
        for suffix in FILES {
            let _ =
                fs::copy(beside(&self.victims[0].path, suffix), self.place.path(&format!("kept{suffix}")));
        }
    }

    fn restart_to_cure(&mut self, nth: usize) {
        let gate = self.gate.clone();
        let _closed = gate.write().unwrap();
        let _ = self.primary.stop();
        writeln!(self.log, "{nth}: restart, to cure").unwrap();
        start(&mut self.primary);
    }

    fn takes_a_commit(&self, path: &Path) -> bool {
        let mut application = self.place.application(path);
        // A damaged file may keep it from opening the database at all.
        application.offer(INSERT) && matches!(application.answer_within(TIMEOUT), Some(Answer::Rows(_)))
    }
}

#[test]
fn hostile_files_of_one_database_affect_no_other() {
    let mut siege = Siege::new();
    let changes = setting("STANDFAST_HOSTILE_FILES").map_or(FEW, |changes| changes as usize);
    siege.use_victims();
    for nth in 0..changes {
        siege.attack(nth);
        siege.use_victims();
        siege.check();
        if nth % 16 == 15 {
            siege.restart(nth);
            siege.check();
        }
        if siege.victims.iter().map(|victim| victim.changes).sum::<usize>() >= CHANGES_MAX * VICTIMS {
            siege.cure(nth);
            siege.check();
            siege.check_standby();
        }
    }
    siege.cure(changes);
    siege.check_standby();
    let Siege { primary, standby, committers, cured, .. } = &mut siege;
    let databases: Vec<PathBuf> = committers.iter().map(|committer| committer.database.clone()).collect();
    let acknowledged: Vec<i64> = committers.iter().map(Committer::acknowledged).collect();
    committers.clear();
    eprintln!("{changes} changes, {acknowledged:?} commits of others, {cured:?} cured without a new file");
    await_status(primary, "the standby has applied everything", Status::settled);
    for (database, acknowledged) in databases.iter().zip(acknowledged) {
        let copy = standby.standby_database(&database.file_name().unwrap().to_string_lossy());
        assert!(rows(database) > acknowledged);
        let found = compare_pages(database, &copy).unwrap_or_else(|error| panic!("{error}")).findings;
        assert!(found.none() && check_integrity(&copy).unwrap().none(), "{:?}", found.notes);
    }
}
