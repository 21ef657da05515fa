//! What load balancers are told about an instance, through role changes.

use crate::support::{Place, TIMEOUT, add_destination, await_status, must, start};
use standfast_campaign::instance::{Instance, free_address};
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Makes an instance, which does not run, serve probes; returns the address.
fn serve_probes(instance: &Instance) -> String {
    let address = free_address().unwrap();
    instance.configure("http", "listen", address.as_str()).unwrap();
    instance.configure("http", "open_probes", true).unwrap();
    address
}

/// Returns the status code and the body.
fn probe(address: &str, path: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(address) else { return (0, String::new()) };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: lb\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0), body.trim().to_owned())
}

#[track_caller]
fn await_role(address: &str, role: &str) {
    let other = if role == "primary" { "/standby" } else { "/primary" };
    await_condition(&format!("{address} says {role}"), TIMEOUT, || {
        let found = [&format!("/{role}"), other, "/readyz", "/livez"].map(|path| probe(address, path));
        let codes = found.each_ref().map(|(code, _)| *code);
        Ok(if codes == [200, 503, 200, 200] && found[0].1 == role {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn probes_follow_the_role_through_switchover_and_failover() {
    let place = Place::new("probes");
    let (mut south, database) = (place.instance("south"), place.database("app.db"));
    let alpha = serve_probes(&south);
    start(&mut south);
    must(&south, &["protect", &database.to_string_lossy()]);
    let mut north = Instance::standby_of(&south, &place.path("north"), "north").unwrap();
    let beta = serve_probes(&north);
    start(&mut north);
    add_destination(&south, &north, &["--mode", "sync-affirm"]);
    await_status(&south, "it follows", |status| status.streams() && status.settled());
    await_role(&alpha, "primary");
    await_role(&beta, "standby");
    // A command that looks at the role at the same time is no change of it.
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| (0..300).for_each(|_| _ = south.status().unwrap()));
        while !looks.is_finished() {
            assert_eq!(probe(&alpha, "/primary"), (200, "primary".into()));
        }
    });
    must(&south, &["switchover", "north"]);
    await_role(&alpha, "standby");
    await_role(&beta, "primary");
    await_status(&north, "it follows", |status: &Status| status.streams() && status.settled());
    // A failover while the primary lives: it is fenced once the two meet, and serves nothing.
    must(&south, &["failover", "--force"]);
    await_role(&alpha, "primary");
    await_status(&north, "it is fenced", |status| status.text("/state") == "fenced");
    assert_eq!(probe(&beta, "/primary"), (503, "fenced: another instance is the primary".into()));
    assert_eq!([probe(&beta, "/readyz").0, probe(&beta, "/livez").0], [503, 200]);
    south.kill();
    assert_eq!(probe(&alpha, "/livez").0, 0);
}
