//! `standfast wan` as processes: ready lines, control, exit codes, and what a killed emulator leaves behind. Needs
//! root; prints SKIP where that is not possible.

#![allow(clippy::unwrap_used)]

#[path = "../../../tools/net/tests/common/schema.rs"]
mod schema;

use schema::{WAN, follows_in};
use serde_json::Value;
use standfast_wan::emulator::{LinkStats, Stats};
use standfast_wan::late::Late;
use standfast_wan::link::{Counts, State};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn standfast(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standfast"));
    command.args(words.split_whitespace()).stdin(Stdio::null());
    command
}

fn done(words: &str) -> Output {
    standfast(words).output().unwrap()
}

fn code(words: &str) -> Option<i32> {
    done(words).status.code()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn possible() -> bool {
    let checked = standfast_wan::possible();
    if let Err(error) = &checked {
        eprintln!("SKIP: {error}");
    }
    checked.is_ok()
}

/// An emulator in the background, under a name that no other test uses.
struct Emulator {
    child: Child,
    name: String,
    ready: String,
}

impl Emulator {
    fn start(test: &str, words: &str) -> Emulator {
        let name = format!("{test}-{}", std::process::id());
        let mut command = standfast(&format!("wan run {name} {words}"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        Emulator { child, name, ready }
    }

    fn namespace_exists(&self, node: &str) -> bool {
        Path::new("/run/netns").join(format!("wan-{}-{node}", self.name)).exists()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn running_emulator_is_changed_queried_and_stopped_by_its_name() {
    if !possible() {
        return;
    }
    let mut emulator = Emulator::start("control", "--rtt 4ms --nodes paris,oslo");
    let name = emulator.name.clone();
    assert_eq!(emulator.ready, format!("ready {name} paris=10.77.0.1 oslo=10.77.0.2\n"));
    assert!(printed(&done("wan list")).lines().any(|line| line == name));
    assert_eq!(code(&format!("wan run {name}")), Some(4), "the name is taken");
    assert_eq!(code(&format!("wan set {name} paris:oslo --rate 10mbit --loss 1%")), Some(0));
    assert_eq!(code(&format!("wan cut {name} oslo:paris")), Some(0));
    let stats = done(&format!("wan stats {name} --json"));
    let stats: Value = serde_json::from_str(&printed(&stats)).unwrap();
    let links = &stats["links"];
    assert_eq!((&links[0]["rate"], &links[0]["loss"]), (&1_250_000.0.into(), &0.01.into()));
    assert_eq!((&links[0]["state"], &links[1]["state"]), (&"up".into(), &"cut".into()));
    assert_eq!((&links[1]["rate"], &links[1]["delay"]), (&Value::Null, &0.002.into()));
    assert_eq!(code(&format!("wan heal {name}")), Some(0));
    assert!(printed(&done(&format!("wan stats {name}"))).contains("paris:oslo"));
    assert_eq!(code(&format!("wan stop {name}")), Some(0));
    // Everything is gone when `stop` returns.
    assert!(!emulator.namespace_exists("paris") && !emulator.namespace_exists("oslo"));
    assert_eq!(emulator.child.wait().unwrap().code(), Some(0));
    assert_eq!(code(&format!("wan stats {name}")), Some(4), "it runs no more");
}

#[test]
fn ready_line_and_statistics_have_the_published_format() {
    if !possible() {
        return;
    }
    let name = format!("forms-{}", std::process::id());
    let mut command = standfast(&format!("wan run {name} --rtt 2ms --rate 100mbit --json --nodes a,b,c"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    follows_in(WAN, "ready", &ready);
    assert_eq!((&ready["ready"], ready["nodes"].as_array().unwrap().len()), (&name.as_str().into(), 3));
    // Sends packets, so that there is a lateness, and brings directions into every state.
    let program = env!("CARGO_BIN_EXE_standfast");
    done(&format!("wan exec {name} a -- {program} net client 10.77.0.2"));
    let mut states = Vec::new();
    for words in ["set NAME b:a --rate none", "cut NAME a:b", "stall NAME a:c"] {
        assert_eq!(code(&format!("wan {}", words.replace("NAME", &name))), Some(0));
        let stats: Value =
            serde_json::from_str(&printed(&done(&format!("wan stats {name} --json")))).unwrap();
        follows_in(WAN, "stats", &stats);
        states = stats["links"].as_array().unwrap().iter().map(|link| link["state"].clone()).collect();
        assert!(stats["late"]["count"].as_u64().unwrap() > 0, "{stats}");
    }
    assert!(["up", "cut", "stalled"].iter().all(|state| states.contains(&(*state).into())), "{states:?}");
    assert_eq!(code(&format!("wan stop {name}")), Some(0));
    let mut end = String::new();
    out.read_to_string(&mut end).unwrap();
    let end: Value = serde_json::from_str(&end).unwrap();
    follows_in(WAN, "stats", &end);
    assert_eq!((&end["name"], &end["seconds"].is_f64()), (&ready["ready"], &true));
    assert!(child.wait().unwrap().success());
}

/// Also runs without root.
#[test]
fn statistics_type_serializes_in_the_published_format() {
    let direction = |state, rate, queue| LinkStats {
        from: "a".into(),
        to: "b".into(),
        state,
        delay: 0.001,
        rate,
        queue,
        loss: 0.0,
        jitter: 0.0,
        reorder: 0.0,
        reorder_by: 0.001,
        counts: Counts::default(),
        held_bytes: 0,
        refused: 0,
        late: Late::default(),
    };
    let stats = Stats {
        schema_version: 1,
        name: "lab".into(),
        seed: 1,
        seconds: 2.0,
        nodes: standfast_wan::place::nodes("lab", &["a".into(), "b".into()]).unwrap(),
        overruns: 0,
        links: vec![direction(State::Up, Some(1e6), Some(9)), direction(State::Stalled, None, None)],
        late: Late::default(),
    };
    follows_in(WAN, "stats", &serde_json::to_value(stats).unwrap());
}

#[test]
fn command_runs_in_the_first_node_and_its_exit_code_is_returned() {
    if !possible() {
        return;
    }
    let output = done("wan run --rtt 2ms -- cat /proc/net/route");
    assert_eq!(output.status.code(), Some(0));
    assert!(printed(&output).contains("wan0") && !printed(&output).contains("eth0"), "{}", printed(&output));
    let shell = |script: &str| standfast("wan run -- sh -c").arg(script).output().unwrap().status.code();
    assert_eq!(shell("exit 7"), Some(7));
    assert_eq!(shell("kill -9 $$"), Some(137));
    assert_eq!(code("wan run -- /no/such/program"), Some(1));
}

#[test]
fn exec_reaches_every_node() {
    if !possible() {
        return;
    }
    let emulator = Emulator::start("exec", "");
    let knows = |node: &str, address: &str| {
        printed(&done(&format!("wan exec {} {node} -- cat /proc/net/fib_trie", emulator.name)))
            .contains(address)
    };
    assert!(knows("a", "10.77.0.1\n") && !knows("a", "10.77.0.2\n"));
    assert!(knows("b", "10.77.0.2\n") && !knows("b", "10.77.0.1\n"));
    assert_eq!(code(&format!("wan exec {} z -- true", emulator.name)), Some(2));
    assert_eq!(code(&format!("wan exec {} a -- false", emulator.name)), Some(1));
}

#[test]
fn next_start_removes_remains_of_a_killed_emulator() {
    if !possible() {
        return;
    }
    let mut killed = Emulator::start("killed", "");
    let mut inside = standfast(&format!("wan exec {} b -- sleep 1000", killed.name)).spawn().unwrap();
    // The process is in the namespace once it has executed the other program.
    let command = format!("/proc/{}/comm", inside.id());
    while std::fs::read_to_string(&command).unwrap() != "sleep\n" {
        std::thread::yield_now();
    }
    // Not checked after the kill: every start removes remains, also those of other tests.
    assert!(killed.namespace_exists("a") && killed.namespace_exists("b"));
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert!(!printed(&done("wan list")).contains(&killed.name));
    let next = Emulator::start("next", "");
    assert!(next.ready.starts_with("ready"));
    assert!(!killed.namespace_exists("a") && !killed.namespace_exists("b"));
    assert_eq!(inside.wait().unwrap().signal(), Some(15));
    assert!(!Path::new("/run/standfast-wan").join(&killed.name).exists());
}

#[test]
fn emulators_start_while_others_end() {
    if !possible() {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                for round in 0..8 {
                    let mut emulator = Emulator::start(&format!("turn{thread}-{round}"), "");
                    assert!(emulator.ready.starts_with("ready"), "{thread} {round}: {:?}", emulator.ready);
                    done(&format!("wan stop {}", emulator.name));
                    emulator.child.wait().unwrap();
                }
            });
        }
    });
}

#[test]
fn signal_shuts_the_emulator_down_cleanly() {
    if !possible() {
        return;
    }
    let mut emulator = Emulator::start("signal", "--json");
    let ready: Value = serde_json::from_str(&emulator.ready).unwrap();
    assert_eq!(ready["nodes"][1]["address"], "10.77.0.2");
    assert!(Command::new("kill").arg(emulator.child.id().to_string()).status().unwrap().success());
    assert_eq!(emulator.child.wait().unwrap().code(), Some(0));
    assert!(!emulator.namespace_exists("a"));
}

#[test]
fn readiness_is_reported_to_descriptor_and_service_manager() {
    if !possible() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("standfast-cli-wan-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind(directory.join("notify")).unwrap();
    let program = env!("CARGO_BIN_EXE_standfast");
    let script = format!("{program} wan run --ready-fd 3 -- true 3>{}", directory.join("ready").display());
    let mut command = Command::new("sh");
    let command = command.args(["-c", &script]).env("NOTIFY_SOCKET", directory.join("notify"));
    assert!(command.status().unwrap().success());
    let mut stated = [0; 32];
    let length = socket.recv(&mut stated).unwrap();
    assert_eq!(&stated[..length], b"READY=1");
    assert_eq!(std::fs::read_to_string(directory.join("ready")).unwrap(), "ready\n");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn emulator_with_late_packets_exits_with_3() {
    if !possible() {
        return;
    }
    // No packet is released at the exact nanosecond.
    let mut emulator = Emulator::start("late", "--fail-late 0ms");
    let name = emulator.name.clone();
    let client =
        done(&format!("wan exec {name} a -- {} net client 10.77.0.2", env!("CARGO_BIN_EXE_standfast")));
    // No process listens there, and the reply says so: two packets.
    assert!(String::from_utf8(client.stderr).unwrap().contains("refused"));
    assert_eq!(code(&format!("wan stats {name} --fail-late 1h")), Some(0));
    assert_eq!(code(&format!("wan stats {name} --fail-late 0ms --reset")), Some(3));
    assert_eq!(code(&format!("wan stats {name} --fail-late 0ms")), Some(0), "reset");
    done(&format!("wan exec {name} a -- {} net client 10.77.0.2", env!("CARGO_BIN_EXE_standfast")));
    assert_eq!(code(&format!("wan stop {name}")), Some(0));
    assert_eq!(emulator.child.wait().unwrap().code(), Some(3));
}

/// The program as a user other than root runs it.
fn unprivileged(words: &str) -> Output {
    use std::os::unix::process::CommandExt;
    let mut command = standfast(words);
    // Runs in `/`, because other users may have no access to the current directory.
    let unprivileged = 65_534;
    command.current_dir("/").uid(unprivileged).gid(unprivileged).output().unwrap()
}

#[test]
fn unprivileged_user_gets_the_missing_right_and_a_remedy() {
    if !possible() {
        return;
    }
    let emulator = Emulator::start("others", "");
    for (words, part) in [
        ("wan run --rtt 1ms -- true".to_owned(), "CAP_NET_ADMIN"),
        (format!("wan stats {}", emulator.name), "Permission denied"),
        (format!("wan exec {} a -- true", emulator.name), "Permission denied"),
        (format!("wan stop {}", emulator.name), "Permission denied"),
        ("wan list".to_owned(), "Permission denied"),
    ] {
        let output = unprivileged(&words);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{words}: {complaint}");
        assert!(
            complaint.contains(part) && complaint.contains("hint: run it as root"),
            "{words}: {complaint}"
        );
    }
}

#[test]
fn the_help_of_every_command_of_net_and_wan_has_examples() {
    for group in ["net", "wan"] {
        let help = printed(&done(&format!("{group} --help")));
        let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
        // The description of a command may continue in another line with more indentation.
        let names: Vec<&str> = listed
            .lines()
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .collect();
        assert!(names.len() >= 6, "{help}");
        for name in names {
            let help = printed(&done(&format!("{group} {name} --help")));
            let example = format!("  standfast {group} {name}");
            assert!(help.contains("Examples:\n") && help.contains(&example), "{group} {name}: {help}");
        }
    }
}

#[test]
fn bad_input_has_its_exit_code_and_names_what_is_allowed() {
    for (words, part) in [
        ("wan run lab --rtt 5x", "25ms"),
        ("wan run lab --loss 1", "with the sign"),
        ("wan run lab --rate 1gbps", "100mbit"),
        ("wan run lab --link ab,loss=1%", "FROM:TO"),
        ("wan run lab --rtt 1ms --delay 1ms", "cannot be used with"),
        ("wan run lab --rtt 1ms --jitter 1ms", "jitter larger than the delay"),
        ("wan run Lab", "a-z"),
        ("wan run lab --nodes a", "different names"),
        ("wan run lab --link a:z,loss=1%", "a, b"),
        ("wan run lab --ready-fd 77", "not an open file descriptor"),
        ("wan set lab", "nothing to set"),
        ("wan stats ../lab", "a-z"),
    ] {
        let output = done(words);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {complaint}");
        assert!(complaint.contains(part), "{words}: {complaint}");
    }
}
