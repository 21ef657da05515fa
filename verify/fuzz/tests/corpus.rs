//! Replays every input of the corpus on every run of the tests, so that no fixed finding returns.

// Helpers of tests are tests: a panic is how they fail.
#![allow(clippy::unwrap_used)]

use standfast_fuzz::{TARGETS, Target};
use std::path::{Path, PathBuf};

fn corpus(target: &Target) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn replay(name: &str) {
    let target = Target::named(name).unwrap();
    let files = corpus(target);
    assert!(files.len() >= 10, "the corpus of {name} has {} inputs", files.len());
    for file in files {
        eprintln!("{}", file.display());
        target.check(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn messages_of_a_peer_are_decoded_or_refused() {
    replay("transport");
}

#[test]
fn network_test_and_emulator_input_is_decoded_or_refused() {
    replay("net");
}

#[test]
fn redo_of_any_bytes_is_decoded_or_refused() {
    replay("redo");
}

#[test]
fn log_files_of_any_bytes_are_read_or_refused() {
    replay("log_files");
}

#[test]
fn instance_files_of_any_bytes_are_read_or_refused() {
    replay("instance_files");
}

#[test]
fn control_requests_of_any_bytes_are_read_or_refused() {
    replay("control_requests");
}

#[test]
fn a_marker_of_any_bytes_is_read_or_refused() {
    replay("marker");
}

#[test]
fn shared_memory_of_any_bytes_is_refused() {
    replay("segment");
}

#[test]
fn http_requests_of_any_bytes_are_read_or_refused() {
    replay("http");
}

#[test]
fn every_target_is_replayed() {
    let tests = include_str!("corpus.rs");
    for target in TARGETS {
        assert!(tests.contains(&format!("replay({:?})", target.name)), "{}", target.name);
    }
}

#[test]
fn allocation_beyond_the_bound_of_the_input_is_detected() {
    let run = |_: &[u8]| std::hint::black_box(vec![0_u8; 1 << 20]).len() - (1 << 20) + 32;
    let greedy = Target { name: "greedy", run, base: 1000 };
    let found = std::panic::catch_unwind(|| greedy.check(&[0; 100]));
    let message = *found.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("bytes allocated for an input of 100 bytes"), "{message}");
}
