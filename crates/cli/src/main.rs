//! The `standfast` command: makes, runs and asks instances.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 ok, 1 failed, 2 usage or configuration,
//! 3 refused as things stand, 4 the instance does not run, 5 it runs already.

mod args;
mod destination;
mod destination_args;
mod dump;
mod generated;
mod show;

use args::{Args, Command, LogCommand, RegisterCommand, StandbyCommand};
use clap::FromArgMatches;
use serde_json::Value;
use standfast_instance::InstanceError;
use standfast_instance::config::Config;
use standfast_instance::create::{create_standby, init};
use standfast_instance::server::{self, Request};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Threads of the daemon take and free buffers at every commit, often in different threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Its options have one dash and are its own; none of them may be taken for one of ours, such as -D.
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    if words.next().is_some_and(|first| first == "tcptest") {
        return standfast_net::tcptest::main(&words.collect::<Vec<_>>()).into();
    }
    let args = Args::from_arg_matches(&args::command().get_matches());
    let args = args.unwrap_or_else(|error| error.exit());
    let args = match args.command {
        Command::Tcptest { words } => return standfast_net::tcptest::main(&words).into(),
        Command::Net { command } => return command.main().into(),
        Command::Wan { command } => return command.main().into(),
        _ => args,
    };
    server::end_on_broken_pipe();
    match run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(args: Args) -> Result<bool, InstanceError> {
    let directory = args.directory;
    match args.command {
        Command::Init { name, listen, insecure, group_bytes, members } => {
            let mut config = Config::default();
            apply_names(&mut config, name, listen, insecure);
            if let Some(bytes) = group_bytes {
                config.redo.group_bytes = bytes;
            }
            if !members.is_empty() {
                config.redo.members = members;
            }
            let config = Config::parse(&config.to_toml(), Path::new("command line"))?;
            let id = init(&directory, &config)?;
            println!("instance {id} in {}", directory.display());
            eprintln!("next: standfast start -D {}", directory.display());
        }
        Command::Start => server::run(&directory)?,
        Command::Stop => {
            server::ask(&directory, &Request::Stop)?;
            server::wait_until_stopped(&directory, Duration::from_secs(60))?;
            println!("stopped");
        }
        Command::Protect { path, name } => {
            let path = absolute(&path)?;
            let answer = server::ask(&directory, &Request::Protect { path, name })?;
            print_list(&answer["protected"], "protected");
        }
        Command::Unprotect { name } => {
            let name =
                Path::new(&name).canonicalize().map_or(name.clone(), |path| path.display().to_string());
            let answer = server::ask(&directory, &Request::Unprotect { name })?;
            println!("no longer protected: {}", text(&answer["unprotected"]));
        }
        Command::Standby { command: StandbyCommand::Create { from, name, listen, insecure, members } } => {
            let mut config = Config::default();
            apply_names(&mut config, name, listen, insecure);
            if !members.is_empty() {
                config.redo.members = members;
            }
            let mut config = Config::parse(&config.to_toml(), Path::new("command line"))?;
            create_standby(&directory, &mut config, &from, &mut progress())?;
            println!("standby in {}", directory.display());
            eprintln!("next: standfast start -D {}", directory.display());
            let (name, listen) = (&config.instance.name, &config.instance.listen);
            eprintln!("then, at the primary: standfast destination add -D DIR {name} {listen}");
        }
        Command::Destination { command } => destination::destination(&directory, command)?,
        Command::ProtectionMode { mode, json } => {
            let answer = server::ask(&directory, &Request::ProtectionMode { mode: mode.map(Into::into) })?;
            if json { println!("{answer:#}") } else { println!("{}", show::protection(&answer)) }
        }
        Command::Status { json } => {
            let status = server::ask(&directory, &Request::Status)?;
            if json {
                println!("{status:#}")
            } else {
                show::status(&status)
            }
            return Ok(status["failure"].is_null());
        }
        Command::Failover => {
            let began = Instant::now();
            let answer = server::ask(&directory, &Request::Failover)?;
            println!("primary from SCN {} after {:.1} s", answer["branch"], began.elapsed().as_secs_f64());
        }
        Command::Register { command: RegisterCommand::Logfile { file } } => {
            let path = std::path::absolute(&file).unwrap_or(file);
            let answer = server::ask(&directory, &Request::RegisterLogfile { path })?;
            println!("log {} registered; the redo goes on to SCN {}", answer["sequence"], answer["end"]);
        }
        Command::SwitchLogfile => {
            let answer = server::ask(&directory, &Request::SwitchLogfile)?;
            println!("log sequence {}", answer["sequence"]);
        }
        Command::Checkpoint => {
            server::ask(&directory, &Request::Checkpoint)?;
            println!("checkpoint complete");
        }
        Command::Log { command: LogCommand::Dump { file, from, limit, json } } => {
            dump::dump(&directory, file.as_deref(), from, limit, json)?;
        }
        Command::Config { defaults } => {
            let config = if defaults { Config::default() } else { Config::load(&directory)? };
            print!("{}", config.to_toml());
        }
        Command::Completions { shell } => generated::completions(shell),
        Command::Man { output } => generated::manual(output.as_deref())?,
        // These have exit codes of their own and were carried out by main().
        Command::Tcptest { .. } | Command::Net { .. } | Command::Wan { .. } => {}
        Command::Bench { command } => {
            let program = standfast_bench::command::this_program(&["bench"]);
            let program = program.map_err(|error| InstanceError::Failed(error.to_string()))?;
            let run = command.run(&program);
            return run.map_err(|error| InstanceError::Failed(error.to_string()));
        }
    }
    Ok(true)
}

fn apply_names(config: &mut Config, name: Option<String>, listen: Option<String>, insecure: bool) {
    if let Some(name) = name {
        config.instance.name = name;
    }
    if let Some(listen) = listen {
        config.instance.listen = listen;
    }
    config.instance.insecure = insecure;
}

fn absolute(path: &Path) -> Result<PathBuf, InstanceError> {
    std::path::absolute(path).map_err(|source| InstanceError::Io {
        doing: "find",
        path: path.to_owned(),
        source,
    })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn print_list(list: &Value, word: &str) {
    for item in list.as_array().into_iter().flatten() {
        println!("{word}: {}", text(item));
    }
}

/// A line on stderr every second while a copy takes long.
fn progress() -> impl FnMut(&str, u64) {
    let mut last = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    move |database, bytes| {
        if last.elapsed() >= Duration::from_secs(1) {
            last = Instant::now();
            let end = if terminal { "\r" } else { "\n" };
            eprint!("copying {database}: {} MiB in all{end}", bytes >> 20);
        }
    }
}
