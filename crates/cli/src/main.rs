//! The `standfast` command: creates, runs and queries instances.
//!
//! Data goes to stdout, everything else to stderr. Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 refused in
//! the present state, 4 the instance does not run, 5 it runs already, 6 failover done, but it is not known that
//! everything acknowledged is here.

mod absolute;
mod args;
mod certificates;
mod convert;
mod database;
mod destination;
mod destination_args;
mod dg;
mod doctor;
mod dump;
mod exec;
mod generated;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod hints;
mod live;
mod log_groups;
mod printable;
mod reinstate;
mod reports;
mod role_change;
mod service_user;
mod show;
mod sql;
mod verify;

use absolute::absolute;
use args::{
    ApplyCommand, Args, Command, FenceCommand, LogCommand, ObserverCommand, RegisterCommand, StandbyCommand,
};
use clap::FromArgMatches;
use printable::printable_lines;
use serde_json::json;
use standfast_documents::Status;
use standfast_documents::status::Protection;
use standfast_environment::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::state::control::Role;
use standfast_instance::role::create::{create_standby, init};
use standfast_instance::server::answer::{Checkpointed, LogRegistered, LogSwitched, Protected, Unprotected};
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use standfast_instance::server::run;
use standfast_observer::run as observer;
use standfast_types::Hint;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The daemon's threads allocate and free buffers at every commit, often in different threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // `tcptest` has options of its own with a single dash; clap must not take one of them for a global option, such as
    // -D.
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
        Command::Status { check, .. } if check.check => {
            return live::check(&args.directory, &check).into();
        }
        command => Args { command, ..args },
    };
    standfast_environment::state::process::end_on_broken_pipe();
    let outcome = match args.command {
        Command::Diagnose(diagnose) => reports::diagnose(&args.directory, &diagnose),
        Command::Doctor(args) => doctor::doctor(args)
            .map(|well| if well { ExitCode::SUCCESS } else { ExitCode::from(NOT_PROTECTED) }),
        Command::Dg(dg) => dg::run(&args.directory, &dg),
        Command::Exec(exec) => exec::run(&args.directory, &exec).map(ExitCode::from),
        Command::Failover { wait, immediate, force, json } => role_change::failover(
            &args.directory,
            &Request::Failover { wait_s: Some(wait), immediate, force },
            json,
        ),
        _ => run(args).map(|good| if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            if !matches!(error, InstanceError::Reported { .. }) {
                // The reader may have closed stderr; that does not change the exit code.
                let _ = writeln!(std::io::stderr(), "error: {}", printable_lines(&error.for_terminal()));
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// How long an instance or an observer may take to stop.
const STOP: Duration = Duration::from_secs(60);
/// Exit code of `doctor` when something is not protected.
const NOT_PROTECTED: u8 = 3;
fn run(args: Args) -> Result<bool, InstanceError> {
    let directory = args.directory;
    match args.command {
        Command::Init { name, listen, insecure, tls: _, group_bytes, members } => {
            let mut config = Config::default();
            apply_names(&mut config, name, listen, insecure);
            if let Some(bytes) = group_bytes {
                config.redo.group_bytes = bytes;
            }
            if !members.is_empty() {
                config.redo.members = members;
            }
            let config = Config::parse(&config.to_toml(), Path::new("command line"))?;
            service_user::refuse_root(&directory, false)?;
            let id = init(&directory, &config)?;
            println!("instance {id} in {}", directory.display());
            eprintln!("next: standfast start -D {}", directory.display());
        }
        Command::Start { until_scn, adopt, allow_root } => {
            if !allow_root {
                service_user::refuse_root(&directory, true)?;
            }
            if observer::is_observer(&directory) {
                observer::run(&directory)?;
                return Ok(true);
            }
            run::run(&directory, until_scn.map(standfast_types::Scn), adopt)?;
        }
        Command::Stop if observer::is_observer(&directory) => {
            observer::stop(&directory, STOP)?;
            println!("stopped");
        }
        Command::Stop => {
            control_client::ask(&directory, &Request::Stop)?;
            control_client::wait_until_stopped(&directory, STOP)?;
            println!("stopped");
        }
        Command::Protect { path, name } => {
            let path = absolute(&path)?;
            let answer: Protected = control_client::ask_for(&directory, &Request::Protect { path, name })?;
            answer.protected.iter().for_each(|name| println!("protected: {}", printable_lines(name)));
        }
        Command::Unprotect { name } => {
            let name =
                Path::new(&name).canonicalize().map_or(name.clone(), |path| path.display().to_string());
            let answer: Unprotected = control_client::ask_for(&directory, &Request::Unprotect { name })?;
            println!("no longer protected: {}", printable_lines(&answer.unprotected));
        }
        Command::Switchover { to, drain, json } => {
            role_change::switchover(&directory, &Request::Switchover { to, drain_s: drain }, json)?;
        }
        Command::Database { command } => database::database(&directory, command)?,
        Command::Standby { command: StandbyCommand::Token { name, ttl, uses } } => {
            certificates::issue(&directory, name, uses, &ttl)?;
        }
        Command::Cert { command } => certificates::run(&directory, command)?,
        Command::Reinstate(args) => {
            service_user::refuse_root(&directory, false)?;
            return reinstate::run(&directory, &args);
        }
        Command::Fence { command: FenceCommand::Lift { yes } } => {
            service_user::refuse_root(&directory, false)?;
            let lines = standfast_instance::role::fence::lift(&directory, yes)?;
            lines.iter().for_each(|line| println!("{line}"));
            if yes {
                println!("the fence is lifted");
            } else {
                eprintln!("nothing was done; --yes does it");
            }
            return Ok(yes);
        }
        Command::Standby {
            command:
                StandbyCommand::Create { from, name, listen, insecure, tls: _, token_file, members, far_sync },
        } => {
            service_user::refuse_root(&directory, false)?;
            let token = certificates::token(token_file.as_deref())?;
            let mut config = Config::default();
            apply_names(&mut config, name, listen, insecure);
            if !members.is_empty() {
                config.redo.members = members;
            }
            let mut config = Config::parse(&config.to_toml(), Path::new("command line"))?;
            let role = if far_sync { Role::FarSync } else { Role::Standby };
            let created =
                create_standby(&directory, &mut config, &from, role, token.as_ref(), &mut progress())?;
            println!("{role} in {}", directory.display());
            certificates::tell_joined(&created, &directory);
            eprintln!("next: standfast start -D {}", directory.display());
            let (name, listen) = (&config.instance.name, &config.instance.listen);
            let by = if far_sync { "the primary" } else { "the primary or the instance that is to feed it" };
            eprintln!("then, at {by}: standfast destination add -D DIR {name} {listen}");
        }
        Command::Observer {
            command: ObserverCommand::Create { from, name, listen, insecure, token_file },
        } => {
            service_user::refuse_root(&directory, false)?;
            let token = certificates::token(token_file.as_deref())?;
            let mut config = Config::default();
            apply_names(&mut config, Some(name), Some(listen), insecure);
            let mut config = Config::parse(&config.to_toml(), Path::new("command line"))?;
            let joined = observer::create(&directory, &mut config, &from, token.as_ref())?;
            println!("observer in {}", directory.display());
            certificates::tell_joined(&joined, &directory);
            let (name, listen) = (&config.instance.name, &config.instance.listen);
            eprintln!("next: standfast start -D {}", directory.display());
            eprintln!(
                "then, at the primary: standfast dg -D DIR edit configuration set property FastStartFailoverObserver = {name}@{listen}"
            );
        }
        Command::Destination { command } => destination::destination(&directory, command)?,
        Command::ProtectionMode { mode, json } => {
            let request = Request::ProtectionMode { mode: mode.map(Into::into) };
            let answer: Protection = control_client::ask_for(&directory, &request)?;
            if json { println!("{:#}", json!(answer)) } else { println!("{}", show::protection(&answer)) }
        }
        Command::Status { json, .. } if observer::is_observer(&directory) => {
            let state = observer::state(&directory)?;
            if json { println!("{:#}", json!(state)) } else { print!("{}", dg::observer(&state)) }
        }
        Command::Status { json, .. } => {
            let answer = control_client::ask(&directory, &Request::Status)?;
            let status = Status::of(&answer);
            if json {
                println!("{answer:#}")
            } else {
                show::status(&status)
            }
            return Ok(status.failure.is_none());
        }
        Command::Observe { history, standbys } => {
            println!("{:#}", control_client::ask(&directory, &Request::Observe { history, standbys })?);
        }
        Command::Top(args) => live::top(&directory, &args)?,
        Command::Apply { command } => {
            let (on, no_delay) = match command {
                ApplyCommand::Start { no_delay } => (true, no_delay),
                ApplyCommand::Stop => (false, false),
            };
            let done: String = control_client::ask_for(&directory, &Request::Apply { on, no_delay })?;
            println!("{done}");
        }
        Command::Convert { command } => return convert::run(&directory, &command),
        Command::Register { command: RegisterCommand::Logfile { file } } => {
            let path = std::path::absolute(&file).unwrap_or(file);
            let log: LogRegistered = control_client::ask_for(&directory, &Request::RegisterLogfile { path })?;
            println!("log {} registered; the redo continues to SCN {}", log.sequence, log.end);
        }
        Command::SwitchLogfile => {
            let log: LogSwitched = control_client::ask_for(&directory, &Request::SwitchLogfile)?;
            println!("log sequence {}", log.sequence);
        }
        Command::Checkpoint => {
            let Checkpointed { remaining } = control_client::ask_for(&directory, &Request::Checkpoint)?;
            println!("checkpoint complete{}", if remaining.is_empty() { "" } else { ", but for" });
            remaining.iter().for_each(|left| println!("  {}", printable_lines(left)));
        }
        Command::Verify(verify) => return verify::verify(&directory, verify),
        Command::Snapshot { command } => reports::snapshot(&directory, command)?,
        Command::Report(report) => reports::report(&directory, &report)?,
        Command::Log { command: LogCommand::Dump { file, from, limit, json } } => {
            dump::dump(&directory, file.as_deref(), from, limit, json)?;
        }
        Command::Log { command: LogCommand::Group { command } } => log_groups::group(&directory, command)?,
        Command::Log { command: LogCommand::Member { command } } => log_groups::member(&directory, command)?,
        Command::Config { defaults } => {
            let config = if defaults { Config::default() } else { Config::load(&directory)? };
            print!("{}", config.to_toml());
        }
        Command::Sql(args) => sql::run(&directory, args)?,
        Command::Completions { shell } => generated::completions(shell),
        Command::Man { output } => generated::manual(output.as_deref())?,
        // These have exit codes of their own; main() has carried them out.
        Command::Tcptest { .. }
        | Command::Net { .. }
        | Command::Wan { .. }
        | Command::Diagnose(_)
        | Command::Exec(_)
        | Command::Doctor(_)
        | Command::Failover { .. }
        | Command::Dg(_) => {}
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

/// Prints a line to stderr at most once a second while a copy runs.
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
