//! The requests of the control socket.

use super::{ACTORS, Host, Table, Tried};
use crate::local_users::{administering, as_user, ask, is_root, looking};
use serde_json::{Value, json};
use standfast_instance::server::request::Request;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

/// Returns the names of all requests that the instance knows.
fn known() -> Vec<String> {
    let error = serde_json::from_value::<Request>(json!({ "op": "?" })).unwrap_err().to_string();
    let (_, names) = error.split_once("expected one of").unwrap();
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the row of a request. One request has two rows, because its right depends on its content.
fn row_of(request: &Value) -> String {
    let op = request["op"].as_str().unwrap();
    if op == "protection-mode" && !request["mode"].is_null() { format!("{op} MODE") } else { op.to_owned() }
}

#[test]
fn every_request_is_answered_as_the_matrix_says() {
    if !is_root() {
        return;
    }
    let host = Host::new("matrix-requests");
    let samples = [looking(), administering()].concat();
    let mut sampled: Vec<String> =
        samples.iter().map(|request| request["op"].as_str().unwrap().to_owned()).collect();
    let mut known = known();
    for list in [&mut sampled, &mut known] {
        list.sort();
        list.dedup();
    }
    assert_eq!(sampled, known, "there is no sample of every request");
    let pid = host.south.process().unwrap().pid();
    let mut tried = Tried::default();
    for actor in ACTORS {
        let socket = host.directory(actor).join("control.sock");
        for request in &samples {
            let found = as_user(actor.uid, actor.gid, || match UnixStream::connect(&socket) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => "no connection",
                Err(_) => "nothing there",
                Ok(_) => {
                    let answer = ask(&socket, request);
                    let printed = answer["error"].as_str().unwrap_or_default();
                    let refusal =
                        format!("uid {} may look at this instance and may not administer it", actor.uid);
                    assert!(!printed.starts_with("malformed"), "{request}: {printed}");
                    if printed.starts_with(&refusal) { "refused" } else { "answered" }
                }
            });
            tried.note(&row_of(request), actor, found);
        }
    }
    Table::read("requests").compare(&tried);
    let status = host.south.status().unwrap();
    assert!(status.text("/state") == "open" && status.database_state("app.db") == "open");
    assert_eq!(host.south.process().unwrap().pid(), pid);
}
