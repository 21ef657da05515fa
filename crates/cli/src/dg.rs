//! `standfast dg`: the configuration of all members and the changes of their roles, in the commands of DGMGRL.
//!
//! Each command is one request to the instance in the directory. The primary changes the configuration; any member shows it.

mod command;
mod members;
mod text;
mod validate;

use crate::convert;
use crate::printable::printable_lines;
use crate::role_change;
use command::{Command, parse};
use members::{Shown, Standing};
use serde_json::json;
use standfast_documents::{ObserverState, Status};
use standfast_environment::InstanceError;
use standfast_environment::config::destination_config::State as DestinationState;
use standfast_environment::config::properties::{OF_A_MEMBER, OF_THE_CONFIGURATION, PropertyError, find};
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::config::shared_configuration::SharedConfiguration;
use standfast_instance::server::control_client::{ask, ask_for};
use standfast_instance::server::request::Request;
use standfast_instruments::Observation;
use standfast_types::{Hint, printable};
use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
Examples:
  standfast dg -D /srv/sf show configuration
  standfast dg -D /srv/sf \"edit database oslo set property LogXptMode = FASTSYNC\"
  standfast dg -D /srv/sf validate database oslo
  standfast dg -D /srv/sf help
  standfast dg -D /srv/sf < commands

Without a command it reads them from standard input, one a line; from a file it ends with the first that is not carried out.
Exit codes: 0 done (of `show` and `validate`: it is as configured), 1 failed, 2 no such command, member, property or value,
3 refused (of `show` and `validate`: something is wrong, or not known), 4 the instance does not run, 6 as of `standfast
failover`. Of a script: that of the command that ended it, or of the last `show` or `validate` that found something.";

#[derive(Clone, Debug, clap::Args)]
pub struct DgArgs {
    /// Print what `show` and `validate` find as JSON.
    #[arg(long)]
    json: bool,
    /// The command, in one argument or several.
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Exit code of a command, member or property that does not exist.
const NO_SUCH: u8 = 2;
/// Exit code of `show` and `validate` when not all is as configured.
const NOT_WELL: u8 = 3;

/// Runs the command, or those of standard input.
///
/// # Errors
/// That of the first command that failed.
pub fn run(directory: &Path, args: &DgArgs) -> Result<ExitCode, InstanceError> {
    let here = Here { directory, json: args.json };
    if !args.command.is_empty() {
        return Ok(here.one(&args.command.join(" "))?.unwrap_or(ExitCode::SUCCESS));
    }
    let is_terminal = std::io::stdin().is_terminal();
    let mut lines = std::io::stdin().lock().lines();
    // Of the last `show` or `validate` that found something wrong, which ends no script.
    let mut found = ExitCode::SUCCESS;
    loop {
        if is_terminal {
            eprint!("DG> ");
            let _ = std::io::stderr().flush();
        }
        let Some(line) = lines.next() else { return Ok(found) };
        let line =
            line.map_err(|error| InstanceError::Failed(format!("the commands cannot be read: {error}")))?;
        if command::is_blank(&line) {
            continue;
        }
        match here.one(&line) {
            Ok(None) => return Ok(found),
            Ok(Some(code)) if code == ExitCode::SUCCESS => {}
            Ok(Some(code)) => found = code,
            Err(error) if is_terminal => eprintln!("error: {}", printable_lines(&error.for_terminal())),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the state of an observer as text.
pub fn observer(state: &ObserverState) -> String {
    text::observer(state)
}

/// Returns 0 when it is as configured.
fn exit_code(standing: Standing) -> ExitCode {
    match standing {
        Standing::Success | Standing::Disabled => ExitCode::SUCCESS,
        _ => ExitCode::from(NOT_WELL),
    }
}

/// The instance that is asked, and how answers are printed.
struct Here<'a> {
    directory: &'a Path,
    json: bool,
}

fn no_such(what: String, hint: &str) -> InstanceError {
    InstanceError::Answered { what, hint: Some(hint.into()), code: NO_SUCH }
}

impl Here<'_> {
    /// Carries out one command. `None`: it was the last one.
    fn one(&self, text: &str) -> Result<Option<ExitCode>, InstanceError> {
        let hint = "`standfast dg help` lists the commands";
        let command = parse(text).map_err(|error| no_such(error.to_string(), hint))?;
        self.carry_out(command)
    }

    fn carry_out(&self, command: Command) -> Result<Option<ExitCode>, InstanceError> {
        let done = |text: String| {
            eprintln!("{text}");
            Ok(Some(ExitCode::SUCCESS))
        };
        match command {
            Command::Exit => Ok(None),
            Command::Help { about } => {
                print!("{}", text::help(about.as_deref()));
                Ok(Some(ExitCode::SUCCESS))
            }
            Command::ShowConfiguration { verbose, lag } => self.show_configuration(verbose, lag).map(Some),
            Command::ShowMember { name, verbose } => self.show_member(&name, verbose).map(Some),
            Command::ShowProperty { member, property } => {
                println!("{}", printable(&self.property(member.as_deref(), &property)?, usize::MAX));
                Ok(Some(ExitCode::SUCCESS))
            }
            Command::SetProperty { member, property, value } => {
                self.is_the_primary()?;
                let kept: Option<SharedConfiguration> =
                    ask_for(self.directory, &Request::SetProperty { member, property, value })?;
                done(format!("property updated, version {}", kept.map_or(0, |kept| kept.version)))
            }
            Command::SetProtectionMode { mode } => {
                self.is_the_primary()?;
                ask(self.directory, &Request::ProtectionMode { mode: Some(mode) })?;
                done(format!("protection mode: {}", mode.words()))
            }
            Command::SetState { member, apply } => {
                let word = if apply { "APPLY-ON" } else { "APPLY-OFF" };
                self.is_here(&member, &format!("edit database {member} set state = {word}"))?;
                ask(self.directory, &Request::Apply { on: apply, no_delay: false })?;
                done(format!("{member}: {word}"))
            }
            Command::Enable { member, shipping } => {
                self.known_at_the_primary(&member)?;
                let state = if shipping { DestinationState::Enable } else { DestinationState::Defer };
                ask(self.directory, &Request::SetDestinationState { name: member.clone(), state })?;
                done(format!("{member} {}", if shipping { "enabled" } else { "disabled" }))
            }
            Command::FastStart { enable, force } => {
                self.is_the_primary()?;
                ask(self.directory, &Request::FastStart { enable, force })?;
                done(format!("fast-start failover {}", if enable { "enabled" } else { "disabled" }))
            }
            Command::ShowFastStart => self.show_fast_start().map(Some),
            Command::ShowObserver => self.show_observer().map(Some),
            Command::Add { member, address } => {
                self.is_the_primary()?;
                let destination = Box::new(DestinationConfig::new(member.clone(), address));
                ask(self.directory, &Request::SetDestination { destination, connect: true })?;
                done(format!("{member} added"))
            }
            Command::Remove { member } => {
                self.known_at_the_primary(&member)?;
                ask(self.directory, &Request::RemoveDestination { name: member.clone() })?;
                done(format!("{member} removed from the configuration"))
            }
            Command::Validate { member, verbose } => self.validate(&member, verbose).map(Some),
            Command::Export { file } => self.export(file.as_deref()).map(Some),
            Command::Switchover { to } => {
                self.known_at_the_primary(&to)?;
                let request = Request::Switchover { to, drain_s: None };
                role_change::switchover(self.directory, &request, self.json)?;
                Ok(Some(ExitCode::SUCCESS))
            }
            Command::Failover { to, immediate, force } => {
                self.is_here(&to, &format!("failover to {to}"))?;
                let request = Request::Failover { wait_s: None, immediate, force };
                role_change::failover(self.directory, &request, self.json).map(Some)
            }
            Command::Convert { member, snapshot } => {
                let kind = if snapshot { "snapshot" } else { "physical" };
                self.is_here(&member, &format!("convert database {member} to {kind} standby"))?;
                match snapshot {
                    true => convert::to_snapshot(self.directory, self.json)?,
                    false => convert::to_physical(self.directory, self.json)?,
                }
                Ok(Some(ExitCode::SUCCESS))
            }
            Command::Reinstate { member } => Err(InstanceError::refused(
                format!("`{member}` reinstates itself, while it does not run"),
                format!(
                    "at `{member}`: `standfast stop` if it runs, `standfast reinstate --yes`, `standfast start`"
                ),
            )),
        }
    }

    fn status(&self) -> Result<Status, InstanceError> {
        ask_for(self.directory, &Request::Status)
    }

    fn kept(&self) -> Result<Option<SharedConfiguration>, InstanceError> {
        ask_for(self.directory, &Request::Configuration)
    }

    fn observation(&self) -> Result<Observation, InstanceError> {
        ask_for(self.directory, &Request::Observe { history: false, standbys: true })
    }

    fn shown(&self) -> Result<(Shown, Option<SharedConfiguration>), InstanceError> {
        let kept = self.kept()?;
        Ok((Shown::of(&self.observation()?, kept.as_ref()), kept))
    }

    fn show_configuration(&self, verbose: bool, lag: bool) -> Result<ExitCode, InstanceError> {
        let (shown, kept) = self.shown()?;
        if self.json {
            println!("{:#}", json!(shown));
        } else {
            print!("{}", text::configuration(&shown, kept.as_ref().filter(|_| verbose), lag));
        }
        Ok(exit_code(shown.standing))
    }

    fn show_member(&self, name: &str, verbose: bool) -> Result<ExitCode, InstanceError> {
        let (shown, kept) = self.shown()?;
        let member = shown.member(name).ok_or_else(|| unknown_member(name, &shown))?;
        if self.json {
            println!("{:#}", json!(member));
        } else {
            print!("{}", text::member(member, kept.as_ref().filter(|_| verbose)));
        }
        Ok(exit_code(member.standing))
    }

    fn show_fast_start(&self) -> Result<ExitCode, InstanceError> {
        let (status, kept) = (self.status()?, self.kept()?);
        let shown = status.fast_start_failover.as_ref();
        if self.json {
            println!("{:#}", json!(shown));
        } else {
            print!("{}", text::fast_start(shown, kept.as_ref()));
        }
        let is_well =
            shown.is_none_or(|shown| matches!(shown.status.as_deref(), Some("SYNCHRONIZED" | "BYSTANDER")));
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
    }

    fn show_observer(&self) -> Result<ExitCode, InstanceError> {
        let state = ObserverState::of(&ask(self.directory, &Request::Observer)?);
        if self.json {
            println!("{:#}", json!(state));
        } else {
            print!("{}", text::observer(&state));
        }
        Ok(if state.votes == Some(true) { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
    }

    fn property(&self, member: Option<&str>, property: &str) -> Result<String, InstanceError> {
        let hint = "`standfast dg help properties` lists them";
        let kept = self.kept()?.ok_or_else(none_kept)?;
        let unknown = |error: PropertyError| no_such(error.to_string(), hint);
        match member {
            None => Ok(find(&OF_THE_CONFIGURATION, property).map_err(unknown)?.show(&kept.role_change)),
            Some(name) => {
                let found = find(&OF_A_MEMBER, property).map_err(unknown)?;
                Ok(found.show(shipped_to(&kept, name)?))
            }
        }
    }

    /// Checks that this is the primary: another instance would change what it ships to as a standby.
    fn is_the_primary(&self) -> Result<(), InstanceError> {
        let status = self.status()?;
        if status.is_primary() {
            return Ok(());
        }
        let primary = self.kept()?.map_or_else(|| "the primary".into(), |kept| format!("`{}`", kept.primary));
        Err(InstanceError::refused(
            format!(
                "`{}` is not the primary, which alone changes the configuration",
                status.name.unwrap_or_default()
            ),
            format!("give the command at {primary}"),
        ))
    }

    /// Checks that this is the primary, and ships redo to a member of this name.
    fn known_at_the_primary(&self, name: &str) -> Result<(), InstanceError> {
        self.is_the_primary()?;
        let kept = self.kept()?.ok_or_else(none_kept)?;
        shipped_to(&kept, name).map(drop)
    }

    /// Checks that the instance that is asked is the one called `name`.
    fn is_here(&self, name: &str, command: &str) -> Result<(), InstanceError> {
        let own = self.status()?.name.unwrap_or_default();
        if own == name {
            return Ok(());
        }
        Err(InstanceError::refused(
            format!("this is `{own}`, and `{name}` itself does that"),
            format!("at `{name}`: `standfast dg {command}`"),
        ))
    }

    fn validate(&self, name: &str, verbose: bool) -> Result<ExitCode, InstanceError> {
        let (observation, kept) = (self.observation()?, self.kept()?);
        let shown = Shown::of(&observation, kept.as_ref());
        let member = shown.member(name).ok_or_else(|| unknown_member(name, &shown))?;
        let asked = (observation.status.is_primary() && observation.name != name)
            .then(|| ask(self.directory, &Request::ReadyToTakeOver { name: name.into() }).map(drop));
        let report = validate::report(&observation, kept.as_ref(), member, asked.as_ref());
        if self.json {
            println!("{:#}", json!(report));
        } else {
            print!("{}", report.text(verbose));
        }
        Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
    }

    fn export(&self, file: Option<&str>) -> Result<ExitCode, InstanceError> {
        let kept = self.kept()?.ok_or_else(none_kept)?;
        let text = format!("{:#}\n", json!(kept));
        match file {
            None => print!("{text}"),
            Some(file) => {
                let path = Path::new(file);
                let written = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
                written
                    .and_then(|mut file| file.write_all(text.as_bytes()))
                    .map_err(InstanceError::io("write the configuration to", path))?;
                eprintln!("the configuration, version {}, is in {file}", kept.version);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

const SHOW: &str = "`standfast dg show configuration` lists the members";

fn shipped_to<'a>(kept: &'a SharedConfiguration, name: &str) -> Result<&'a DestinationConfig, InstanceError> {
    let found = kept.standbys.iter().find(|at| at.name == name);
    found.ok_or_else(|| no_such(format!("redo is shipped to no member `{name}`"), SHOW))
}

fn unknown_member(name: &str, shown: &Shown) -> InstanceError {
    let names: Vec<_> = shown.members.iter().map(|member| member.name.as_str()).collect();
    no_such(format!("there is no member `{name}`; there are: {}", names.join(", ")), SHOW)
}

fn none_kept() -> InstanceError {
    InstanceError::refused(
        "this instance has no configuration yet",
        "its primary sends it with the redo: `standfast destination add` there, or start both",
    )
}
