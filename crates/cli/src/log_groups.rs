//! `standfast log group` and `standfast log member`.

use crate::args::{GroupCommand, MemberCommand};
use crate::show;
use serde_json::Value;
use standfast_environment::InstanceError;
use standfast_instance::role::log_changes::LogChange;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use std::path::Path;

pub fn group(directory: &Path, command: GroupCommand) -> Result<(), InstanceError> {
    let change = match command {
        GroupCommand::List { json } => {
            let status = control_client::ask(directory, &Request::Status)?;
            let groups = &status["log"]["groups"];
            if json {
                println!("{groups:#}");
            } else {
                show::groups(groups);
            }
            return Ok(());
        }
        GroupCommand::Add { bytes } => LogChange::AddGroup { bytes },
        GroupCommand::Drop { group } => LogChange::DropGroup { group },
        GroupCommand::Resize { group, bytes } => LogChange::ResizeGroup { group, bytes },
    };
    let done = control_client::ask(directory, &Request::ChangeLog { change })?;
    if !done["dropped"].is_null() {
        println!("log group {} dropped", done["dropped"]);
    }
    if !done["added"].is_null() {
        println!("log group {} added, {} bytes", done["added"], done["bytes"]);
    }
    name_left_behind(&done);
    Ok(())
}

pub fn member(directory: &Path, command: MemberCommand) -> Result<(), InstanceError> {
    let change = match command {
        MemberCommand::Add { place } => LogChange::AddMember { directory: place },
        MemberCommand::Drop { place } => LogChange::DropMember { directory: place },
    };
    let done = control_client::ask(directory, &Request::ChangeLog { change })?;
    for (key, word) in [("added", "added"), ("dropped", "dropped")] {
        if let Some(place) = done[key].as_str() {
            println!("redo log member {place} {word}");
        }
    }
    name_left_behind(&done);
    Ok(())
}

fn name_left_behind(done: &Value) {
    for path in done["left_behind"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        eprintln!("{path} is not used any more and could not be removed");
    }
}
