//! Runs the harness as a user does, on the smallest workloads that give results.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_standfast-bench");

/// A directory for one test, removed at its end. It is on disk: the harness refuses to measure in memory.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the target directory is writable");
        Directory(path)
    }

    fn entries(&self) -> usize {
        std::fs::read_dir(&self.0).expect("the directory is there").count()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn harness(arguments: &[&str], directory: &Directory) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--dir").arg(&directory.0);
    // Exclude the systems that other programs provide.
    for name in ["STANDFAST_BIN", "STANDFAST_EXTENSION", "STANDFAST_CAMPAIGN", "LITESTREAM", "PG_BINDIR"] {
        command.env(name, "/nonexistent");
    }
    command
}

fn write_script(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the directory is writable");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("the script is ours");
}

#[test]
fn stock_sqlite_runs_in_own_processes_and_leaves_nothing_behind() {
    let directory = Directory::new("stock");
    let words =
        ["commit", "--systems", "stock-normal", "--clients", "5", "--layouts", "one,each", "--rounds", "2"];
    let mut command = harness(&words, &directory);
    let output = command.args(["--seconds", "0.3", "--warmup", "0.1", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let series = document["results"].as_array().unwrap();
    assert_eq!(series.len(), 2);
    for one in series {
        let runs = one["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        for run in runs {
            assert!(run["commits"].as_u64().unwrap() > 10, "{run}");
            assert!(
                run["commits_in_all"].as_u64() > run["commits"].as_u64(),
                "the warm-up is not measured: {run}"
            );
            assert!(run["latency"]["max_us"].as_f64() >= run["latency"]["p50_us"].as_f64(), "{run}");
            assert_eq!(run["errors"], 0);
            assert_eq!(run["usage"][0]["name"], "application");
            assert!(run["usage"][0]["cpu_us_per_commit"].as_f64().unwrap() > 1.0, "{run}");
        }
    }
    assert!(document["conditions"]["cores"].as_u64().unwrap() > 0);
    assert_eq!(directory.entries(), 0);
}

#[test]
fn instances_leave_no_shared_memory_behind() {
    let directory = Directory::new("memory");
    let beside = || Path::new(PROGRAM).parent().unwrap().to_owned();
    let built = std::env::var_os("STANDFAST_BIN").map_or_else(beside, PathBuf::from);
    let standfast = built.join("standfast");
    assert!(standfast.exists(), "build it first: cargo build --workspace");
    // A wrapper that records the status of the instances.
    let noting = directory.0.join("standfast");
    let printed = directory.0.join("printed");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = status ]; then '{0}' \"$@\" | tee -a '{1}'; else exec '{0}' \"$@\"; fi\n",
        standfast.display(),
        printed.display()
    );
    write_script(&noting, &script);
    let words = ["commit", "--systems", "sync-affirm", "--clients", "2", "--layouts", "one", "--rounds", "1"];
    let mut command = harness(&words, &directory);
    command.env("STANDFAST_BIN", &noting).env("STANDFAST_EXTENSION", built.join("libstandfast.so"));
    let output = command.args(["--seconds", "0.2", "--warmup", "0.1", "--json"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["results"][0]["runs"][0]["commits_in_all"].as_u64() > Some(0), "{document}\n{errors}");
    let printed = std::fs::read_to_string(printed).unwrap();
    let identities: BTreeSet<String> = serde_json::Deserializer::from_str(&printed)
        .into_iter::<serde_json::Value>()
        .map(|status| status.unwrap()["instance"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(identities.len(), 2, "{identities:?}");
    for identity in identities {
        for memory in ["", ".published"].map(|end| format!("/dev/shm/standfast-{identity}{end}")) {
            assert!(!Path::new(&memory).exists(), "{memory} is left behind");
        }
    }
}

#[test]
fn systems_that_are_not_installed_are_skipped_with_the_remedy() {
    let directory = Directory::new("absent");
    let words = ["commit", "--systems", "local,litestream,postgres", "--clients", "1", "--layouts", "one"];
    let output = harness(&words, &directory).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for remedy in ["cargo build --release", "bench/rivals.sh", "apt-get install postgresql-15"] {
        assert!(text.contains(remedy), "{remedy} is not in:\n{text}");
    }
}

#[test]
fn figures_that_cannot_be_measured_are_skipped_and_written_down() {
    let directory = Directory::new("figures");
    let out = directory.0.join("results/figures.json");
    let mut command = harness(&["figures", "--group", "kill,idle"], &directory);
    let output = command.arg("--out").arg(&out).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "a skip is no miss:\n{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        !lines.is_empty()
            && lines.iter().all(|line| line.starts_with("SKIP kill.") || line.starts_with("SKIP idle."))
    );
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(document["figures"].as_array().unwrap().len(), lines.len());
    assert!(document["conditions"]["kernel"].is_string());
}

#[test]
fn campaign_that_lost_a_commit_is_a_miss_with_exit_code_1() {
    let directory = Directory::new("campaign");
    let campaign = directory.0.join("campaign");
    let script = "#!/bin/sh\necho cycle 1\necho '{\"cycles\": '$3', \"lost\": 1, \"integrity_failures\": 0, \"page_differences\": 0}'\nexit 1\n";
    write_script(&campaign, script);
    let mut command = harness(&["figures", "--group", "kill", "--count", "1000"], &directory);
    command.arg("--out").arg(directory.0.join("figures.json")).env("STANDFAST_CAMPAIGN", &campaign);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("MISS kill.lost 1 acknowledged commits (bar 0, aim 0)"), "{text}");
    assert!(text.contains("PASS kill.cycles 1000 cycles (bar 200, aim 1000)"), "{text}");
}

#[test]
fn an_interrupt_ends_the_workers_and_removes_the_files() {
    let directory = Directory::new("interrupt");
    let words =
        ["commit", "--systems", "stock-normal", "--clients", "2", "--layouts", "one", "--seconds", "300"];
    let mut child = harness(&words, &directory).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    // The conditions come first; the workload starts right after them.
    progress.next().unwrap().unwrap();
    let worker = worker_of(child.id());
    // SAFETY: sends a signal to an unreaped child of this process; no memory is involved.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
    let rest: Vec<String> = progress.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{rest:?}");
    assert!(rest.last().unwrap().ends_with("interrupted"), "{rest:?}");
    assert!(!Path::new(&format!("/proc/{worker}")).exists());
    assert_eq!(directory.entries(), 0);
}

/// Waits for the first application process of a harness.
fn worker_of(parent: u32) -> String {
    let path = format!("/proc/{parent}/task/{parent}/children");
    for _ in 0..2000 {
        let children = std::fs::read_to_string(&path).unwrap_or_default();
        let is_worker = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|words| words.ends_with("worker\0"))
        };
        if let Some(pid) = children.split_whitespace().find(is_worker) {
            return pid.to_owned();
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("no application process appeared");
}

#[test]
fn disk_bench_refuses_a_directory_in_memory() {
    if !Path::new("/dev/shm").is_dir() {
        return;
    }
    let output = Command::new(PROGRAM).args(["raw", "--dir", "/dev/shm"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--dir"));
}
