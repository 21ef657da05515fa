//! The harness as a program of its own; `standfast bench` offers the same commands.

use std::process::ExitCode;

use clap::Parser;
use standfast_bench::command::{BenchCommand, this_program};

/// As in the daemon, whose stations are measured here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Standfast beside the systems it is compared with
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: BenchCommand,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = this_program(&[]).and_then(|worker| arguments.command.run(&worker));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("standfast-bench: {error}");
            ExitCode::from(2)
        }
    }
}
