//! Snapshots, reports and diagnosis of an instance as a process, while it runs and when it is stopped.

#![allow(clippy::unwrap_used)]

mod common;

use common::{free_port, scratch, standfast};
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

/// A running instance; dropping it removes it and its directory.
struct Instance {
    directory: PathBuf,
    process: Child,
}

impl Instance {
    fn start(name: &str) -> Instance {
        let scratch = scratch(name);
        let directory = scratch.join("sf");
        let listen = format!("127.0.0.1:{}", free_port());
        let init =
            standfast("init --name paris --listen").arg(listen).arg("-D").arg(&directory).output().unwrap();
        assert!(init.status.success(), "{init:?}");
        let mut start = standfast("start");
        let manager = UnixDatagram::bind(scratch.join("notify")).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        start.arg("-D").arg(&directory).env("NOTIFY_SOCKET", scratch.join("notify"));
        let instance = Instance {
            process: start.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
            directory,
        };
        let mut stated = [0; 32];
        let length = manager.recv(&mut stated).expect("it does not start");
        assert_eq!(&stated[..length], b"READY=1");
        instance
    }

    fn run(&self, words: &str) -> Output {
        standfast(words).arg("-D").arg(&self.directory).output().unwrap()
    }

    /// Its output; asserts the exit code.
    fn says(&self, code: i32, words: &str) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(code), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.says(0, words)).unwrap()
    }

    fn stop(&mut self) {
        self.says(0, "stop");
        self.process.wait().unwrap();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(self.directory.parent().unwrap());
    }
}

#[test]
fn report_covers_a_running_and_a_stopped_instance() {
    let mut instance = Instance::start("reports");
    instance.says(1, "snapshot list");
    assert_eq!(instance.says(0, "snapshot"), "1\n");
    instance.says(1, "report");
    assert_eq!(instance.says(0, "snapshot"), "2\n");
    assert_eq!(instance.says(0, "diagnose --seconds 1").lines().last(), Some("nothing found"));
    instance.stop();
    instance.says(4, "snapshot");
    assert_eq!(instance.json("snapshot list --json").as_array().unwrap().len(), 2);
    let report = instance.json("report --format json");
    assert_eq!((&report["name"], &report["flags"]), (&"paris".into(), &Value::Array(Vec::new())));
    assert_eq!(report["parameters"]["snapshot"]["interval_s"], 600);
    assert!(report["counters"]["statistics"].as_array().is_some_and(|all| !all.is_empty()));
    let text = instance.says(0, "report 1 2");
    assert!(text.contains("Load profile") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let file = instance.directory.join("report.html");
    instance.says(0, &format!("report --format html --output {}", file.display()));
    assert!(std::fs::read_to_string(file).unwrap().starts_with("<!DOCTYPE html>"));
    assert!(instance.says(0, "report --compare 1 2 1 2").contains("Key figures"));
    instance.says(0, "report --ash");
    assert_eq!(instance.says(0, "diagnose").lines().last(), Some("nothing found"));
    for wrong in
        ["report 1", "report 2 1", "report 1 99", "diagnose 1", "report --compare 1 2", "report --minutes 5"]
    {
        instance.says(2, wrong);
    }
}

#[test]
fn unwritable_repository_does_not_affect_the_instance() {
    let mut instance = Instance::start("no-repository");
    let repository = instance.directory.join("repository.db");
    std::fs::create_dir(&repository).unwrap();
    let refused = instance.run("snapshot");
    assert_eq!(refused.status.code(), Some(1));
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert!(printed.contains("repository.db") && printed.contains("hint:"), "{printed}");
    instance.says(0, "status");
    std::fs::remove_dir(&repository).unwrap();
    assert_eq!(instance.says(0, "snapshot"), "1\n", "it is tried again");
    instance.stop();
    instance.says(4, "diagnose");
}
