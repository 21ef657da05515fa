//! Instances, databases and application processes of a test, in a directory that is removed with them.

use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::programs::Programs;
use standfast_campaign::status::Status;
use standfast_campaign::verify::{check_integrity, compare_pages};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Timeout for anything that must happen.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a test waits for what must not happen.
pub const A_WHILE: Duration = Duration::from_millis(400);

/// Options of a destination: a short net timeout, but long enough that a standby on a busy machine is not taken for a
/// lost one.
pub const QUICK: [&str; 2] = ["--net-timeout-ms", "1500"];

pub const SQLITE_READONLY: i32 = 8;
pub const SQLITE_IOERR: i32 = 10;

/// A directory of one test, on the disk of the build directory; kept when the test fails.
pub struct Place {
    pub directory: PathBuf,
    pub programs: Programs,
}

impl Place {
    pub fn new(test: &str) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{test}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad-days").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Place { directory, programs: Programs::find(None).unwrap_or_else(|error| panic!("{error}")) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Creates a WAL database with one table and one row.
    pub fn database(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB); INSERT INTO t VALUES(1, 'first')")
            .unwrap();
        path
    }

    /// Creates a primary that is not started.
    pub fn instance(&self, name: &str) -> Instance {
        let more = ["--group-bytes", "8388608"];
        Instance::init(&self.programs, &self.path(name), name, &more)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn primary(&self, name: &str) -> Instance {
        let mut instance = self.instance(name);
        start(&mut instance);
        instance
    }

    /// Creates a running primary that protects a database.
    pub fn protecting(&self) -> (Instance, PathBuf) {
        let (primary, database) = (self.primary("south"), self.database("app.db"));
        must(&primary, &["protect", &database.to_string_lossy()]);
        (primary, database)
    }

    /// Creates a primary that protects a database, and its synchronous standby. `more` completes `destination add`.
    pub fn pair(&self, more: &[&str]) -> (Instance, Instance, PathBuf) {
        let (primary, database) = self.protecting();
        let standby = self.standby_of(&primary, "north");
        add_destination(&primary, &standby, &[&["--mode", "sync-affirm"], more].concat());
        await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
        (primary, standby, database)
    }

    /// Creates a running standby that is not a destination yet.
    pub fn standby_of(&self, primary: &Instance, name: &str) -> Instance {
        let mut standby =
            Instance::standby_of(primary, &self.path(name), name).unwrap_or_else(|error| panic!("{error}"));
        start(&mut standby);
        standby
    }

    /// Starts an application with the extension.
    pub fn application(&self, database: &Path) -> Client {
        Client::start(self, Some(&self.programs.extension), database)
    }

    /// Adds `count` rows with an application that then ends.
    pub fn insert(&self, database: &Path, count: i64) {
        let mut application = self.application(database);
        for _ in 0..count {
            application.run(INSERT);
        }
    }

    /// Starts a process without the VFS.
    pub fn foreigner(&self, database: &Path) -> Client {
        Client::start(self, None, database)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept {}", self.directory.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

#[track_caller]
pub fn start(instance: &mut Instance) {
    instance.start().unwrap_or_else(|error| panic!("{error}{}", instance.last_words()));
}

/// Runs a command that must succeed.
#[track_caller]
pub fn must(instance: &Instance, words: &[&str]) -> String {
    instance.must(words).unwrap_or_else(|error| panic!("{error}{}", instance.last_words()))
}

/// Runs a command that must fail with `code` and whose standard error must contain all of `words`.
#[track_caller]
pub fn refuses(instance: &Instance, command: &[&str], code: i32, words: &[&str]) -> String {
    let finished = instance.run(command).unwrap();
    let printed = finished.stderr;
    assert_eq!(finished.code, code, "{command:?} printed: {printed}{}", finished.stdout);
    for word in words {
        assert!(printed.contains(word), "{command:?} does not say `{word}`: {printed}");
    }
    printed
}

#[track_caller]
pub fn await_status(instance: &Instance, what: &str, condition: impl FnMut(&Status) -> bool) -> Status {
    instance.await_status(what, condition).unwrap_or_else(|error| panic!("{error}{}", instance.last_words()))
}

/// Waits until the alert log contains `words`.
#[track_caller]
pub fn await_alert(instance: &Instance, words: &str) {
    await_another_alert(instance, words, 0);
}

/// Waits until the alert log contains `words` more than `before` times.
#[track_caller]
pub fn await_another_alert(instance: &Instance, words: &str, before: usize) {
    await_condition(&format!("`{words}` in the alert log"), TIMEOUT, || {
        let alerts = instance.alerts();
        Ok(if alerts.matches(words).count() > before { Ok(()) } else { Err(alerts) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[track_caller]
pub fn add_destination(primary: &Instance, standby: &Instance, more: &[&str]) {
    let name = standby.directory.file_name().unwrap().to_string_lossy().into_owned();
    // A standby that does not run cannot be connected to first.
    let no_wait: &[&str] = if standby.process().is_none() { &["--no-wait"] } else { &[] };
    must(primary, &[&["destination", "add", &name, &standby.address], more, no_wait].concat());
}

/// Waits until the standby has everything, then compares `database` with its copy.
#[track_caller]
pub fn assert_same(primary: &Instance, standby: &Instance, database: &Path) {
    let copy = standby.standby_database(&database.file_name().unwrap().to_string_lossy());
    assert_same_files(primary, standby, database, &copy);
}

/// Compares like [`assert_same`], wherever the standby has its copy.
#[track_caller]
pub fn assert_same_files(primary: &Instance, standby: &Instance, database: &Path, copy: &Path) {
    let captured = await_status(primary, "everything is captured", Status::settled).number("/captured");
    // `settled` is about the first destination, which may be another one.
    await_status(standby, "the standby has applied everything", |status| {
        status.number("/standby/applied") >= captured
    });
    let found = compare_pages(database, copy).unwrap_or_else(|error| panic!("{error}")).findings;
    assert!(found.none(), "{:?}", found.notes);
    let integrity = check_integrity(copy).unwrap();
    assert!(integrity.none(), "{:?}", integrity.notes);
}

/// Returns the path of a file that SQLite or Standfast keeps beside a database.
pub fn beside(database: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", database.display()))
}

/// Returns the path of the shared memory from the marker.
#[track_caller]
pub fn segment_of(database: &Path) -> PathBuf {
    let marker = std::fs::read_to_string(beside(database, "-standfast")).unwrap();
    marker.lines().find_map(|line| line.strip_prefix("segment=")).unwrap().into()
}

/// Counts the rows of `t` as a reader without the extension sees them.
#[track_caller]
pub fn rows(database: &Path) -> i64 {
    let connection = standfast_campaign::verify::open_plain(database).unwrap();
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// Waits until `t` has `number` rows.
#[track_caller]
pub fn await_rows(database: &Path, number: i64) {
    await_condition(&format!("{number} rows in {}", database.display()), TIMEOUT, || {
        let found = rows(database);
        Ok(if found == number { Ok(()) } else { Err(found.to_string()) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

pub const INSERT: &str = "INSERT INTO t(x) VALUES('row')";
/// Adds one row of half a megabyte that cannot be compressed.
pub const INSERT_BULK: &str = "INSERT INTO t(x) VALUES(randomblob(500000))";

/// An application process that runs one statement at a time.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Answer>,
    log: PathBuf,
}

impl Client {
    fn start(place: &Place, extension: Option<&Path>, database: &Path) -> Client {
        Client::begin(place, &[], extension, database)
    }

    /// Starts an application with the extension through the command `wrapper`.
    pub fn wrapped(place: &Place, wrapper: &[String], database: &Path) -> Client {
        Client::begin(place, wrapper, Some(&place.programs.extension), database)
    }

    fn begin(place: &Place, wrapper: &[String], extension: Option<&Path>, database: &Path) -> Client {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let log = place.path(&format!("client-{}.err", NUMBER.fetch_add(1, Relaxed)));
        let program = env!("CARGO_BIN_EXE_standfast-campaign");
        let mut command = Command::new(wrapper.first().map_or(program, String::as_str));
        if let Some((_, arguments)) = wrapper.split_first() {
            command.args(arguments).arg(program);
        }
        command.arg("client").arg(database).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(std::fs::File::create(&log).unwrap());
        if let Some(extension) = extension {
            command.arg("--extension").arg(extension);
        }
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if send.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Client { input: child.stdin.take(), child, answers, log }
    }

    /// Sends a statement without waiting for its answer.
    pub fn send(&mut self, sql: &str) {
        let line = format!("{}\n", serde_json::json!(sql));
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Sends a statement like [`Client::send`]; returns whether the process could take it.
    pub fn offer(&mut self, sql: &str) -> bool {
        let line = format!("{}\n", serde_json::json!(sql));
        self.input.as_mut().is_some_and(|input| input.write_all(line.as_bytes()).is_ok())
    }

    /// Returns the answer, if it arrives within `limit`.
    pub fn answer_within(&self, limit: Duration) -> Option<Answer> {
        self.answers.recv_timeout(limit).ok()
    }

    #[track_caller]
    pub fn answer(&self) -> Answer {
        self.answer_within(TIMEOUT)
            .unwrap_or_else(|| panic!("no answer; the application printed: {}", self.printed()))
    }

    pub fn try_run(&mut self, sql: &str) -> Answer {
        self.send(sql);
        self.answer()
    }

    /// Runs a statement that must succeed.
    #[track_caller]
    pub fn run(&mut self, sql: &str) -> Vec<Vec<serde_json::Value>> {
        match self.try_run(sql) {
            Answer::Rows(rows) => rows,
            Answer::Failed { code, message } => {
                panic!("{sql}: {message} ({code}); it printed: {}", self.printed())
            }
        }
    }

    /// Runs a statement that must fail with the primary result code `code`. Returns SQLite's message.
    #[track_caller]
    pub fn fails(&mut self, sql: &str, code: i32) -> String {
        match self.try_run(sql) {
            Answer::Failed { code: found, message } if found & 0xff == code => message,
            other => {
                panic!("{sql}: expected result code {code}, got {other:?}; it printed: {}", self.printed())
            }
        }
    }

    /// Returns what the extension wrote to standard error.
    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn kill(mut self) {
        self.end();
    }

    /// Lets it close its connection and end.
    #[track_caller]
    pub fn close(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success(), "{}", self.printed());
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}
