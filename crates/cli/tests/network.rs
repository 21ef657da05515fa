//! `standfast tcptest` and `standfast net` as processes: screens, exit codes, Ctrl-C.

#![allow(clippy::unwrap_used)]

mod common;

use common::{free_port, listening, scratch, standfast};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

fn done(words: &str) -> Output {
    standfast(words).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn complained(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// A server in a directory of its own.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    port: u16,
    directory: PathBuf,
}

impl Server {
    fn start(name: &str) -> Server {
        Server::start_with(name, &[])
    }

    fn start_with(name: &str, options: &[String]) -> Server {
        let (directory, port) = (scratch(name), free_port());
        let (child, out) = listening(
            standfast(&format!("tcptest -server 127.0.0.1 -port={port}"))
                .arg(format!("-file={}", directory.join("file").display()))
                .args(options),
        );
        Server { child, out, port, directory }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        interrupt(&self.child);
        let code = self.child.wait().unwrap().code();
        let left = self.directory.join("file").exists();
        let _ = std::fs::remove_dir_all(&self.directory);
        if !std::thread::panicking() {
            assert_eq!((code, left), (Some(0), false));
        }
    }
}

#[test]
fn classic_client_prints_its_screen_and_stores_its_statistics() {
    let mut server = Server::start("classic");
    let port = server.port;
    let stored = server.directory.join("statistics.json");
    let words = format!("tcptest 127.0.0.1 -port={port} -length=8k -write -duration=300ms -interval=100ms");
    let output = standfast(&words).arg(format!("-output={}", stored.display())).output().unwrap();
    let screen = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{screen}");
    for part in
        ["[Requesting a test]", "The server is ready.", "Test finished.", "(including disk-write at server)"]
    {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let stored: Value = serde_json::from_str(&std::fs::read_to_string(stored).unwrap()).unwrap();
    assert_eq!(stored["status"], "ok");
    let line = server.out.by_ref().lines().map(Result::unwrap).find(|line| line.contains("SYNC test"));
    assert!(line.is_some_and(|line| line.contains("disk write")));
}

#[test]
fn ctrl_c_prints_the_summary() {
    let server = Server::start("interrupt");
    for (duration, code) in [("", 0), (" -duration=1h", 130)] {
        let words = format!("tcptest 127.0.0.1 -port={} -mode=async -interval=50ms{duration}", server.port);
        let mut client = standfast(&words).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("Mbytes/s")));
        interrupt(&client);
        assert!(lines.any(|line| line.contains("Test interrupted.")));
        assert!(lines.any(|line| line.contains("Avg. throughput")));
        assert_eq!(client.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn json_results_are_written_for_good_and_failed_tests() {
    let server = Server::start("machines");
    let words = format!("net client 127.0.0.1 --port {} --length 0 --duration 200ms --json", server.port);
    let output = done(&words);
    assert_eq!(output.status.code(), Some(0), "{}", complained(&output));
    let result: Value = serde_json::from_str(&printed(&output)).unwrap();
    assert!(result["summary"]["latency"]["p99"].as_f64().unwrap() > 0.0);
    drop(server);
    let output = done(&words);
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_str(&printed(&output)).unwrap();
    assert_eq!((&result["status"], &result["error"]["code"]), (&"failed".into(), &"connect".into()));
}

#[test]
fn every_row_of_a_bidirectional_test_names_its_direction() {
    let server = Server::start("both");
    let words =
        format!("net client 127.0.0.1 --port {} --mode async --duration 300ms --interval 100ms", server.port);
    let screen = printed(&done(&format!("{words} --bidir")));
    for way in ["total      to server", "total      from server", ") to server", ") from server"] {
        assert!(screen.contains(way), "{way}: {screen}");
    }
    let screen = printed(&done(&format!("{words} --reverse")));
    assert!(screen.contains("total      from server") && !screen.contains("to server"), "{screen}");
    let table = printed(&done(&format!("{words} --bidir --format csv")));
    assert!(table.contains("0,to_server,") && table.contains("0,from_server,"), "{table}");
    // The message names the direction that meets a criterion.
    let output = done(&format!("{words} --bidir --fail-if throughput<1000gb"));
    assert_eq!(output.status.code(), Some(3));
    assert!(complained(&output).contains("criterion met from server"), "{}", complained(&output));
}

#[test]
fn server_with_a_key_refuses_clients_without_it_and_hides_it() {
    let directory = std::env::temp_dir().join(format!("standfast-cli-psk-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (right, wrong) = (directory.join("right"), directory.join("wrong"));
    std::fs::write(&right, "correct horse battery staple\n").unwrap();
    std::fs::write(&wrong, "incorrect horse battery staple\n").unwrap();
    let option = |file: &PathBuf| format!("-psk_file={}", file.display());
    let mut server = Server::start_with("psk", &[option(&right)]);
    let classic = format!("tcptest 127.0.0.1 -port={} -length=1k -duration=100ms", server.port);
    let modern = format!("net client 127.0.0.1 --port {} --length 1k --duration 100ms", server.port);
    let mut heard = String::new();
    for (words, code) in [
        (classic.clone(), 4),
        (format!("{classic} {}", option(&wrong)), 4),
        (format!("{classic} {}", option(&right)), 0),
        (modern.clone(), 4),
        (format!("{modern} --psk-file {}", wrong.display()), 4),
        (format!("{modern} --psk-file {}", right.display()), 0),
    ] {
        let output = done(&words);
        assert_eq!(output.status.code(), Some(code), "{words}: {}", complained(&output));
        assert_eq!(code == 4, complained(&output).contains("not authorised"), "{}", complained(&output));
        heard += &(printed(&output) + &complained(&output));
    }
    interrupt(&server.child);
    server.out.read_to_string(&mut heard).unwrap();
    assert!(heard.contains("another key than this server's"), "{heard}");
    assert!(!heard.contains("horse"), "{heard}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn latency_under_load_is_printed_and_in_the_document() {
    let server = Server::start("loaded");
    let words = format!("net client 127.0.0.1 --port {} --loaded --duration 300ms", server.port);
    let output = done(&words);
    let screen = printed(&output);
    assert!(
        screen.contains("  idle ") && screen.contains("  loaded ") && screen.contains("  growth "),
        "{screen}"
    );
    let path = server.directory.join("loaded.html");
    let output = done(&format!("{words} --bidir --json --html {}", path.display()));
    let result: Value = serde_json::from_str(&printed(&output)).unwrap();
    assert_eq!(result["test"]["mode"], "async");
    let loaded = result["round_trips"]["loaded"]["p99"].as_f64().unwrap();
    assert!(loaded > 0.0, "{result}");
    let page = std::fs::read_to_string(path).unwrap();
    for words in [
        "<h2>Result, to server</h2>",
        "<h2>Result, from server</h2>",
        "<h2>Round trips beside the test</h2>",
        &format!("<td class=\"n\">{:.3}</td>", loaded * 1e3),
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn sweep_and_advice_in_both_directions_name_the_direction() {
    let server = Server::start("sweep-both");
    let path = server.directory.join("both.html");
    let page = || std::fs::read_to_string(&path).unwrap();
    let html = path.display();
    let target = format!("127.0.0.1 --port {} --duration 100ms --both --json --html {html}", server.port);
    let output = done(&format!("net sweep {target} --max-window 64k --max-streams 2"));
    let result: Value = serde_json::from_str(&printed(&output)).unwrap();
    for direction in ["to_server", "from_server"] {
        let best = result[direction]["best"]["bytes_per_second"].as_f64().unwrap();
        assert!(best > 0.0 && page().contains(&format!("{:.3} MiB/s", best / 1_048_576.0)), "{result}");
    }
    let file = server.directory.join("near");
    let output = standfast(&format!("net advise {target} --peak-redo 1mb --max-traffic 20mb"))
        .arg(format!("--file={}", file.display()))
        .output()
        .unwrap();
    let result: Value = serde_json::from_str(&printed(&output)).unwrap();
    for direction in ["to_server", "from_server"] {
        assert!(result[direction]["affirm"]["disk"]["mean"].as_f64().unwrap() > 0.0, "{result}");
        assert_eq!(result[direction]["advice"]["verdicts"].as_array().unwrap().len(), 3);
    }
    for head in ["Verdict, to server", "Verdict, from server", "Measurements, from server"] {
        assert!(page().contains(&format!("<h2>{head}</h2>")), "{head}");
    }
    assert!(!file.exists());
}

#[test]
fn html_page_covers_every_outcome_and_replaces_no_other_file() {
    let server = Server::start("pages");
    let (port, path) = (server.port, server.directory.join("report.html"));
    let html = format!("--html {}", path.display());
    let page = || std::fs::read_to_string(&path).unwrap();
    let client = format!("net client 127.0.0.1 --port {port} --length 1k {html}");
    let output = done(&format!("{client} --duration 200ms --fail-if p50>1h --json"));
    assert_eq!(output.status.code(), Some(0), "{}", complained(&output));
    let result: Value = serde_json::from_str(&printed(&output)).unwrap();
    let mean = result["summary"]["latency"]["mean"].as_f64().unwrap();
    assert!(page().contains(&format!("<td class=\"n\">{:.3}</td>", mean * 1e3)), "{mean} {}", page());
    assert!(page().contains("p50&gt;1h, to server: not met"));

    let mut child = standfast(&client).stdout(Stdio::piped()).spawn().unwrap();
    let mut rows = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(rows.by_ref().map(Result::unwrap).any(|line| line.starts_with('(')));
    assert!(page().contains("NO RESULT"), "what a killed command leaves");
    interrupt(&child);
    assert!(child.wait().unwrap().success());
    assert!(page().contains("INTERRUPTED") && page().contains("</svg>"));

    let output =
        done(&format!("net sweep 127.0.0.1 --port {port} --duration 100ms --max-streams 2 {html} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", complained(&output));
    let result: Value = serde_json::from_str(&printed(&output)).unwrap();
    let best = result["to_server"]["best"]["bytes_per_second"].as_f64().unwrap();
    assert!(page().contains(&format!("{:.3} MiB/s", best / 1_048_576.0)));

    let output = done(&format!(
        "net advise 127.0.0.1 --port {port} --peak-redo 1m --duration 100ms --max-traffic 1m {html}"
    ));
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{}", complained(&output));
    assert!(page().contains("<strong>SYNC AFFIRM</strong>"));

    let output = done(&format!("{client} --output {}", path.display()));
    assert_eq!(output.status.code(), Some(2), "one file for two");
    let foreign = server.directory.join("foreign.html");
    std::fs::write(&foreign, "<!DOCTYPE html>").unwrap();
    for words in ["client", "sweep", "advise --peak-redo 1m"] {
        let output = done(&format!("net {words} 127.0.0.1 --port {port} --html {}", foreign.display()));
        assert_eq!(output.status.code(), Some(4), "{}", complained(&output));
        assert!(complained(&output).contains("foreign.html"));
    }
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "<!DOCTYPE html>");
    for words in ["client", "sweep", "advise --peak-redo 1m"] {
        std::fs::remove_file(&path).unwrap();
        // No process listens at port 1.
        assert_eq!(done(&format!("net {words} 127.0.0.1:1 {html}")).status.code(), Some(1));
        assert!(page().contains("FAILED") && page().contains("cannot connect"), "{words}");
    }
}

#[test]
fn failed_criterion_or_regression_exits_with_3() {
    let server = Server::start("criteria");
    let client = format!("net client 127.0.0.1 --port {} --length 1k --duration 200ms", server.port);
    assert_eq!(done(&format!("{client} --fail-if max>1h")).status.code(), Some(0));
    assert_eq!(done(&format!("{client} --fail-if p50>0.000001ms")).status.code(), Some(3));
    let (good, bad) = (server.directory.join("good.json"), server.directory.join("bad.json"));
    assert_eq!(done(&format!("{client} --output {}", good.display())).status.code(), Some(0));
    let mut result: Value = serde_json::from_str(&std::fs::read_to_string(&good).unwrap()).unwrap();
    let half = result["summary"]["bytes_per_second"].as_f64().unwrap() / 2.0;
    result["summary"]["bytes_per_second"] = half.into();
    std::fs::write(&bad, result.to_string()).unwrap();
    let diff = |before: &PathBuf, after: &PathBuf| {
        done(&format!("net diff {} {}", before.display(), after.display())).status.code()
    };
    assert_eq!((diff(&good, &bad), diff(&good, &good)), (Some(3), Some(0)));
    std::fs::write(&bad, "no JSON").unwrap();
    assert_eq!(diff(&good, &bad), Some(2));
}

#[test]
fn bad_input_and_foreign_files_have_their_exit_codes() {
    for (words, code, part) in [
        ("tcptest host -port=1 -length=8kk", 2, "\"8kk\""),
        ("tcptest host", 2, "-port is missing"),
        ("tcptest -server -port=7469 -file=/no/such/directory/file", 4, "/no/such/directory/file"),
        ("tcptest -server -port=7469 -file=/dev/null", 4, "not a regular file"),
        ("tcptest -server 203.0.113.1 -port=7469", 1, "cannot listen"),
        ("net client host --length 8kk", 2, "8kk"),
        ("net client host --fail-if p42>1", 2, "p99>5ms"),
        ("net client host --mode async --length 0", 2, "sends nothing"),
        ("net client host --psk-file /dev/null", 2, "this one has 0"),
        ("net client host --psk-file /no/such/file", 2, "--psk-file"),
        ("tcptest host -port=1 -psk_file=/dev/null", 2, "-psk_file"),
        ("net server --allow 10.0.0.1/8", 2, "10.0.0.0/8"),
        ("net server --allow beta", 2, "fd00:1::/64"),
        ("net client host --loaded --mode sync", 2, "fills the link"),
        ("net client host --reverse --bidir", 2, "cannot be used with"),
        ("net client host --reverse --payload /etc/passwd", 2, "random or zero"),
        ("net client host --reverse --congestion cubic", 2, "the server sends"),
        ("net client host --rate 0.0000000000000000001", 2, "message an hour"),
        ("net disk --dir /no/such/directory", 4, "directory"),
    ] {
        let output = done(words);
        assert_eq!(output.status.code(), Some(code), "{words}: {}", complained(&output));
        assert!(complained(&output).contains(part), "{words}: {}", complained(&output));
    }
    let help = done("tcptest -help");
    assert!(help.status.success() && printed(&help).contains("-num_conn=N"));
}
