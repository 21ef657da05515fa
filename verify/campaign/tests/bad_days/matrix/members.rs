//! Requests over the replication port: by peers with limited rights, by the holder of a stolen certificate, and by
//! unauthenticated peers.

use super::{
    ACTORS, APPLICATION, ARCHIVE, Actor, BACKUP, FAR_SYNC, NEVER_PRIMARY, OTHER_USER, Table, Tried, logs,
};
use crate::security::{joined, primary, standby};
use crate::support::{INSERT, Place, add_destination, await_alert, await_status, must, start};
use serde_json::json;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::{keeper_of, security_of};
use standfast_environment::state::paths::Paths;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request as ControlRequest;
use standfast_tls::{Request, Token};
use standfast_transport::hello;
use standfast_transport::{
    Discarded, NotTakenOver, ObserverConnection, Security, TakeOver, TransportError, ask_to_follow,
    ask_to_take_over, fetch_certificate, fetch_database, fetch_snapshot, fetch_status,
};
use standfast_types::DatabaseId;
use std::path::Path;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);
/// Name of an instance that an attacker sets up with stolen redo.
const EVIL: &str = "evil";

struct Family {
    place: Place,
    south: Instance,
    north: Instance,
    reports: Instance,
    near: Instance,
    token: String,
}

impl Family {
    fn new() -> Family {
        let place = Place::new("matrix-members");
        let (south, database) = primary(&place);
        let north = standby(&place, &south, "north", &[]);
        let reports = standby(&place, &south, "reports", &["--never-primary"]);
        let mut near = joined(&place, &south, "near", &["--far-sync"], &["--far-sync"]);
        start(&mut near);
        add_destination(&south, &north, &["--mode", "sync-affirm"]);
        add_destination(&south, &reports, &["--mode", "async"]);
        add_destination(&south, &near, &["--mode", "async"]);
        place.application(&database).run(INSERT);
        await_status(&south, "the standby follows", |status| status.streams() && Status::settled(status));
        let token = must(&south, &["standby", "token", "--name", "late"]);
        Family { place, south, north, reports, near, token }
    }

    /// Returns the credentials of `actor`, and the name that they belong to.
    fn security(&self, actor: Actor) -> (Security, &'static str) {
        let (directory, name) = match actor {
            NEVER_PRIMARY => (&self.reports.directory, "reports"),
            FAR_SYNC => (&self.near.directory, "near"),
            BACKUP => (&self.south.directory, "south"),
            _ => return (Security::insecure(), "late"),
        };
        let config = Config::load(directory).unwrap();
        let paths = Paths::new(directory, &config).unwrap();
        (security_of(&config, &keeper_of(&config, &paths)), name)
    }

    /// Returns the instance that is asked: the primary, or a standby by the holder of the primary's certificate.
    fn asked(&self, actor: Actor) -> &Instance {
        if actor == BACKUP { &self.north } else { &self.south }
    }
}

/// Returns the outcome of a request. A failed guess delays its address: a connection that is closed without an answer
/// is repeated.
fn outcome<T>(mut ask: impl FnMut() -> Result<T, TransportError>) -> &'static str {
    let mut found = "refused";
    await_condition("an answer", WITHIN, || {
        Ok(match ask() {
            Ok(_) => {
                found = "given";
                Ok(())
            }
            // A standby is asked for what it has: one database.
            Err(TransportError::Refused(refusal)) => {
                if refusal.to_string().contains("not a primary") {
                    found = "given by a primary";
                }
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        })
    })
    .unwrap_or_else(|error| panic!("{error}"));
    found
}

/// Asks in the name of the primary whether the instance at `address` is ready to take over.
fn asked_to_take_over(family: &Family, address: &str, security: &Security, name: &str) -> &'static str {
    let status = family.south.status().unwrap();
    let source = json!({
        "instance": status.json()["instance"], "name": name, "role": "primary",
        "incarnations": [{ "number": 1, "id": "0000000000000000", "branch": 4096 }],
    });
    let configuration = control_client::ask(&family.south.directory, &ControlRequest::Configuration).unwrap();
    let wish = json!({
        "source": source, "protection_mode": "maximum-availability", "configuration": configuration,
    });
    let wish: TakeOver = serde_json::from_value(wish).unwrap();
    let ready = || {
        ask_to_take_over(address, security, &wish, WITHIN).map_err(|error| match error {
            NotTakenOver::Certain(error) | NotTakenOver::Unknown(error) => error,
        })
    };
    if outcome(ready) == "given" { "as that instance" } else { "refused" }
}

/// Makes the requests of all rows: each row begins with the name of its kind.
fn ask_everything(family: &Family, actor: Actor, tried: &mut Tried) {
    let (security, name) = family.security(actor);
    let address = family.asked(actor).address.as_str();
    let copy = |with_databases| {
        outcome(|| fetch_snapshot(address, &security, name, &mut Discarded::new(with_databases)))
    };
    tried.note("snapshot", actor, copy(true));
    tried.note("snapshot without databases", actor, copy(false));
    let mut sink = Discarded::new(true);
    let one = outcome(|| fetch_database(address, &security, name, DatabaseId(0), &mut sink));
    tried.note("snapshot of one database", actor, one);
    tried.note("status", actor, outcome(|| fetch_status(address, &security, false, WITHIN)));
    tried.note("take_over", actor, asked_to_take_over(family, address, &security, name));
    let standby = serde_json::from_value(json!({
        "name": name, "address": ":1", "mode": "async", "net_timeout_ms": 1000,
    }));
    let standby = standby.unwrap();
    let followed = outcome(|| ask_to_follow(address, &security, &standby, WITHIN));
    tried.note("follow", actor, followed);
    let read = json!({ "ask": "read", "follows": null });
    let arbitrated = outcome(|| ObserverConnection::new(address, security.clone(), name).ask(&read, WITHIN));
    tried.note("arbitrate", actor, arbitrated);
    // Only the primary issues certificates.
    let address = family.south.address.as_str();
    for (row, wanted) in [("certificate", name), ("certificate of another name", "north")] {
        let request = Request::create(wanted).unwrap();
        let given = outcome(|| fetch_certificate(address, &security, wanted, request.der(), None, None));
        tried.note(row, actor, given);
    }
    let request = Request::create(EVIL).unwrap();
    let token = Token::parse(&family.token).unwrap();
    let given = fetch_certificate(address, &security, EVIL, request.der(), Some(&token), None);
    tried.note("certificate by the token of another", actor, given.map_or("refused", |_| "given"));
}

#[test]
fn every_request_to_another_host_is_answered_as_the_matrix_says() {
    let family = Family::new();
    let error = serde_json::from_str::<hello::Request>(r#"{"request":"?"}"#).unwrap_err().to_string();
    let (_, names) = error.split_once("expected one of").unwrap();
    let table = Table::read("members");
    for name in names.split('`').skip(1).step_by(2) {
        assert!(
            table.rows.iter().any(|row| row.split(' ').next() == Some(name)),
            "no row for the request {name}"
        );
    }
    let mut tried = Tried::default();
    for actor in ACTORS {
        ask_everything(&family, actor, &mut tried);
    }
    let mut family = family;
    for actor in [NEVER_PRIMARY, FAR_SYNC] {
        claim(&mut family, actor, &mut tried);
    }
    claim_without_a_certificate(&mut family, &mut tried);
    claim_as_the_primary(&mut family, &mut tried);
    table.compare(&tried);
}

const SENDS: &str = "redo";
const CLAIMS: &str = "a newer incarnation";

/// Replaces the credentials of `instance` by those in `from`.
fn steal(instance: &Instance, from: &Path, name: &str) {
    let tls = instance.directory.join("tls");
    std::fs::remove_dir_all(&tls).unwrap();
    std::fs::create_dir(&tls).unwrap();
    for path in logs(&from.join("tls")) {
        std::fs::copy(&path, tls.join(path.file_name().unwrap())).unwrap();
    }
    instance.configure("instance", "name", name).unwrap();
}

/// Creates an instance with a copy of all redo, as an attacker on a standby has it, that will claim to be the primary.
/// It does not run.
fn claimant(family: &Family, nth: usize) -> Instance {
    let mut evil = standby(&family.place, &family.south, &format!("{EVIL}-{nth}"), &[]);
    evil.stop().unwrap();
    evil
}

fn take_over(family: &Family, evil: &mut Instance, name: Option<&str>) {
    start(evil);
    if let Some(name) = name {
        must(evil, &["cert", "allow", name]);
    }
    must(evil, &["failover", "--wait", "0"]);
    let north = ["destination", "add", "north", &family.north.address, "--mode", "async", "--no-wait"];
    must(evil, &north);
}

/// Asserts that the primary is open and that its commits reach the standby.
fn resumes(family: &Family) {
    family.place.application(&family.place.path("app.db")).run(INSERT);
    let status = await_status(&family.south, "all is applied", |status| status.streams() && status.settled());
    assert_eq!(status.text("/state"), "open", "{}", status.brief());
}

/// Claims with the certificate of a peer that may not send redo, or may not begin an incarnation.
fn claim(family: &mut Family, actor: Actor, tried: &mut Tried) {
    let (member, name) =
        if actor == FAR_SYNC { (&mut family.near, "near") } else { (&mut family.reports, "reports") };
    member.stop().unwrap();
    let directory = member.directory.clone();
    let mut evil = claimant(family, actor.uid as usize);
    steal(&evil, &directory, name);
    take_over(family, &mut evil, Some(name));
    if actor == FAR_SYNC {
        // It may send redo, but may not begin the incarnation.
        await_alert(&evil, "which is not accepted: `near` may not become primary");
        tried.note(SENDS, actor, "of its source");
    } else {
        await_alert(&evil, "`reports` may not send redo at `north`");
        tried.note(SENDS, actor, "refused");
    }
    resumes(family);
    tried.note(CLAIMS, actor, "refused");
}

/// Claims over plain TCP, as actors without a certificate must.
fn claim_without_a_certificate(family: &mut Family, tried: &mut Tried) {
    let mut evil = claimant(family, 0);
    std::fs::remove_dir_all(evil.directory.join("tls")).unwrap();
    evil.configure("instance", "insecure", true).unwrap();
    take_over(family, &mut evil, None);
    await_alert(&evil, "takes no plain TCP");
    resumes(family);
    for actor in [OTHER_USER, APPLICATION, ARCHIVE] {
        tried.note(SENDS, actor, "refused");
        tried.note(CLAIMS, actor, "refused");
    }
}

/// Claims with the certificate of the primary, whose holder counts as the primary until its name is removed from the
/// allow-list.
fn claim_as_the_primary(family: &mut Family, tried: &mut Tried) {
    let mut evil = claimant(family, 1);
    steal(&evil, &family.south.directory, "south");
    take_over(family, &mut evil, Some("south"));
    await_alert(&family.north, "nothing of an older one is acknowledged here");
    tried.note(SENDS, BACKUP, "as that instance");
    tried.note(CLAIMS, BACKUP, "as that instance");
}

#[test]
fn a_stolen_certificate_gets_nothing_after_its_name_was_revoked() {
    let place = Place::new("stolen-certificate");
    let (south, _) = primary(&place);
    let north = standby(&place, &south, "north", &[]);
    let reports = standby(&place, &south, "reports", &["--never-primary"]);
    add_destination(&south, &north, &["--mode", "sync-affirm"]);
    add_destination(&south, &reports, &["--mode", "async"]);
    await_status(&south, "both follow", |status| status.streams() && Status::settled(status));
    let config = Config::load(&reports.directory).unwrap();
    let stolen = security_of(&config, &keeper_of(&config, &Paths::new(&reports.directory, &config).unwrap()));
    let everything = |of: &Instance| {
        let address = of.address.as_str();
        let mut sink = Discarded::new(true);
        let request = Request::create("reports").unwrap();
        [
            outcome(|| fetch_snapshot(address, &stolen, "reports", &mut Discarded::new(true))),
            outcome(|| fetch_database(address, &stolen, "reports", DatabaseId(0), &mut sink)),
            outcome(|| fetch_status(address, &stolen, false, WITHIN)),
            outcome(|| fetch_certificate(address, &stolen, "reports", request.der(), None, None)),
        ]
    };
    assert_eq!(everything(&south), ["given"; 4]);
    for instance in [&south, &north] {
        let listed = must(instance, &["cert", "show"]).contains("reports");
        if listed {
            if std::ptr::eq(instance, &south) {
                must(instance, &["destination", "remove", "reports"]);
            }
            must(instance, &["cert", "revoke", "reports"]);
        }
        assert_eq!(everything(instance), ["refused"; 4], "{}", instance.directory.display());
    }
}
