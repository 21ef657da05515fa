//! `standfast log group` and `standfast log member`.

use crate::args::{GroupCommand, MemberCommand};
use crate::show;
use serde_json::json;
use standfast_documents::Status;
use standfast_environment::InstanceError;
use standfast_instance::role::log_changes::{LogChange, LogChanged};
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use std::path::Path;

pub fn group(directory: &Path, command: GroupCommand) -> Result<(), InstanceError> {
    let change = match command {
        GroupCommand::List { json } => {
            let status: Status = control_client::ask_for(directory, &Request::Status)?;
            if json {
                println!("{:#}", json!(status.groups()));
            } else {
                show::groups(status.groups());
            }
            return Ok(());
        }
        GroupCommand::Add { bytes } => LogChange::AddGroup { bytes },
        GroupCommand::Drop { group } => LogChange::DropGroup { group },
        GroupCommand::Resize { group, bytes } => LogChange::ResizeGroup { group, bytes },
    };
    change_log(directory, change)
}

pub fn member(directory: &Path, command: MemberCommand) -> Result<(), InstanceError> {
    let change = match command {
        MemberCommand::Add { place } => LogChange::AddMember { directory: place },
        MemberCommand::Drop { place } => LogChange::DropMember { directory: place },
    };
    change_log(directory, change)
}

/// Has the instance change its log; prints what it has done.
fn change_log(directory: &Path, change: LogChange) -> Result<(), InstanceError> {
    let left_behind = match control_client::ask_for(directory, &Request::ChangeLog { change })? {
        LogChanged::Group { added, bytes, dropped, left_behind } => {
            if let Some(group) = dropped {
                println!("log group {group} dropped");
            }
            if let (Some(group), Some(bytes)) = (added, bytes) {
                println!("log group {group} added, {bytes} bytes");
            }
            left_behind
        }
        LogChanged::Member { added, dropped, left_behind, .. } => {
            for (place, word) in [(added, "added"), (dropped, "dropped")] {
                if let Some(place) = place {
                    println!("redo log member {} {word}", place.display());
                }
            }
            left_behind
        }
    };
    for path in left_behind {
        eprintln!("{} is not used any more and could not be removed", path.display());
    }
    Ok(())
}
