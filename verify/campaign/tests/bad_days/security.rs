//! Encrypted connections: joining, following, failover, renewal, and refused peers.

use crate::support::{
    INSERT, Place, TIMEOUT, add_destination, assert_same, await_alert, await_rows, await_status, must,
    refuses, start,
};
use crate::writers::Writers;
use standfast_campaign::instance::{INSECURE, Instance, free_address};
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

/// Sets up a running primary with a certificate, as in the README, that protects a database.
pub fn primary(place: &Place) -> (Instance, PathBuf) {
    let more = ["--group-bytes", "8388608"];
    let mut primary = Instance::init_with_tls(&place.programs, &place.path("south"), "south", &more)
        .unwrap_or_else(|error| panic!("{error}"));
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    (primary, database)
}

/// Issues a token for `name` and writes it to a file.
pub fn token(place: &Place, issuer: &Instance, name: &str, more: &[&str]) -> PathBuf {
    let text = must(issuer, &[&["standby", "token", "--name", name], more].concat());
    let path = place.path(&format!("token-{name}"));
    write_secret(&path, &text);
    path
}

/// Writes a file that only this user can access.
pub fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

pub fn create(place: &Place, from: &str, name: &str, address: &str, more: &[&str]) -> Output {
    let mut command = Command::new(&place.programs.standfast);
    command.args(["standby", "create", "--from", from, "--name", name, "--listen", address]);
    command.args(more).arg("-D").arg(place.path(name));
    command.output().unwrap()
}

/// Creates a running standby that joined with a token.
pub fn standby(place: &Place, primary: &Instance, name: &str, more: &[&str]) -> Instance {
    let mut joined = joined(place, primary, name, more, &[]);
    start(&mut joined);
    joined
}

/// Creates a standby that joined with a token and does not run yet. `made_with`: options of `standby create`.
pub fn joined(place: &Place, primary: &Instance, name: &str, more: &[&str], made_with: &[&str]) -> Instance {
    let token = token(place, primary, name, more);
    // Only its directory and address are used; the command under test creates it again.
    let mut standby = place.instance(name);
    std::fs::remove_dir_all(&standby.directory).unwrap();
    standby.address = free_address().unwrap();
    let token = token.to_string_lossy();
    let options = [&["--token-file", &*token], made_with].concat();
    let made = create(place, &primary.address, name, &standby.address, &options);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    standby
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn fingerprint(instance: &Instance) -> String {
    let shown = must(instance, &["cert", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    shown["certificate"]["fingerprint"].as_str().unwrap().to_owned()
}

#[test]
fn standbys_join_with_tokens_and_follow_the_new_primary() {
    let place = Place::new("tls-failover");
    let (mut south, database) = primary(&place);
    let north = standby(&place, &south, "north", &[]);
    let east = standby(&place, &south, "east", &[]);
    add_destination(&south, &north, &["--mode", "sync-affirm"]);
    add_destination(&south, &east, &["--mode", "async"]);
    place.application(&database).run(INSERT);
    assert_same(&south, &north, &database);
    await_rows(&east.standby_database("app.db"), 2);
    south.kill();
    must(&north, &["failover"]);
    add_destination(&north, &east, &["--mode", "sync-affirm"]);
    let taken_over = north.standby_database("app.db");
    place.application(&taken_over).run(INSERT);
    await_rows(&east.standby_database("app.db"), 3);

    // No alert and no file of the tls directory contains the secret.
    for token in ["token-north", "token-east"] {
        let token = std::fs::read_to_string(place.path(token)).unwrap();
        let secret = &token.trim()[token.trim().len() - 48..];
        for instance in [&south, &north, &east] {
            for text in [instance.alerts(), instance.last_words()] {
                assert!(!text.contains(secret), "{text}");
            }
            assert!(!contains(&instance.directory.join("tls"), secret.as_bytes()));
        }
    }
}

fn contains(directory: &Path, what: &[u8]) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        std::fs::read(entry.unwrap().path()).unwrap().windows(what.len()).any(|part| part == what)
    })
}

#[test]
fn invalid_tokens_and_plain_tcp_are_refused_with_a_remedy() {
    let place = Place::new("tls-tokens");
    let (south, _) = primary(&place);
    let address = free_address().unwrap();
    let refused = |more: &[&str], words: &[&str]| {
        let made = create(&place, &south.address, "north", &address, more);
        let printed = printed(&made);
        assert_eq!(made.status.code(), Some(3), "{printed}");
        assert!(words.iter().all(|word| printed.contains(word)), "{words:?} not in: {printed}");
    };
    // Without a token; with garbage; with a token for another name.
    refused(&[], &["no token", "standfast standby token --name north", "--token-file token"]);
    let file = place.path("garbage");
    write_secret(&file, "sft1.0123");
    refused(&["--token-file", &file.to_string_lossy()], &["not a join token"]);
    let other = token(&place, &south, "west", &[]);
    refused(&["--token-file", &other.to_string_lossy()], &["not for `north`"]);
    // A token that has expired, by the clock of this host, which counts whole seconds.
    let late = token(&place, &south, "north", &["--ttl", "1s"]);
    let issued = SystemTime::now();
    await_condition("its time is over", TIMEOUT, || {
        let passed = issued.elapsed().unwrap_or_default();
        Ok(if passed >= Duration::from_secs(2) { Ok(()) } else { Err(format!("{passed:?}")) })
    })
    .unwrap();
    refused(&["--token-file", &late.to_string_lossy()], &["has expired"]);
    // A token that was used once.
    let north = standby(&place, &south, "north", &[]);
    std::fs::rename(north.directory.join("tls"), place.path("away")).unwrap();
    let used = place.path("token-north").to_string_lossy().into_owned();
    let again = ["cert", "join", "--from", &south.address, "--token-file", &used];
    refuses(&north, &again, 3, &["used already", "standfast standby token"]);
    // Plain TCP is refused with the remedy, and both ends report it.
    let plain = Command::new(&place.programs.standfast)
        .args(["standby", "create", INSECURE, "--from", &south.address, "--name", "plain", "-D"])
        .arg(place.path("plain"))
        .output()
        .unwrap();
    assert!(printed(&plain).contains("takes no plain TCP"), "{}", printed(&plain));
    await_alert(&south, "takes no plain TCP");
}

#[test]
fn unused_token_of_a_certified_host_is_reported_and_stays_valid() {
    let place = Place::new("tls-unused");
    let (south, _) = primary(&place);
    let address = free_address().unwrap();
    let first = token(&place, &south, "north", &[]).to_string_lossy().into_owned();
    let attempt = |from: &str, token: &str| create(&place, from, "north", &address, &["--token-file", token]);
    // It gets its certificate, and then the copy fails.
    let taken = place.path("north").join("db");
    std::fs::create_dir_all(&taken).unwrap();
    std::fs::write(taken.join("app.db"), "of another user").unwrap();
    assert!(!attempt(&south.address, &first).status.success());
    std::fs::remove_dir_all(&taken).unwrap();
    let second = token(&place, &south, "north", &[]).to_string_lossy().into_owned();
    let made = attempt(&south.address, &second);
    assert!(made.status.success() && printed(&made).contains("the token was not used"), "{}", printed(&made));
    std::fs::remove_dir_all(place.path("north")).unwrap();
    let again = attempt(&south.address, &second);
    assert!(again.status.success() && !printed(&again).contains("not used"), "{}", printed(&again));
}

#[test]
fn certificate_renewal_under_load_interrupts_no_stream() {
    let place = Place::new("tls-rotation");
    let (south, database) = primary(&place);
    let mut north = standby(&place, &south, "north", &[]);
    add_destination(&south, &north, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    await_status(&south, "the standby follows", |status| status.streams() && status.settled());
    let writers = Writers::start(&place, &database, 4);
    writers.await_progress();
    let (first_south, first_north) = (fingerprint(&south), fingerprint(&north));
    must(&south, &["cert", "renew"]);
    must(&north, &["cert", "rotate", "--from", &south.address]);
    assert!(fingerprint(&south) != first_south && fingerprint(&north) != first_north);
    writers.await_progress();
    assert_eq!(south.alerts().matches("connected: sending").count(), 1, "the stream was interrupted");
    // A new authority: first the standby gets a certificate from it with its old one, then the primary.
    must(&south, &["cert", "init"]);
    must(&north, &["cert", "renew", "--from", &south.address]);
    must(&south, &["cert", "renew"]);
    north.stop().unwrap();
    start(&mut north);
    writers.await_progress();
    let acknowledged = writers.finish();
    assert_same(&south, &north, &database);
    acknowledged.all_in(&north.standby_database("app.db"));
}

#[test]
fn revoked_host_is_refused_and_a_reader_never_becomes_a_source() {
    let place = Place::new("tls-listed");
    let (mut south, _) = primary(&place);
    let north = standby(&place, &south, "north", &[]);
    let reports = standby(&place, &south, "reports", &["--never-primary"]);
    add_destination(&south, &north, &["--mode", "async"]);
    add_destination(&south, &reports, &["--mode", "async"]);
    await_status(&south, "both follow", |status| status.streams() && Status::settled(status));
    south.kill();
    // Its own allow-list refuses it as well, but an attacker there can change that.
    refuses(&reports, &["failover"], 3, &["may not become primary", "fail over another standby"]);
    must(&reports, &["cert", "allow", "reports"]);
    must(&reports, &["failover"]);
    add_destination(&reports, &north, &["--mode", "async", "--no-wait"]);
    await_alert(&reports, "not_allowed");
    await_alert(&north, "`reports` may not send redo");
    start(&mut south);
    must(&south, &["destination", "remove", "north"]);
    must(&south, &["cert", "revoke", "north"]);
    let renew = ["cert", "renew", "--from", &south.address];
    refuses(&north, &renew, 3, &["not listed"]);
    refuses(&south, &["cert", "revoke", "north"], 3, &["has not joined here"]);
}
