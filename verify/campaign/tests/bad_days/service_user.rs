//! Root and an instance of a service user, and token files. Acting as another user needs root; otherwise those tests
//! are skipped and report it.

use crate::local_users::{as_user, is_root};
use crate::security::{create, primary, token};
use crate::support::{INSERT, Place, TIMEOUT, rows};
use rusqlite::Connection;
use standfast_campaign::instance::free_address;
use standfast_campaign::process::await_condition;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// User ids that have no account.
const SERVICE: u32 = 60_001;
const OTHER_USER: u32 = 60_002;

/// A directory that every user can reach, with the program in it.
struct Reachable(PathBuf);

impl Reachable {
    fn new(place: &Place) -> Reachable {
        let name = place.directory.file_name().unwrap().to_string_lossy();
        let work = std::env::temp_dir().join(format!("standfast-{name}"));
        let _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir_all(&work).unwrap();
        // By another process: a program that another thread starts meanwhile would inherit the open file, which could not
        // be executed as long as that lasts.
        let copied = Command::new("cp").arg(&place.programs.standfast).arg(work.join("standfast")).status();
        assert!(copied.unwrap().success());
        for path in [&work, &work.join("standfast")] {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        Reachable(work)
    }

    /// Returns a command for a line as typed in a shell.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-c", line]).env("PATH", format!("{}:{path}", self.0.display())).current_dir(&self.0);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.shell(line).output().unwrap()
    }

    /// Starts an instance with a shell line; returns once it serves.
    fn start(&self, line: &str, directory: &Path) -> Started {
        let _ = std::fs::remove_file(directory.join("ready"));
        let started = Started(self.shell(&format!("exec {line}")).spawn().unwrap());
        await_condition("the instance serves", TIMEOUT, || {
            Ok(if directory.join("ready").exists() { Ok(()) } else { Err("no file `ready`".into()) })
        })
        .unwrap_or_else(|error| panic!("{line}: {error}"));
        started
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the commands that a refusal names, in order.
#[track_caller]
fn remedies(refused: &Output) -> Vec<String> {
    let printed = printed(refused);
    assert_eq!(refused.status.code(), Some(3), "{printed}");
    let hint = printed.split_once("hint: ").unwrap_or_else(|| panic!("{printed}")).1;
    hint.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn root_runs_the_instance_of_a_service_user_only_on_request() {
    if !is_root() {
        return;
    }
    let place = Place::new("service-user");
    let work = Reachable::new(&place);
    let directory = work.0.join("alpha");
    std::fs::create_dir(&directory).unwrap();
    chown(&directory, Some(SERVICE), Some(SERVICE)).unwrap();
    let address = free_address().unwrap();
    // The service could not read what root creates there. Each remedy is run as typed.
    let init = format!("standfast init -D {} --name alpha --listen {address}", directory.display());
    let as_service = remedies(&work.run(&init));
    assert!(std::fs::read_dir(&directory).unwrap().next().is_none(), "root has made nothing");
    let made = work.run(&as_service[0]);
    assert!(made.status.success(), "{}", printed(&made));
    let at = |words: &str| format!("standfast {words} -D {}", directory.display());
    for words in ["cert renew", "cert init", "cert allow x", "cert revoke x", "fence lift"] {
        let typed = remedies(&work.run(&at(words)));
        assert!(typed[0].starts_with(&format!("setpriv --reuid={SERVICE}")), "{typed:?}");
        assert!(typed[0].ends_with(&at(words)), "{typed:?}");
    }
    let both = remedies(&work.run(&at("start")));
    let owner = |name: &str| std::fs::symlink_metadata(directory.join(name)).unwrap().uid();
    {
        let _running = work.start(&both[0], &directory);
        assert_eq!((owner("ready"), owner("lock")), (SERVICE, SERVICE));
        // Root administers it; files that this creates belong to the service user.
        let renewed = work.run(&at("cert renew"));
        assert!(renewed.status.success(), "{}", printed(&renewed));
        assert_eq!(owner("tls/identity.pem"), SERVICE);
        assert!(work.run(&at("stop")).status.success());
    }
    let _running = work.start(&both[1], &directory);
    assert_eq!(owner("ready"), 0);
    let alerts = std::fs::read_to_string(directory.join("alert.log")).unwrap();
    assert!(alerts.contains("RUNS AS ROOT in a directory of uid 60001"), "{alerts}");
    assert!(work.run(&at("stop")).status.success());
}

/// Every user may create files in `/dev/shm`, and sees the names there while an instance runs.
#[test]
fn shared_memory_name_taken_by_another_user_prevents_no_start() {
    if !is_root() {
        return;
    }
    let place = Place::new("taken-name");
    let work = Reachable::new(&place);
    let [directory, data] = ["alpha", "data"].map(|name| work.0.join(name));
    for path in [&directory, &data] {
        std::fs::create_dir(path).unwrap();
        chown(path, Some(SERVICE), Some(SERVICE)).unwrap();
    }
    let database = data.join("app.db");
    let at = |words: &str| {
        let user = format!("setpriv --reuid={SERVICE} --regid={SERVICE} --clear-groups");
        format!("{user} standfast {words} -D {}", directory.display())
    };
    let must = |words: &str| {
        let done = work.run(&at(words));
        assert!(done.status.success(), "{words}: {}", printed(&done));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let made = must(&format!("init --name alpha --listen {}", free_address().unwrap()));
    let identity = made.split_whitespace().nth(1).unwrap().to_owned();
    let schema = "PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB); INSERT INTO t VALUES(1, 'first')";
    as_user(SERVICE, SERVICE, || Connection::open(&database).unwrap().execute_batch(schema).unwrap());
    // Either of the two files is in the way, at a start with and without previous shared memory.
    let names = ["", ".published"].map(|end| PathBuf::from(format!("/dev/shm/standfast-{identity}{end}")));
    let mut rows_wanted = 1;
    let mut served = |alerts_wanted: usize| {
        let running = work.start(&at("start"), &directory);
        if rows_wanted == 1 {
            must(&format!("protect {}", database.display()));
        }
        place.application(&database).run(INSERT);
        rows_wanted += 1;
        assert_eq!(rows(&database), rows_wanted);
        let alerts = std::fs::read_to_string(directory.join("alert.log")).unwrap();
        assert_eq!(
            alerts.matches("another user had made a file of its usual name").count(),
            alerts_wanted,
            "{alerts}"
        );
        running
    };
    as_user(OTHER_USER, OTHER_USER, || std::fs::write(&names[1], "").unwrap());
    let running = served(1);
    must("stop");
    drop(running);
    as_user(OTHER_USER, OTHER_USER, || std::fs::write(&names[0], "").unwrap());
    let running = served(2);
    // After a kill the next start continues with the previous shared memory.
    drop(running);
    let running = served(3);
    must("stop");
    drop(running);
    // As a restart of the machine does.
    as_user(OTHER_USER, OTHER_USER, || names.iter().for_each(|name| std::fs::remove_file(name).unwrap()));
    of_instance(&identity).for_each(|path| std::fs::remove_file(path).unwrap());
    let running = served(3);
    must("stop");
    drop(running);
    let left: Vec<_> = of_instance(&identity).collect();
    assert!(left.len() == 2 && left.iter().all(|path| names.contains(path)), "{left:?}");
    standfast_session::Segment::remove(&names[0]);
}

/// Returns the files in `/dev/shm` whose name contains its identity.
fn of_instance(identity: &str) -> impl Iterator<Item = PathBuf> {
    let all = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().path());
    all.filter(move |path| path.to_string_lossy().contains(identity))
}

#[test]
fn token_file_must_be_private_and_standby_token_makes_it_so() {
    let place = Place::new("token-file");
    let (south, _) = primary(&place);
    let address = free_address().unwrap();
    let attempt = |file: &Path| {
        create(&place, &south.address, "north", &address, &["--token-file", &file.to_string_lossy()])
    };
    let good = token(&place, &south, "north", &[]);
    std::fs::set_permissions(&good, Permissions::from_mode(0o644)).unwrap();
    let typed = remedies(&attempt(&good));
    let refused = printed(&attempt(Path::new("/dev/zero")));
    assert!(refused.contains("regular file") && refused.contains("--token-file -"), "{refused}");
    let link = place.path("link");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    let refused = printed(&attempt(&link));
    assert!(refused.contains("symbolic link") && refused.contains("--token-file -"), "{refused}");
    assert!(Command::new("sh").args(["-c", &typed[0]]).status().unwrap().success());
    let made = attempt(&good);
    assert!(made.status.success(), "{}", printed(&made));
    // Whatever the umask, `standby token` makes the file of its standard output private.
    let redirected = place.path("redirected");
    let line = format!(
        "umask 022; {} standby token --name east -D {} > {}",
        place.programs.standfast.display(),
        south.directory.display(),
        redirected.display()
    );
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    assert_eq!(std::fs::metadata(&redirected).unwrap().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&redirected).unwrap().starts_with("sft1."));
}
