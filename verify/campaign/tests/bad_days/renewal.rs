//! Certificates that expire, and roots of trust that a peer tries to add.

use crate::security::{fingerprint, primary, standby};
use crate::support::{
    Place, TIMEOUT, add_destination, assert_same, await_alert, await_status, must, refuses, start,
};
use crate::writers::Writers;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;

/// Limits the lifetime of certificates that this instance issues, and renews its own.
pub fn short_lived(instance: &mut Instance, seconds: u64) {
    let path = instance.directory.join("standfast.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, after) = ("certificate_valid_s = 31536000", format!("certificate_valid_s = {seconds}"));
    assert!(text.contains(before), "{text}");
    std::fs::write(&path, text.replace(before, &after)).unwrap();
    instance.stop().unwrap();
    start(instance);
    must(instance, &["cert", "renew"]);
}

#[test]
fn certificates_renew_automatically_while_the_stream_continues() {
    let place = Place::new("renewal-twice");
    let (mut south, database) = primary(&place);
    short_lived(&mut south, 24);
    let north = standby(&place, &south, "north", &[]);
    add_destination(&south, &north, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    await_status(&south, "the standby follows", |status| status.streams() && status.settled());
    let writers = Writers::start(&place, &database, 2);
    let first = [&south, &north].map(fingerprint);
    for instance in [&south, &north] {
        await_condition("two renewals", TIMEOUT, || {
            let renewals = instance.alerts().matches("was renewed automatically").count();
            Ok(if renewals >= 2 { Ok(()) } else { Err(renewals.to_string()) })
        })
        .unwrap_or_else(|error| panic!("{error}\n{}", instance.alerts()));
    }
    assert!([&south, &north].map(fingerprint).iter().zip(&first).all(|(now, then)| now != then));
    writers.await_progress();
    assert_eq!(south.alerts().matches("connected: sending").count(), 1, "the stream was interrupted");
    writers.finish();
    assert_same(&south, &north, &database);
}

#[test]
fn certificate_that_cannot_be_renewed_is_reported_as_expired() {
    let place = Place::new("renewal-fails");
    let (mut south, _) = primary(&place);
    short_lived(&mut south, 10);
    let north = standby(&place, &south, "north", &[]);
    add_destination(&south, &north, &["--mode", "async"]);
    await_status(&south, "the standby follows", Status::settled);
    south.kill();
    await_alert(&north, "THE CERTIFICATE HAS EXPIRED");
    let check = north.run(&["status", "--check"]).unwrap();
    assert_eq!(check.code, 2, "{}", check.stdout);
    assert!(check.stdout.contains("the certificate has expired"), "{}", check.stdout);
    let certificate = north.status().unwrap().json()["security"]["certificate"].clone();
    assert_eq!(certificate["state"], "expired", "{certificate}");
    // The instance that holds the authority's key renews its certificate by itself; the standby continues after a new
    // token.
    start(&mut south);
    await_status(&south, "it has renewed its certificate", |status| {
        status.json()["security"]["certificate"]["state"] == "valid"
    });
    let token = crate::security::token(&place, &south, "north", &[]).to_string_lossy().into_owned();
    must(&north, &["cert", "join", "--from", &south.address, "--token-file", &token]);
    await_status(&south, "the standby follows again", Status::streams);
}

#[test]
fn authority_founded_by_another_member_is_not_trusted() {
    let place = Place::new("renewal-roots");
    let (south, _) = primary(&place);
    let north = standby(&place, &south, "north", &[]);
    let reports = standby(&place, &south, "reports", &["--never-primary"]);
    add_destination(&south, &north, &["--mode", "async"]);
    add_destination(&south, &reports, &["--mode", "async"]);
    await_status(&south, "both follow", |status| status.streams() && Status::settled(status));
    // It can sign with a key of its own, and answers at the address that is given as the issuer's.
    must(&reports, &["cert", "init"]);
    let roots = || std::fs::read_to_string(north.directory.join("tls/ca.crt")).unwrap();
    let (before, mine) = (roots(), fingerprint(&north));
    let renew = ["cert", "renew", "--from", &reports.address];
    refuses(&north, &renew, 3, &["that of `reports`, not of `south`"]);
    let renew = [&renew[..], &["--issuer", "reports"]].concat();
    refuses(&north, &renew, 3, &["is not trusted here", "cert join"]);
    assert!(roots() == before && fingerprint(&north) == mine, "nothing was taken from it");
    // A new authority of the issuer is trusted, because the previous one has signed it.
    must(&south, &["cert", "init"]);
    must(&north, &["cert", "renew"]);
    assert!(roots().contains(before.trim()) && roots() != before);
    assert_ne!(fingerprint(&north), mine);
}
