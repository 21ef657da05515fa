//! Other local users: what they may do with an instance, and what they cannot do to it. docs/security.md lists the
//! permissions. Acting as several users needs root; otherwise these tests are skipped and report it.

use crate::support::{INSERT, Place, TIMEOUT, await_alert, beside, must, refuses, rows, segment_of, start};
use serde_json::{Value, json};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_session::published_path;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const ALICE: u32 = 60_001;
/// A user without any permission on the databases.
const MALLORY: u32 = 60_002;
/// A group whose users may use the databases.
pub const CREW: u32 = 60_005;

pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        eprintln!("skipped: acting as other users takes root");
    }
    root
}

/// Runs `work` in a thread with the given user, both for files and as seen by the other end of sockets.
#[track_caller]
pub fn as_user<T: Send>(uid: u32, gid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let become_user = || {
            // SAFETY: system calls with numbers only. They bypass the C library, which would change all threads.
            let failed = unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>())
                    | libc::syscall(libc::SYS_setresgid, gid, gid, gid)
                    | libc::syscall(libc::SYS_setresuid, uid, uid, uid)
            };
            assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
        };
        let thread = scope.spawn(move || {
            become_user();
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Creates a directory of the user `uid`.
pub fn directory_of(place: &Place, name: &str, uid: u32) -> PathBuf {
    let path = place.path(name);
    fs::create_dir(&path).unwrap();
    chown(&path, Some(uid), Some(uid)).unwrap();
    path
}

/// Creates a WAL database that ALICE owns, in a directory of ALICE.
fn database_of_alice(place: &Place) -> PathBuf {
    let directory = directory_of(place, "alice", ALICE);
    let path = place.database("alice/app.db");
    for entry in fs::read_dir(directory).unwrap() {
        chown(entry.unwrap().path(), Some(ALICE), Some(ALICE)).unwrap();
    }
    path
}

/// Creates a file that only root may read or write.
fn secret(place: &Place) -> PathBuf {
    let path = place.path("secret");
    fs::write(&path, "root's").unwrap();
    set_mode(&path, 0o600);
    path
}

#[track_caller]
fn is_untouched(secret: &Path) {
    assert_eq!(fs::read_to_string(secret).unwrap(), "root's");
    let found = fs::metadata(secret).unwrap();
    assert_eq!((found.mode() & 0o777, found.uid()), (0o600, 0));
}

pub fn ask(socket: &Path, request: &Value) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    // The answer may come before the request is read.
    let _ = writeln!(stream, "{request}");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Returns a request of each kind that needs the right to administer.
pub fn administering() -> Vec<Value> {
    let destination = json!({ "name": "mallory", "address": "127.0.0.1:9" });
    vec![
        json!({ "op": "issue-token", "name": "x", "rights": ["status"], "ttl_s": 3600 }),
        json!({ "op": "set-destination", "destination": destination, "connect": false }),
        json!({ "op": "clear-destination", "id": 1 }),
        json!({ "op": "set-destination-state", "name": "x", "state": "defer" }),
        json!({ "op": "remove-destination", "name": "x" }),
        json!({ "op": "allow-member", "name": "x", "rights": ["status"] }),
        json!({ "op": "remove-member", "name": "x" }),
        json!({ "op": "renew-certificate" }),
        json!({ "op": "protection-mode", "mode": "maximum-performance" }),
        json!({ "op": "protect", "path": "/etc", "name": null }),
        json!({ "op": "unprotect", "name": "app.db" }),
        json!({ "op": "resolve", "name": "app.db", "keep": null }),
        json!({ "op": "remove-kept", "file": "x" }),
        json!({ "op": "register-logfile", "path": "/etc/shadow" }),
        json!({ "op": "switch-logfile" }),
        json!({ "op": "change-log", "change": { "change": "add-group", "bytes": null } }),
        json!({ "op": "checkpoint" }),
        json!({ "op": "snapshot" }),
        json!({ "op": "verify", "database": null, "repair": true, "bytes_per_s": null }),
        json!({ "op": "apply", "on": false, "no_delay": false }),
        json!({ "op": "convert", "snapshot": true }),
        json!({ "op": "failover", "wait_s": 0, "immediate": true, "force": true }),
        json!({ "op": "switchover", "to": "oslo", "drain_s": 1 }),
        json!({ "op": "set-property", "member": null, "property": "DrainTimeout", "value": "1" }),
        json!({ "op": "ready-to-take-over", "name": "oslo" }),
        json!({ "op": "fast-start", "enable": false, "force": true }),
        json!({ "op": "observer" }),
        json!({ "op": "stop" }),
    ]
}

/// Returns a request of each kind that only reads.
pub fn looking() -> Vec<Value> {
    vec![
        json!({ "op": "status" }),
        json!({ "op": "serving" }),
        json!({ "op": "observe" }),
        json!({ "op": "view", "name": "v$database" }),
        json!({ "op": "list-destinations" }),
        json!({ "op": "configuration" }),
        json!({ "op": "kept" }),
        json!({ "op": "verification" }),
        json!({ "op": "protection-mode", "mode": null }),
    ]
}

/// Sets up a primary that every local user may read; returns it with its database and its control socket.
fn open_to_all(place: &Place) -> (Instance, PathBuf, PathBuf) {
    let (mut primary, database) = place.protecting();
    primary.stop().unwrap();
    primary.configure("instance", "mode", "0666").unwrap();
    start(&mut primary);
    let socket = primary.directory.join("control.sock");
    (primary, database, socket)
}

#[test]
fn database_user_may_view_but_not_administer() {
    if !is_root() {
        return;
    }
    let place = Place::new("looks");
    let (_primary, database, socket) = open_to_all(&place);
    as_user(ALICE, ALICE, || {
        for request in administering() {
            let answer = ask(&socket, &request);
            let printed = answer["error"].as_str().unwrap_or_else(|| panic!("{request}: {answer}"));
            let wanted = format!("`{}`", request["op"].as_str().unwrap());
            // A malformed request is refused before that check, with another message.
            assert!(printed.contains("uid 60001") && printed.contains(&wanted), "{request}: {printed}");
            assert!(answer["hint"].as_str().unwrap().contains("sudo -u '#0'"), "{answer}");
            assert_eq!(answer["code"], 3);
        }
        for request in looking() {
            let answer = ask(&socket, &request);
            assert!(answer.get("ok").is_some(), "{request}: {answer}");
        }
    });
    place.application(&database).run(INSERT);
    assert_eq!(rows(&database), 2, "it still serves");
}

#[test]
fn group_of_an_instance_has_access_and_other_users_have_none() {
    if !is_root() {
        return;
    }
    let place = Place::new("group");
    let (mut primary, database) = place.protecting();
    primary.stop().unwrap();
    primary.configure("instance", "group", CREW.to_string()).unwrap();
    start(&mut primary);
    let (socket, segment) = (primary.directory.join("control.sock"), segment_of(&database));
    let published = published_path(&segment);
    for (path, mode) in [(&socket, 0o660), (&segment, 0o660), (&published, 0o440)] {
        let found = fs::metadata(path).unwrap();
        assert_eq!((found.gid(), found.mode() & 0o777), (CREW, mode), "{}", path.display());
    }
    let open = || OpenOptions::new().read(true).write(true).open(&segment);
    as_user(ALICE, CREW, || {
        assert!(ask(&socket, &json!({ "op": "status" })).get("ok").is_some());
        let printed = ask(&socket, &json!({ "op": "stop" }));
        assert!(printed["error"].as_str().unwrap().contains("uid 60001"), "{printed}");
        open().unwrap();
        fs::File::open(&published).unwrap();
        assert_eq!(
            OpenOptions::new().write(true).open(&published).unwrap_err().kind(),
            ErrorKind::PermissionDenied
        );
    });
    as_user(MALLORY, MALLORY, || {
        assert_eq!(UnixStream::connect(&socket).unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!(open().unwrap_err().kind(), ErrorKind::PermissionDenied);
    });
    primary.stop().unwrap();
    primary.configure("instance", "group", "no-such-group").unwrap();
    primary.start().unwrap_err();
    assert!(primary.last_words().contains("groupadd no-such-group"), "{}", primary.last_words());
}

/// Creates a WAL database that `group` may write.
fn database_of_group(place: &Place, name: &str, group: u32) -> PathBuf {
    let path = place.database(name);
    for end in ["", "-wal", "-shm"] {
        let path = beside(&path, end);
        if path.exists() {
            chown(&path, None, Some(group)).unwrap();
            set_mode(&path, 0o660);
        }
    }
    path
}

#[test]
fn group_of_all_databases_has_access_by_default() {
    if !is_root() {
        return;
    }
    let place = Place::new("group-of-files");
    let mut primary = place.primary("south");
    let socket = primary.directory.join("control.sock");
    let access = |segment: &Path| {
        [segment.to_owned(), published_path(segment), socket.clone()].map(|path| {
            let found = fs::metadata(path).unwrap();
            (found.gid(), found.mode() & 0o777)
        })
    };
    let of_crew = [(CREW, 0o660), (CREW, 0o440), (CREW, 0o660)];
    let first = database_of_group(&place, "first.db", CREW);
    must(&primary, &["protect", &first.to_string_lossy()]);
    let segment = segment_of(&first);
    assert_eq!(access(&segment), of_crew, "of a database that came while it runs");
    as_user(ALICE, CREW, || assert!(ask(&socket, &json!({ "op": "status" })).get("ok").is_some()));
    primary.stop().unwrap();
    start(&mut primary);
    assert_eq!(access(&segment), of_crew, "after a start");
    // Users of the first database keep access until the next start, and the operator is informed.
    let other = database_of_group(&place, "other.db", MALLORY);
    must(&primary, &["protect", &other.to_string_lossy()]);
    assert_eq!(access(&segment), of_crew);
    await_alert(&primary, "from the next start on: the files of the databases have different groups");
    primary.stop().unwrap();
    start(&mut primary);
    assert_eq!(access(&segment).map(|(_, mode)| mode), [0o600, 0o400, 0o600]);
    must(&primary, &["unprotect", "other.db"]);
    assert_eq!(access(&segment), of_crew);
    primary.stop().unwrap();
    primary.configure("instance", "group", "none").unwrap();
    start(&mut primary);
    assert_eq!(access(&segment).map(|(_, mode)| mode), [0o600, 0o400, 0o600]);
}

#[test]
fn one_user_cannot_use_up_all_control_connections() {
    if !is_root() {
        return;
    }
    let place = Place::new("connections");
    let (primary, _, socket) = open_to_all(&place);
    let mut refused = 0;
    let open: Vec<UnixStream> = as_user(MALLORY, MALLORY, || {
        let mut open = Vec::new();
        for _ in 0..200 {
            let mut stream = UnixStream::connect(&socket).unwrap();
            // An incomplete request. A connection that is refused may be closed by now.
            let _ = stream.write_all(b"{");
            open.push(stream);
        }
        open
    });
    as_user(ALICE, ALICE, || assert!(ask(&socket, &json!({ "op": "status" })).get("ok").is_some()));
    assert!(primary.status().unwrap().json().is_object());
    for mut stream in open {
        stream.set_nonblocking(true).unwrap();
        let mut printed = String::new();
        let _ = stream.read_to_string(&mut printed);
        refused += usize::from(printed.contains("as many as one user can have"));
    }
    assert!(refused >= 100, "{refused} of 200");
}

#[test]
fn other_local_user_cannot_keep_an_instance_from_starting() {
    if !is_root() {
        return;
    }
    let place = Place::new("lock");
    let mut primary = place.instance("south");
    let lock = primary.directory.join("lock");
    let denied = |path: &Path| {
        let error = as_user(MALLORY, MALLORY, || File::open(path)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", path.display());
    };
    denied(&lock);
    start(&mut primary);
    denied(&lock);
    denied(&primary.directory.join("alert.log"));
    denied(&primary.directory.join("redo"));
    // The socket `alive`, which every user can reach, shows whether the instance runs, and takes no locks.
    let directory = primary.directory.clone();
    let probe = || as_user(MALLORY, MALLORY, || standfast_session::liveness::probe(&directory));
    assert_eq!(probe(), Some(true));
    primary.kill();
    assert_eq!(probe(), Some(false));
    start(&mut primary);
    assert_eq!(probe(), Some(true));
}

#[test]
fn lock_taken_by_another_user_before_the_upgrade_is_reported() {
    if !is_root() {
        return;
    }
    let place = Place::new("old-lock");
    let mut primary = place.instance("south");
    let lock = primary.directory.join("lock");
    set_mode(&lock, 0o644);
    let held = as_user(MALLORY, MALLORY, || {
        let file = File::open(&lock).unwrap();
        let read_lock = libc::flock {
            l_type: libc::F_RDLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open and the lock structure is valid.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &read_lock) }, 0);
        file
    });
    primary.start().unwrap_err();
    let printed = fs::read_to_string(primary.output_path()).unwrap();
    assert!(printed.contains("no instance") && printed.contains("rm "), "{printed}");
    // The remedy works, and afterwards the new file cannot be locked.
    fs::remove_file(&lock).unwrap();
    start(&mut primary);
    drop(held);
}

#[test]
fn links_in_the_application_directory_are_not_written_through() {
    if !is_root() {
        return;
    }
    let place = Place::new("links");
    let (mut primary, secret) = (place.primary("south"), secret(&place));
    let database = database_of_alice(&place);
    let marker = beside(&database, "-standfast");
    let put_links = || {
        as_user(ALICE, ALICE, || {
            for suffix in ["-standfast", "-standfast.new"] {
                let _ = fs::remove_file(beside(&database, suffix));
                symlink(&secret, beside(&database, suffix)).unwrap();
            }
        });
    };
    put_links();
    must(&primary, &["protect", &database.to_string_lossy()]);
    let is_marker = || {
        let found = fs::symlink_metadata(&marker).unwrap();
        assert!(found.is_file() && found.mode() & 0o777 == 0o644 && found.uid() == 0);
        is_untouched(&secret);
    };
    is_marker();
    // It is written again at every start.
    primary.stop().unwrap();
    put_links();
    start(&mut primary);
    is_marker();
}

#[test]
fn a_directory_replaced_by_a_link_is_not_written_to() {
    if !is_root() {
        return;
    }
    let place = Place::new("renamed");
    let mut primary = place.primary("south");
    // ALICE's home, in which ALICE may rename directories.
    let home = directory_of(&place, "home", ALICE);
    as_user(ALICE, ALICE, || fs::create_dir(home.join("data")).unwrap());
    let database = place.database("home/data/app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    primary.stop().unwrap();
    let theirs = place.path("theirs");
    fs::create_dir(&theirs).unwrap();
    for entry in fs::read_dir(home.join("data")).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, theirs.join(path.file_name().unwrap())).unwrap();
    }
    fs::remove_file(theirs.join("app.db-standfast")).unwrap();
    let listed = || fs::read_dir(&theirs).unwrap().count();
    let before = listed();
    as_user(ALICE, ALICE, || {
        fs::rename(home.join("data"), home.join("away")).unwrap();
        symlink(&theirs, home.join("data")).unwrap();
    });
    start(&mut primary);
    await_alert(&primary, "a symbolic link of uid 60001");
    assert_eq!(listed(), before, "nothing was made there");
    assert!(!theirs.join("app.db-standfast").exists());
}

#[test]
fn database_with_a_second_hard_link_is_not_protected() {
    let place = Place::new("hard-link");
    let primary = place.primary("south");
    let database = place.database("app.db");
    fs::hard_link(&database, place.path("other.db")).unwrap();
    refuses(&primary, &["protect", &database.to_string_lossy()], 3, &["2 names", "find ", "-samefile"]);
    assert!(!beside(&database, "-standfast").exists());
    fs::remove_file(place.path("other.db")).unwrap();
    must(&primary, &["protect", &database.to_string_lossy()]);
}

#[test]
fn marker_that_is_a_fifo_does_not_block_an_application() {
    let place = Place::new("fifo");
    let database = place.database("app.db");
    let marker = beside(&database, "-standfast");
    let fifo = std::ffi::CString::new(marker.to_string_lossy().as_bytes()).unwrap();
    // SAFETY: the path is null-terminated.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
    let mut application = place.application(&database);
    assert_eq!(application.run("SELECT count(*) FROM t")[0][0], 1);
    application.fails(INSERT, crate::support::SQLITE_READONLY);
    assert!(application.printed().contains("not a regular file"), "{}", application.printed());
}

/// Parses the table in docs/security.md: names and permissions.
fn table() -> Vec<(String, u32)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("<!-- modes -->").unwrap();
    let (table, _) = table.split_once("<!-- end of modes -->").unwrap();
    let cells = |line: &str| -> Option<(String, u32)> {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        Some((name, u32::from_str_radix(cells.next()?, 8).ok()?))
    };
    table.lines().filter_map(cells).collect()
}

/// Returns the name in the table for a file in the directory of an instance.
pub fn row_of(relative: &Path) -> String {
    let text = relative.to_string_lossy().into_owned();
    if text.ends_with("-standfast") {
        return "NAME-standfast".to_owned();
    }
    let Some((directory, _)) = text.split_once('/') else { return text };
    match directory {
        "redo" | "archive" | "db" => format!("{directory}/*"),
        _ => text,
    }
}

fn check_modes(root: &Path, directory: &Path, table: &[(String, u32)], seen: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let row = row_of(entry.path().strip_prefix(root).unwrap());
        let found = fs::symlink_metadata(entry.path()).unwrap();
        let wanted = table.iter().find(|(name, _)| *name == row);
        let (_, mode) = wanted.unwrap_or_else(|| panic!("docs/security.md has no row for {row}"));
        assert_eq!(found.mode() & 0o777, *mode, "{row} {:o}", found.mode() & 0o777);
        seen.push(row);
        if found.is_dir() {
            check_modes(root, &entry.path(), table, seen);
        }
    }
}

#[test]
fn permissions_match_the_table_in_the_documentation() {
    let place = Place::new("table");
    let (primary, standby, database) = place.pair(&[]);
    place.application(&database).run(INSERT);
    must(&primary, &["snapshot"]);
    must(&primary, &["switch-logfile"]);
    let archive = |instance: &Instance| fs::read_dir(instance.directory.join("archive")).unwrap().count();
    await_condition("an archived log at both", TIMEOUT, || {
        let both = archive(&primary) > 0 && archive(&standby) > 0;
        Ok(if both { Ok(()) } else { Err("none".to_owned()) })
    })
    .unwrap();
    let (table, mut seen) = (table(), Vec::new());
    for instance in [&primary, &standby] {
        let own = table.iter().find(|(name, _)| name == ".").unwrap();
        assert_eq!(fs::metadata(&instance.directory).unwrap().mode() & 0o777, own.1);
        check_modes(&instance.directory, &instance.directory, &table, &mut seen);
    }
    let segment = segment_of(&database);
    for (path, row) in [
        (beside(&database, "-standfast"), "NAME-standfast"),
        (published_path(&segment), "segment.published"),
        (segment, "segment"),
    ] {
        let (_, mode) = table.iter().find(|(name, _)| name == row).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, *mode, "{row}");
    }
    for row in ["control", "lock", "alive", "control.sock", "redo/*", "archive/*", "db/*", "tls/ca.key"] {
        assert!(seen.iter().any(|name| name == row), "{row} was not there to be compared");
    }
}

#[test]
fn start_narrows_permissions_of_an_older_instance_directory() {
    let place = Place::new("narrowed");
    let mut primary = place.instance("south");
    for name in [".", "redo", "archive"] {
        set_mode(&primary.directory.join(name), 0o755);
    }
    set_mode(&primary.directory.join("lock"), 0o644);
    start(&mut primary);
    await_alert(&primary, "had the permissions 0755, and has 0711 now");
    let mode = |name: &str| fs::metadata(primary.directory.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("."), mode("redo"), mode("lock")), (0o711, 0o700, 0o600));
}
