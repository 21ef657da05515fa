//! Members of the redo log that are lost: who is told, and how it is remembered that they lack redo.

use crate::environment::Environment;
use crate::error::InstanceError;
use standfast_log::{MemberKeeper, MemberNotice, RedoLog};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Says what opening `log` found out about its members, and remembers those that will lack what is written from now
/// on; from now on also those that fail later. Nothing may have been written to `log` yet.
///
/// # Errors
/// When it cannot be remembered; then nothing may be written.
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

/// As the control file has it.
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
            format!(
                "REDO LOG MEMBER LOST: {path} is not used, its group goes on with {living} alone: {cause} | hint: mend the \
                 device or the directory, then restart; a file that is gone is made by copying {living} to {path} while \
                 the instance is stopped, and a member that is not wanted any more is removed from redo.members"
            )
        }
        MemberNotice::Mended { path, blocks, damaged: true } => format!(
            "redo log member {} was damaged: {blocks} blocks were taken from another member | hint: nothing is lost; look \
             after its device",
            path.display()
        ),
        MemberNotice::Mended { path, blocks, damaged: false } => {
            format!(
                "redo log member {} was behind: {blocks} blocks were taken from another member",
                path.display()
            )
        }
    }
}
