//! `standfast net` and `tcptest` as processes in case of errors: what is printed, written and returned.

#![allow(clippy::unwrap_used)]

mod common;

use common::{free_port, ignore, listening, scratch, standfast};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

/// Runs a server until it listens. Dropping the [`Killed`] kills it.
fn serve(command: &mut Command) -> Killed {
    let (child, out) = listening(command.stderr(Stdio::piped()));
    ignore(out);
    Killed(child)
}

struct Killed(Child);

impl Killed {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the row of an interval, which begins with the time of day, has a rate above 0 as its first number; on a busy
/// machine nothing may have arrived in the first rows.
fn shows_bytes(row: &str) -> bool {
    let mut numbers = row.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    row.starts_with('(') && numbers.next().is_some_and(|rate| rate > 0.0)
}

#[test]
fn killed_server_leaves_partial_results_and_exit_code_1() {
    let directory = scratch("killed");
    for options in
        ["--length 8k", "--mode async", "--length 8k --reverse", "--mode async --bidir", "--loaded"]
    {
        let port = free_port();
        let mut server = serve(
            standfast(&format!("net server --bind 127.0.0.1 --port {port}"))
                .arg(format!("--file={}", directory.join("file").display())),
        );
        let file = directory.join("result.json");
        let client = standfast(&format!("net client 127.0.0.1 --port {port} {options} --interval 50ms"))
            .arg(format!("--output={}", file.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut client = Killed(client);
        let mut lines = BufReader::new(client.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("server") && shows_bytes(&line)), "{options}");
        server.kill();
        let rest: Vec<String> = lines.collect();
        assert!(rest.iter().any(|line| line.starts_with("total ")), "{options}: {rest:?}");
        let mut complaint = String::new();
        client.0.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        assert!(complaint.contains("error: the connection was cut while"), "{options}: {complaint}");
        assert_eq!(client.0.wait().unwrap().code(), Some(1), "{options}");
        let result: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!((&result["status"], &result["error"]["code"]), (&"failed".into(), &"cut".into()));
        assert!(result["summary"]["bytes"].as_u64().unwrap() > 0 && result["intervals"].is_array());
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn classic_client_prints_its_summary_when_the_server_is_killed() {
    let directory = scratch("killed-classic");
    let port = free_port();
    let mut server = serve(
        standfast(&format!("tcptest -server 127.0.0.1 -port={port}"))
            .arg(format!("-file={}", directory.join("file").display())),
    );
    let stored = directory.join("statistics.csv");
    let mut client = Killed(
        standfast(&format!("tcptest 127.0.0.1 -port={port} -length=8k -write -interval=50ms"))
            .arg(format!("-output={}", stored.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(client.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("Mbytes/s") && shows_bytes(&line)));
    server.kill();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.ends_with("Test failed.")), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("Avg. latency")), "{rest:?}");
    assert_eq!(client.0.wait().unwrap().code(), Some(1));
    assert!(std::fs::read_to_string(&stored).unwrap().lines().count() > 1);
    // The killed server could not remove its file; the file is marked, so that the next server may take it.
    assert!(directory.join("file").exists());
    std::fs::remove_dir_all(directory).unwrap();
}

/// A short test with writes against a server with a file size limit.
fn with_write(port: u16) -> Output {
    standfast(&format!("net client 127.0.0.1 --port {port} --length 4k --write --duration 100ms --json"))
        .output()
        .unwrap()
}

#[test]
fn full_disk_refuses_only_write_tests_and_names_the_cause() {
    let directory = scratch("full");
    let port = free_port();
    // Stands for a full disk: no file may become longer than 8 MiB.
    let script = "trap '' XFSZ; ulimit -f 8192; exec \"$@\"";
    let mut shell = Command::new("bash");
    shell.args(["-c", script, "bash", env!("CARGO_BIN_EXE_standfast"), "net", "server"]);
    shell.args([format!("--bind=127.0.0.1:{port}"), format!("--file={}", directory.join("file").display())]);
    let server = serve(&mut shell);
    let output = with_write(port);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("cannot be made") && message.contains("64 MiB free"), "{message}");
    assert!(!directory.join("file").exists(), "nothing half made is left");
    let words = format!("net client 127.0.0.1 --port {port} --length 4k --duration 100ms");
    assert!(standfast(&words).output().unwrap().status.success());
    drop(server);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_server_of_an_older_release_is_refused_with_both_versions() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let old = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0; 10]).unwrap();
            // Magic, version 1, "the versions differ", no text.
            let mut answer = [0; 32];
            answer[..8].copy_from_slice(b"SFNETTST");
            (answer[8], answer[10]) = (1, 2);
            socket.write_all(&answer).unwrap();
            let _ = std::io::copy(&mut socket, &mut std::io::sink());
        }
    });
    for words in [
        format!("net client 127.0.0.1:{port} --duration 1s"),
        format!("tcptest 127.0.0.1 -port={port} -duration=1"),
    ] {
        let output = standfast(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{words}");
        let complaint = text(&output.stderr);
        assert!(complaint.contains("version 1") && complaint.contains("use one release"), "{complaint}");
    }
    old.join().unwrap();
}

#[test]
fn silent_link_ends_the_test_after_timeout_with_partial_results() {
    let directory = scratch("silent");
    let port = free_port();
    let server = serve(
        standfast(&format!("net server --bind 127.0.0.1 --port {port}"))
            .arg(format!("--file={}", directory.join("file").display())),
    );
    let words = format!(
        "net client 127.0.0.1 --port {port} --length 1k --interval 50ms --timeout 1s --format ndjson"
    );
    let mut client = Killed(standfast(&words).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(client.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("to_server"));
    // A stopped server answers nothing more, while its kernel keeps the connection.
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &server.0.id().to_string()]).status().unwrap();
        assert!(status.success());
    };
    signal("-STOP");
    let last = lines.last().unwrap();
    signal("-CONT");
    let result: Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&result["status"], &result["error"]["code"]), (&"failed".into(), &"timeout".into()));
    assert!(result["summary"]["messages"].as_u64().unwrap() > 0);
    assert_eq!(client.0.wait().unwrap().code(), Some(1));
    drop(server);
    std::fs::remove_dir_all(directory).unwrap();
}
