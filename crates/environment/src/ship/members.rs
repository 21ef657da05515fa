//! Lost members of the redo log: reports them in the alert log and records in the control file that they lack redo.

use crate::config::error::InstanceError;
use crate::context::environment::Environment;
use standfast_log::{MemberKeeper, MemberNotice, RedoLog};
use standfast_types::hint;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reports what opening `log` found about its members, and records those that will lack the redo written from now on.
/// From now on, members that fail later are recorded too. Call it before anything is written to `log`.
///
/// # Errors
/// When the control file cannot be written; then nothing may be written to `log`.
pub fn note_members(environment: &Arc<Environment>, log: &RedoLog) -> Result<(), InstanceError> {
    for notice in log.notices() {
        environment.alert.say(alert(notice));
    }
    let relative = |path: PathBuf| relative(environment, &path);
    let dropped: Vec<PathBuf> = log.dropped_members().into_iter().map(relative).collect();
    let members: Vec<PathBuf> = log.members().into_iter().map(relative).collect();
    environment.update_control(|control| {
        control.stale_members.retain(|path| !members.contains(path));
        control.stale_members.extend(dropped);
    })?;
    log.keep_members(Arc::new(Keeper { environment: environment.clone() }));
    Ok(())
}

/// Path as the control file stores it.
fn relative(environment: &Environment, path: &Path) -> PathBuf {
    path.strip_prefix(&environment.paths.directory).unwrap_or(path).to_owned()
}

struct Keeper {
    environment: Arc<Environment>,
}

impl MemberKeeper for Keeper {
    fn lost(&self, members: &[MemberNotice]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.environment.update_control(|control| {
            for notice in members {
                let MemberNotice::Dropped { path, .. } = notice else { continue };
                let path = relative(&self.environment, path);
                if !control.stale_members.contains(&path) {
                    control.stale_members.push(path);
                }
            }
        })?;
        members.iter().for_each(|notice| self.environment.alert.say(alert(notice)));
        Ok(())
    }
}

fn alert(notice: &MemberNotice) -> String {
    match notice {
        MemberNotice::Dropped { path, cause, living } => {
            let (path, living) = (path.display(), living.display());
            hint::in_one_line(
                format_args!(
                    "REDO LOG MEMBER LOST: {path} is not used, its group continues with {living} alone: {cause}"
                ),
                Some(&format!(
                    "fix the device or the directory, then `standfast log member add` brings it back while the instance \
                     runs, or a restart (a file that is gone is then made by copying {living} to {path} while the instance \
                     is stopped); `standfast log member drop` gives it up"
                )),
            )
        }
        MemberNotice::Repaired { path, blocks, damaged: true } => hint::in_one_line(
            format_args!(
                "redo log member {} was damaged: {blocks} blocks were taken from another member",
                path.display()
            ),
            Some("nothing is lost; look after its device"),
        ),
        MemberNotice::Repaired { path, blocks, damaged: false } => {
            format!(
                "redo log member {} was behind: {blocks} blocks were taken from another member",
                path.display()
            )
        }
    }
}
