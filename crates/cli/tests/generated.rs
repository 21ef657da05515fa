//! Completions and manual pages match the existing commands.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};

fn standfast(words: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_standfast")).args(words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_from_the_generated_script() {
    let script = standfast(&["completions", "bash"]);
    let file = std::env::temp_dir().join(format!("standfast-completions-{}", std::process::id()));
    std::fs::write(&file, &script).unwrap();
    let complete = format!(
        "source {}; COMP_WORDS=(standfast fail); COMP_CWORD=1; _standfast standfast fail standfast; echo ${{COMPREPLY[@]}}",
        file.display()
    );
    let output = Command::new("bash").args(["--norc", "-c", &complete]).output().unwrap();
    std::fs::remove_file(file).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "failover", "{:?}", output.stderr);
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = std::env::temp_dir().join(format!("standfast-man-{}", std::process::id()));
    standfast(&["man", "--output", &directory.to_string_lossy()]);
    for page in
        ["standfast.1", "standfast-failover.1", "standfast-net-advise.1", "standfast-destination-add.1"]
    {
        let text = std::fs::read_to_string(directory.join(page)).unwrap();
        assert!(text.contains(".TH standfast"), "{page}: {text}");
    }
    std::fs::remove_dir_all(directory).unwrap();
    assert!(standfast(&["man"]).contains(".SH SYNOPSIS"));
}
