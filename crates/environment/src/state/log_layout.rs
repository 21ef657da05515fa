//! Groups and members of the redo logs as recorded in the control file, once they have been changed.

use crate::config::error::InstanceError;
use crate::config::settings::Config;
use crate::state::control::{Control, RedoLayout};
use crate::state::paths::Paths;
use standfast_format::LogKind;
use standfast_log::{Layout, LogConfig};
use std::path::PathBuf;

/// Returns the layout settings of `config`.
pub fn configured(config: &Config) -> (usize, u64, Vec<PathBuf>) {
    (config.redo.groups, config.redo.group_bytes, config.redo.members.clone())
}

/// Returns `layout` as the control file records it: paths within the instance directory are relative to it.
pub fn recorded(config: &Config, paths: &Paths, layout: &Layout) -> RedoLayout {
    let relative = |path: &PathBuf| path.strip_prefix(&paths.directory).unwrap_or(path).to_owned();
    RedoLayout {
        groups: layout.groups.clone(),
        members: layout.members.iter().map(|(letter, path)| (*letter, relative(path))).collect(),
        configured: configured(config),
    }
}

/// Returns the log configuration of an instance from its settings and its control file.
pub fn log_config(config: &Config, paths: &Paths, control: &Control, kind: LogKind) -> LogConfig {
    let redo = &config.redo;
    // A standby has one group more than its primary, so that a slow archiver does not stop the receiver.
    let unnamed_groups = usize::from(kind == LogKind::Standby);
    let absolute = |path: &PathBuf| paths.directory.join(path);
    let mut log = LogConfig {
        kind,
        member_directories: paths.members.clone(),
        groups: redo.groups + unnamed_groups,
        unnamed_groups,
        group_bytes: redo.group_bytes,
        block_bytes: redo.block_bytes,
        archive_directory: paths.archive.clone(),
        distrusted: control.stale_members.iter().map(absolute).collect(),
        layout: None,
        family: Some(control.family),
    };
    let members = |layout: &RedoLayout| {
        layout.members.iter().map(|(letter, directory)| (*letter, absolute(directory))).collect()
    };
    let layouts = &control.redo_layouts;
    log.layout = match (layouts.of(kind), &layouts.standby) {
        (Some(layout), _) => Some(Layout { groups: layout.groups.clone(), members: members(layout) }),
        // A standby that becomes primary keeps its member directories.
        (None, Some(standby)) => Some(Layout { members: members(standby), ..log.layout() }),
        (None, None) => None,
    };
    log
}

/// Refuses layout settings that were changed although they no longer have any effect.
///
/// # Errors
/// `Refused`.
pub fn check_configuration(config: &Config, control: &Control) -> Result<(), InstanceError> {
    let layouts = &control.redo_layouts;
    let began_with =
        [&layouts.online, &layouts.standby].into_iter().flatten().map(|layout| &layout.configured);
    match began_with.into_iter().find(|began_with| **began_with != configured(config)) {
        None => Ok(()),
        Some((groups, bytes, members)) => Err(InstanceError::refused(
            "redo.groups, redo.group_bytes or redo.members was changed, but groups and members of this log are those of \
             the control file",
            format!(
                "set groups = {groups}, group_bytes = {bytes} and members = {members:?} again, and use `standfast log group` \
                 and `standfast log member` while the instance runs"
            ),
        )),
    }
}
