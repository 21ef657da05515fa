//! Other local users with the stock program against the setup of the README, and how they are admitted again.

use crate::security::{primary, standby, token};
use crate::support::{
    INSERT, Place, add_destination, assert_same, await_alert, await_rows, await_status, must, refuses, start,
};
use standfast_campaign::instance::{INSECURE, Instance};
use standfast_campaign::status::Status;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A local user who is neither root nor the owner of an instance.
const OTHER_USER: u32 = 60_001;

/// Returns a command that runs the program as another user, or as the same user if this test is not root.
fn as_other_user(place: &Place, directory: &Path) -> Command {
    let mut command = Command::new(&place.programs.standfast);
    std::fs::create_dir_all(directory).unwrap();
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(directory, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
        command.uid(OTHER_USER).gid(OTHER_USER);
    }
    command
}

/// Makes the instance listen on all addresses, as one that is reached from other hosts does.
fn listen_everywhere(instance: &mut Instance) {
    let port = instance.address.rsplit_once(':').unwrap().1.to_owned();
    instance.configure("instance", "listen", format!("0.0.0.0:{port}")).unwrap();
    instance.stop().unwrap();
    start(instance);
}

#[test]
fn other_local_user_gets_no_copy_from_the_readme_setup() {
    let place = Place::new("other-user-copy");
    let (mut south, _) = primary(&place);
    listen_everywhere(&mut south);
    let port = south.address.rsplit_once(':').unwrap().1;
    for (number, host) in
        ["127.0.0.1", "127.0.0.2", "localhost", "[::ffff:127.0.0.1]"].into_iter().enumerate()
    {
        let directory = place.path(&format!("mallory-{number}"));
        let mut command = as_other_user(&place, &directory);
        command.args(["standby", "create", INSECURE, "--name", "mallory"]);
        command.args(["--from", &format!("{host}:{port}"), "-D"]).arg(directory.join("copy"));
        let made = command.output().unwrap();
        let printed = String::from_utf8_lossy(&made.stderr);
        assert_eq!(made.status.code(), Some(3), "{host}: {printed}");
        assert!(
            printed.contains("takes no plain TCP") && !directory.join("copy").exists(),
            "{host}: {printed}"
        );
    }
    await_alert(&south, "takes no plain TCP");
    assert!(!south.alerts().contains("mallory"), "{}", south.alerts());
}

#[test]
fn copy_without_certificate_sends_no_redo_and_fences_no_primary() {
    let place = Place::new("other-user-redo");
    let (south, database) = primary(&place);
    let north = standby(&place, &south, "north", &[]);
    add_destination(&south, &north, &["--mode", "sync-affirm"]);
    // As if the redo of a standby had been copied without its keys.
    let mut mallory = standby(&place, &south, "mallory", &[]);
    mallory.stop().unwrap();
    std::fs::remove_dir_all(mallory.directory.join("tls")).unwrap();
    mallory.configure("instance", "insecure", true).unwrap();
    start(&mut mallory);
    must(&mallory, &["failover"]);
    must(&mallory, &["destination", "add", "north", &north.address, "--mode", "sync-affirm", "--no-wait"]);
    await_alert(&mallory, "takes no plain TCP");
    await_alert(&north, "takes no plain TCP");
    place.application(&database).run(INSERT);
    assert_same(&south, &north, &database);
    let status = south.status().unwrap();
    assert!(status.streams() && status.text("/state") == "open", "{}", status.brief());
    assert!(!north.alerts().contains("incarnation 2"), "{}", north.alerts());
}

/// Sets up a primary and a standby that followed it over plain TCP on loopback, as an earlier release allowed: the
/// standby has no certificate, and its name is not on the allow-list.
fn pair_of_before(place: &Place) -> (Instance, Instance, std::path::PathBuf) {
    let (south, database) = primary(place);
    let mut north = standby(place, &south, "north", &[]);
    add_destination(&south, &north, &["--mode", "sync-affirm"]);
    await_status(&south, "the standby follows", |status| status.streams() && status.settled());
    north.stop().unwrap();
    std::fs::remove_dir_all(north.directory.join("tls")).unwrap();
    std::fs::remove_file(south.directory.join("tls/members.json")).unwrap();
    for instance in [&south, &north] {
        instance.configure("security", "tls", "auto").unwrap();
    }
    (south, north, database)
}

#[test]
fn plain_loopback_pair_is_shown_how_to_join_and_can_join() {
    let place = Place::new("plain-before");
    let (mut south, mut north, database) = pair_of_before(&place);
    south.stop().unwrap();
    start(&mut south);
    await_alert(&south, "destination `north` is on no list here");
    let words =
        ["no certificate", "standfast standby token --name north > token", "cert join --from HOST:PORT"];
    refuses(&north, &["start"], 3, &words);
    let token = token(&place, &south, "north", &[]);
    must(&north, &["cert", "join", "--from", &south.address, "--token-file", &token.to_string_lossy()]);
    start(&mut north);
    await_status(&south, "the standby follows again", Status::streams);
    place.application(&database).run(INSERT);
    assert_same(&south, &north, &database);
}

#[test]
fn plain_tcp_at_both_ends_works_and_both_report_it_as_insecure() {
    let place = Place::new("plain-wanted");
    let (mut south, mut north, database) = pair_of_before(&place);
    // It is refused at one end, and both ends report it.
    north.configure("instance", "insecure", true).unwrap();
    start(&mut north);
    await_alert(&south, "the other end speaks plain TCP");
    await_alert(
        &north,
        "this instance has no certificate | hint: at the primary `standfast standby token --name north",
    );
    assert!(!south.status().unwrap().streams());
    south.stop().unwrap();
    south.configure("instance", "insecure", true).unwrap();
    start(&mut south);
    await_status(&south, "the standby follows again", Status::streams);
    place.application(&database).run(INSERT);
    await_rows(&north.standby_database("app.db"), 2);
    for instance in [&south, &north] {
        assert!(must(instance, &["status"]).contains("INSECURE: plain TCP"));
        assert!(instance.alerts().contains("INSECURE: plain TCP is allowed"), "{}", instance.alerts());
        let checked = instance.run(&["status", "--check"]).unwrap();
        assert_eq!(checked.code, 1, "{}", checked.stdout);
        for words in ["WARNING", "insecure: plain TCP", "`standfast cert join`", "take `insecure = true` out"]
        {
            assert!(checked.stdout.contains(words), "{}", checked.stdout);
        }
    }
}
