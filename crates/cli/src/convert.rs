//! `standfast convert`: a snapshot standby, and back.

use crate::show::bytes;
use serde_json::json;
use standfast_documents::status::Status;
use standfast_environment::InstanceError;
use standfast_instance::server::answer::ConvertedStandby;
use standfast_instance::server::control_client::ask_for;
use standfast_instance::server::request::Request;
use standfast_live::figure::seconds;
use std::path::Path;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum ConvertCommand {
    /// Let applications write to the databases of this standby. It receives redo as before, and does not apply it.
    ///
    /// The databases are copied; the standby's own files wait beside the copies. So it needs as much space as the databases
    /// have, and is a standby again at any time. Commits of the primary wait for it as before.
    #[command(
        after_help = "Examples:\n  standfast convert snapshot-standby -D /srv/sf-b\n\nApplications open the databases again: to them these are unprotected databases. Exit codes: 0 ok, 1 the databases cannot be\ncopied, 3 it is no standby that applies redo, or fast-start failover is enabled, 4 the instance does not run."
    )]
    SnapshotStandby {
        /// Print the result as JSON: the number of databases, and the bytes copied.
        #[arg(long)]
        json: bool,
    },
    /// Discard what applications have written to this snapshot standby, and apply the redo that has arrived.
    ///
    /// A failover to it does this first.
    #[command(
        after_help = "Examples:\n  standfast convert physical-standby -D /srv/sf-b\n  standfast convert physical-standby -D /srv/sf-b --yes\n\nWithout --yes it only prints what it would do. End applications that have the databases open: what they write afterwards is\nlost. Exit codes: 0 ok, 1 nothing was done (no --yes), 3 it is no snapshot standby, 4 the instance does not run."
    )]
    PhysicalStandby {
        /// Do it.
        #[arg(long)]
        yes: bool,
        /// Print the result as JSON: the number of databases, and the bytes of redo to apply.
        #[arg(long)]
        json: bool,
    },
}

/// Returns whether it was done.
///
/// # Errors
/// Those of the instance.
pub fn run(directory: &Path, command: &ConvertCommand) -> Result<bool, InstanceError> {
    match *command {
        ConvertCommand::SnapshotStandby { json } => to_snapshot(directory, json)?,
        ConvertCommand::PhysicalStandby { yes: true, json } => to_physical(directory, json)?,
        ConvertCommand::PhysicalStandby { yes: false, .. } => {
            plan(directory)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes it a snapshot standby, and prints what was done.
///
/// # Errors
/// Those of the instance.
pub fn to_snapshot(directory: &Path, json: bool) -> Result<(), InstanceError> {
    let done: ConvertedStandby = ask_for(directory, &Request::Convert { snapshot: true })?;
    if json {
        println!("{:#}", json!(done));
    } else {
        println!(
            "this instance is a snapshot standby; databases that can be written to: {}, {} copied",
            done.databases,
            bytes(Some(done.copied_bytes))
        );
    }
    Ok(())
}

/// Makes it a physical standby, and prints what was done.
///
/// # Errors
/// Those of the instance.
pub fn to_physical(directory: &Path, json: bool) -> Result<(), InstanceError> {
    let done: ConvertedStandby = ask_for(directory, &Request::Convert { snapshot: false })?;
    if json {
        println!("{:#}", json!(done));
    } else {
        println!("this instance is a physical standby; redo to apply: {}", bytes(Some(done.to_apply)));
    }
    Ok(())
}

fn plan(directory: &Path) -> Result<(), InstanceError> {
    let status: Status = ask_for(directory, &Request::Status)?;
    let snapshot = status.standby.as_ref().and_then(|standby| standby.snapshot.as_ref());
    let Some(snapshot) = snapshot else {
        return Err(InstanceError::refused(
            "this instance is no snapshot standby",
            "`standfast status` shows what it is",
        ));
    };
    println!("what applications have written to its databases is discarded");
    let lag = status.standby.as_ref().and_then(|standby| standby.apply_lag_bytes);
    let takes = snapshot.apply_s.map_or(String::new(), |left| format!(", in about {}", seconds(left)));
    println!("redo that has arrived is applied: {}{takes}", bytes(lag));
    eprintln!("nothing was done; --yes does it");
    Ok(())
}
