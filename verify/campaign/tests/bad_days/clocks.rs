//! Certificates valid for an hour, with clocks that are set: renewal while redo streams, expiry, and a clock that is
//! off by a day.

use crate::renewal::short_lived;
use crate::security::{fingerprint, joined, primary};
use crate::support::{
    Place, TIMEOUT, add_destination, assert_same, await_alert, await_status, must, refuses, start,
};
use crate::writers::Writers;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOUR: u64 = 3600;
/// Seconds; a little more than two thirds of an hour, after which a certificate is due for renewal.
const DUE: i64 = 2500;
/// Seconds, beyond a day: certificates are valid from a day before they were issued.
const DAY: i64 = 86_400 + 120;

/// The wall clock of one host, set through a preloaded library.
struct Clock {
    file: File,
    path: PathBuf,
}

impl Clock {
    fn of(place: &Place, instance: &mut Instance) -> Clock {
        let library = place.path("set_clock.so");
        if !library.exists() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_days/set_clock.c");
            let made = Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-o"])
                .arg(&library)
                .arg(source)
                .status()
                .unwrap();
            assert!(made.success());
        }
        let name = instance.directory.file_name().unwrap().to_string_lossy().into_owned();
        let path = place.path(&format!("{name}.clock"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).unwrap();
        let clock = Clock { file, path };
        clock.set(0);
        instance.environment.push(("LD_PRELOAD", library.to_string_lossy().into_owned()));
        instance.environment.push(("STANDFAST_TEST_CLOCK", clock.path.to_string_lossy().into_owned()));
        clock
    }

    /// Sets the clock this many seconds ahead of the right time.
    fn set(&self, seconds: i64) {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }
}

/// A primary that issues certificates valid for an hour, and its standby.
struct Hosts {
    south: Instance,
    north: Instance,
    /// The clocks of south and north.
    clocks: [Clock; 2],
    writers: Option<Writers>,
    database: PathBuf,
}

impl Hosts {
    fn new(place: &Place) -> Hosts {
        let (mut south, database) = primary(place);
        let of_south = Clock::of(place, &mut south);
        short_lived(&mut south, HOUR);
        let mut north = joined(place, &south, "north", &[], &[]);
        let of_north = Clock::of(place, &mut north);
        start(&mut north);
        add_destination(&south, &north, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
        await_status(&south, "the standby follows", |status| status.streams() && status.settled());
        let writers = Some(Writers::start(place, &database, 2));
        Hosts { south, north, clocks: [of_south, of_north], writers, database }
    }

    fn both(&self) -> [&Instance; 2] {
        [&self.south, &self.north]
    }

    fn set_both(&self, seconds: i64) {
        self.clocks.iter().for_each(|clock| clock.set(seconds));
    }

    /// Asserts that commits continue, over the first stream.
    #[track_caller]
    fn stream_was_not_interrupted(&self) {
        self.writers.as_ref().unwrap().await_progress();
        let alerts = self.south.alerts();
        assert_eq!(alerts.matches("connected: sending").count(), 1, "{alerts}");
        for word in ["disconnected", "DEGRADED", "STALLED"] {
            assert!(!alerts.contains(word), "`{word}` in {alerts}");
        }
    }

    #[track_caller]
    fn await_certificates(&self, state: &str) {
        for instance in self.both() {
            await_status(instance, &format!("its certificate is {state}"), |status| {
                status.json()["security"]["certificate"]["state"] == state
            });
        }
    }

    /// Restarts the standby, so that a new connection uses the present certificates.
    #[track_caller]
    fn reconnects(&mut self) {
        self.north.stop().unwrap();
        start(&mut self.north);
        await_status(&self.south, "the standby follows again", Status::streams);
    }

    #[track_caller]
    fn finish(mut self) {
        self.writers.take().unwrap().finish();
        assert_same(&self.south, &self.north, &self.database);
    }
}

#[track_caller]
fn await_renewals(instance: &Instance, count: usize) {
    await_condition(&format!("{count} renewals"), TIMEOUT, || {
        let renewals = instance.alerts().matches("was renewed automatically").count();
        Ok(if renewals >= count { Ok(()) } else { Err(renewals.to_string()) })
    })
    .unwrap_or_else(|error| panic!("{error}\n{}", instance.alerts()));
}

/// Runs `standfast status --check`; returns its exit code and output.
fn check(instance: &Instance) -> (i32, String) {
    let finished = instance.run(&["status", "--check"]).unwrap();
    (finished.code, finished.stdout)
}

/// Waits until the check ends with `code` and prints `words`. Lags are measured with wall clocks, so they are wrong
/// right after those were set.
#[track_caller]
fn await_check(instance: &Instance, code: i32, words: &str) {
    await_condition(&format!("the check is {code}: {words}"), TIMEOUT, || {
        let found = check(instance);
        Ok(if found.0 == code && found.1.contains(words) { Ok(()) } else { Err(found.1) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn one_hour_certificates_are_renewed_twice_while_redo_streams() {
    let place = Place::new("clock-hour");
    let mut hosts = Hosts::new(&place);
    let first = hosts.both().map(fingerprint);
    for renewals in 1..=2 {
        hosts.set_both(DUE * renewals);
        hosts.both().into_iter().for_each(|instance| await_renewals(instance, renewals as usize));
        hosts.stream_was_not_interrupted();
    }
    assert!(hosts.both().map(fingerprint).iter().zip(&first).all(|(now, then)| now != then));
    for instance in hosts.both() {
        await_check(instance, 0, "OK");
    }
    // The first certificates have expired by now, so only the new ones can open a connection.
    hosts.reconnects();
    hosts.finish();
}

#[test]
fn standby_that_cannot_dial_its_issuer_renews_over_the_stream() {
    let place = Place::new("clock-nat");
    let hosts = Hosts::new(&place);
    let members = hosts.north.directory.join("tls/members.json");
    let text = std::fs::read_to_string(&members).unwrap();
    assert!(text.contains(&hosts.south.address), "{text}");
    std::fs::write(&members, text.replace(&hosts.south.address, "127.0.0.1:1")).unwrap();
    refuses(
        &hosts.north,
        &["cert", "renew", "--from", "127.0.0.1:1", "--issuer", "south"],
        3,
        &["127.0.0.1:1"],
    );
    let before = fingerprint(&hosts.north);
    must(&hosts.north, &["cert", "renew"]);
    assert_ne!(fingerprint(&hosts.north), before, "by hand");
    hosts.clocks[1].set(DUE);
    await_renewals(&hosts.north, 1);
    await_alert(
        &hosts.south,
        "`north` has got a certificate in the place of the one it has; the clock of this host is 42 min behind",
    );
    hosts.stream_was_not_interrupted();
    hosts.finish();
}

#[test]
fn certificate_expiry_is_reported_and_the_stream_continues() {
    let place = Place::new("clock-end");
    let mut hosts = Hosts::new(&place);
    let key = hosts.south.directory.join("tls/ca.key");
    let away = key.with_extension("away");
    std::fs::rename(&key, &away).unwrap();
    hosts.set_both(DUE);
    for instance in hosts.both() {
        await_alert(instance, "THE CERTIFICATE IS NOT RENEWED and ends");
        await_check(instance, 1, "the certificate cannot be renewed, 1");
    }
    await_alert(&hosts.north, "over the stream of redo");
    hosts.set_both(HOUR as i64 + 100);
    for instance in hosts.both() {
        await_alert(instance, "THE CERTIFICATE HAS EXPIRED by the clock of this host");
        let (code, line) = check(instance);
        assert!(code == 2 && line.contains("CRITICAL") && line.contains("has expired"), "{line}");
        let status = must(instance, &["status"]);
        assert!(status.contains("CERTIFICATE EXPIRED: ") && status.contains("put its ca.key"), "{status}");
    }
    hosts.stream_was_not_interrupted();
    // While the stream lasts, an expired certificate is renewed over it without a token.
    std::fs::rename(&away, &key).unwrap();
    hosts.set_both(HOUR as i64 + 500);
    hosts.await_certificates("valid");
    hosts.stream_was_not_interrupted();
    hosts.reconnects();
    hosts.finish();
}

#[test]
fn clock_off_by_a_day_is_reported_and_the_stream_continues() {
    // Which host, by how much, the alert, and what its alerts say about its certificate.
    let cases = [
        (0, DAY, "SET AHEAD by 24.0 h", None),
        (0, -DAY, "SET BACK by 24.0 h", None),
        (1, DAY, "SET AHEAD by 24.0 h", Some(("HAS EXPIRED by the clock", "ahead of"))),
        (1, -DAY, "SET BACK by 24.0 h", Some(("NOT VALID YET by the clock", "behind"))),
    ];
    for (who, by, set, certificate) in cases {
        let place = Place::new("clock-day");
        let mut hosts = Hosts::new(&place);
        hosts.clocks[who].set(by);
        await_alert(hosts.both()[who], set);
        if let Some((state, direction)) = certificate {
            let north = &hosts.north;
            await_alert(north, state);
            let named = format!("the clock of this host is 24.0 h {direction} that of `south`");
            await_alert(north, &named);
            let (code, line) = check(north);
            assert!(code == 2 && line.contains(&named), "{line}");
            await_alert(&hosts.south, "that of `north`: set the one that is wrong");
        }
        hosts.stream_was_not_interrupted();
        hosts.clocks[who].set(0);
        hosts.await_certificates("valid");
        hosts.stream_was_not_interrupted();
        hosts.reconnects();
        hosts.finish();
    }
}

#[test]
fn valid_certificate_is_not_replaced_by_an_invalid_one() {
    let place = Place::new("clock-kept");
    let hosts = Hosts::new(&place);
    let before = fingerprint(&hosts.north);
    // Certificates that it issues now become valid tomorrow.
    hosts.clocks[0].set(2 * DAY);
    await_alert(&hosts.south, "SET AHEAD by 2.0 days");
    let words = ["behind that of `south`", "by the one here not"];
    refuses(&hosts.north, &["cert", "renew"], 3, &words);
    assert_eq!(fingerprint(&hosts.north), before);
    hosts.clocks[0].set(0);
    hosts.await_certificates("valid");
    must(&hosts.north, &["cert", "renew"]);
    assert_ne!(fingerprint(&hosts.north), before);
    hosts.finish();
}

#[test]
fn connection_refused_for_wrong_clock_is_explained_at_both_ends() {
    let place = Place::new("clock-refused");
    let mut hosts = Hosts::new(&place);
    hosts.clocks[1].set(DAY);
    hosts.north.stop().unwrap();
    start(&mut hosts.north);
    await_alert(&hosts.north, "the certificate of the other end has expired");
    await_alert(&hosts.south, "compare the clocks of both hosts");
    hosts.clocks[1].set(0);
    await_status(&hosts.south, "the standby follows again", Status::streams);
    hosts.finish();
}
