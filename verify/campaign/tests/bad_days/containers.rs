//! Applications in containers: another user and separate namespaces, with the mounts that docs/containers.md names and
//! nothing else of the instance. Namespaces need root; otherwise these tests are skipped and report it.

use crate::support::{Client, INSERT, Place, add_destination, assert_same, await_status, must, rows, start};
use standfast_campaign::instance::Instance;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user of the applications, and the group that may write the database.
const ALICE: u32 = 60_001;
const CREW: u32 = 60_005;

/// Mounts the runtime directory `$1` at `$2`, hides the parts of the host that a container does not see, and runs the
/// other arguments as another user.
const CONTAINER: &str = r#"
set -e
mount --bind "$1" "$2"
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs "$3"
if [ "$1" != "$2" ]; then mount -t tmpfs tmpfs "$1"; export STANDFAST_RUNTIME_DIRECTORY="$2"; fi
user="$4"
shift 4
if [ "$user" = root ]; then exec "$@"; fi
exec setpriv --reuid "$user" --regid 60005 --clear-groups --no-new-privs "$@"
"#;
const UNSHARE: [&str; 8] =
    ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"];

/// Whether this user may create namespaces, including user namespaces.
fn is_possible() -> bool {
    let makes = |more: &[&str]| {
        let mut tried = Command::new(UNSHARE[0]);
        tried.args(&UNSHARE[1..]).args(more).arg("true");
        tried.output().is_ok_and(|output| output.status.success())
    };
    // SAFETY: geteuid has no preconditions.
    let possible = unsafe { libc::geteuid() } == 0 && makes(&[]) && makes(&["--user", "--map-root-user"]);
    if !possible {
        eprintln!("skipped: namespaces take root, and a kernel that allows them");
    }
    possible
}

/// Returns the unique directory name of a test.
fn file_name(place: &Place) -> &str {
    place.directory.file_name().unwrap().to_str().unwrap()
}

/// A primary with a runtime directory, its standby, and a database that a group may write.
struct Host {
    place: Place,
    primary: Instance,
    standby: Instance,
    database: PathBuf,
    runtime: PathBuf,
}

impl Host {
    fn new(test: &str) -> Host {
        let place = Place::new(test);
        // The instance creates it, outside of the directories that a container hides.
        let runtime = Path::new("/run").join(format!("standfast-{}", file_name(&place)));
        let mut primary = place.instance("south");
        primary.configure("instance", "runtime_directory", runtime.to_str().unwrap()).unwrap();
        start(&mut primary);
        fs::create_dir(place.path("srv")).unwrap();
        let database = place.database("srv/app.db");
        chown(place.path("srv"), None, Some(CREW)).unwrap();
        fs::set_permissions(place.path("srv"), Permissions::from_mode(0o2770)).unwrap();
        for entry in fs::read_dir(place.path("srv")).unwrap() {
            let path = entry.unwrap().path();
            chown(&path, None, Some(CREW)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
        }
        must(&primary, &["protect", &database.to_string_lossy()]);
        let standby = place.standby_of(&primary, "north");
        add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
        await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
        Host { place, primary, standby, database, runtime }
    }

    /// Starts an application in a container that has the runtime directory at `mounted`.
    fn container(&self, more: &[&str], mounted: &Path, user: &str) -> Client {
        fs::create_dir_all(mounted).unwrap();
        let words = [&UNSHARE[..], more, &["sh", "-c", CONTAINER, "sh"]].concat();
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let paths = [self.runtime.as_path(), mounted, &self.primary.directory];
        words.extend(paths.map(|path| path.display().to_string()));
        words.push(user.to_owned());
        Client::wrapped(&self.place, &words, &self.database)
    }

    fn await_sessions(&self, number: u64) {
        await_status(&self.primary, &format!("{number} sessions"), |status| {
            status.number("/sessions") == number
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.runtime);
    }
}

#[test]
fn applications_in_containers_commit_and_are_counted() {
    if !is_possible() {
        return;
    }
    let host = Host::new("containers");
    let (alice, elsewhere) = (ALICE.to_string(), host.place.path("mounted"));
    let mut beside = host.place.application(&host.database);
    // With the same path; with another path; in another user namespace, in which it is the only user.
    let mut applications = [
        host.container(&[], &host.runtime, &alice),
        host.container(&[], &elsewhere, &alice),
        host.container(&["--user", "--map-root-user"], &elsewhere, "root"),
    ];
    const ROUNDS: i64 = 20;
    for _ in 0..ROUNDS {
        beside.run(INSERT);
        applications.iter_mut().for_each(|application| _ = application.run(INSERT));
    }
    // All at the same time as well, so that they queue for the write lock.
    for application in &mut applications {
        (0..ROUNDS).for_each(|_| application.send(INSERT));
    }
    for _ in 0..ROUNDS {
        beside.run(INSERT);
        applications.iter().for_each(|application| match application.answer() {
            standfast_campaign::application::client::Answer::Rows(_) => {}
            failed => panic!("{failed:?}; it printed: {}", application.printed()),
        });
    }
    host.await_sessions(4);
    let role = applications[1].run("SELECT standfast_role(), (SELECT count(*) FROM t)");
    assert_eq!(role[0][0], "primary");
    let [first, second, third] = applications;
    first.kill();
    host.await_sessions(3);
    second.close();
    host.await_sessions(2);
    beside.run(INSERT);
    drop(third);
    host.await_sessions(1);
    // Every commit that returned is on the standby.
    assert_eq!(rows(&host.database), 1 + 8 * ROUNDS + 1);
    assert_same(&host.primary, &host.standby, &host.database);
}

#[test]
fn applications_in_containers_continue_over_a_restart() {
    if !is_possible() {
        return;
    }
    let mut host = Host::new("containers-restart");
    let mut application = host.container(&[], &host.place.path("mounted"), &ALICE.to_string());
    application.run(INSERT);
    host.primary.kill();
    start(&mut host.primary);
    application.run(INSERT);
    host.await_sessions(1);
    host.primary.stop().unwrap();
    application.fails(INSERT, crate::support::SQLITE_READONLY);
    assert!(application.printed().contains("does not serve it"), "{}", application.printed());
    start(&mut host.primary);
    application.run(INSERT);
    assert_eq!(rows(&host.database), 4);
}

/// Applications on the host also follow when the shared memory moves to another directory.
#[test]
fn applications_follow_an_instance_to_another_runtime_directory() {
    let place = Place::new("moved");
    let (mut primary, database) = place.protecting();
    let mut application = place.application(&database);
    application.run(INSERT);
    let runtime = Path::new("/dev/shm").join(file_name(&place));
    for directory in [runtime.to_str().unwrap(), ""] {
        primary.stop().unwrap();
        primary.configure("instance", "runtime_directory", directory).unwrap();
        start(&mut primary);
        application.run(INSERT);
        assert_eq!(runtime.join("control.sock").exists(), !directory.is_empty());
    }
    assert_eq!(rows(&database), 4);
    await_status(&primary, "one session", |status| status.number("/sessions") == 1);
    // Another instance is refused, because the directory is in use.
    primary.stop().unwrap();
    primary.configure("instance", "runtime_directory", runtime.to_str().unwrap()).unwrap();
    start(&mut primary);
    let mut other = place.instance("other");
    other.configure("instance", "runtime_directory", runtime.to_str().unwrap()).unwrap();
    other.start().unwrap_err();
    let printed = fs::read_to_string(other.output_path()).unwrap();
    assert!(printed.contains("is the runtime directory of another instance"), "{printed}");
    fs::remove_dir_all(runtime).unwrap();
}
