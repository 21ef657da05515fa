//! Changes groups and members of the redo log of a running instance: the online redo log of a primary, the standby redo
//! log of a standby.
//!
//! Files are created and filled while the log is in use; the last step, which needs the log to stand still, runs on the
//! thread that writes the log.

use crate::role::running::{Mode, Running};
use serde::{Deserialize, Serialize};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::log_layout::recorded;
use standfast_environment::state::modes::PRIVATE_DIRECTORY;
use standfast_log::{Layout, LogError, LogWriter, NewGroup, RedoLog};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Smallest size of a group file.
const GROUP_BYTES_MIN: u64 = 8 << 20;
const GROUPS_MAX: usize = 64;
/// When a new member lacks less than this, the thread that writes the log copies the rest.
const LAST_BYTES: u64 = 1 << 20;
/// Limit of copy passes over a log that grows faster than it is copied.
const PASSES_MAX: usize = 16;

/// A change of the log that was carried out. Numbers name groups, directories name members.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LogChanged {
    Group {
        added: Option<usize>,
        /// Bytes of each file of the added group.
        bytes: Option<u64>,
        dropped: Option<usize>,
        /// Files that are not used any more and could not be removed.
        left_behind: Vec<PathBuf>,
    },
    Member {
        added: Option<PathBuf>,
        /// The files of the added member.
        files: Vec<PathBuf>,
        dropped: Option<PathBuf>,
        /// Files that are not used any more and could not be removed.
        left_behind: Vec<PathBuf>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum LogChange {
    AddGroup {
        /// Bytes of each file; default: the size of the largest group.
        bytes: Option<u64>,
    },
    DropGroup {
        group: usize,
    },
    /// Replaces a group by a new one.
    ResizeGroup {
        group: usize,
        /// Bytes of each file of the new group.
        bytes: u64,
    },
    /// Adds a file in this directory to each group that lacks one there.
    AddMember {
        /// Absolute, or relative to the instance directory.
        directory: PathBuf,
    },
    /// Removes the files in this directory from all groups.
    DropMember {
        /// As given when it was added.
        directory: PathBuf,
    },
}

type Work = Box<dyn FnOnce(&mut LogWriter) -> Result<Vec<PathBuf>, InstanceError> + Send>;
/// Runs work on the thread that writes the log, or while that thread is not writing.
pub type OnWriter<'a> = &'a dyn Fn(Work) -> Result<Vec<PathBuf>, InstanceError>;

impl Running {
    /// Changes groups or members of the log in use.
    ///
    /// # Errors
    /// `Refused` with what to do; when a file cannot be created.
    pub fn change_log(&self, change: LogChange) -> Result<LogChanged, InstanceError> {
        if let LogChange::AddGroup { bytes: Some(bytes) } | LogChange::ResizeGroup { bytes, .. } = &change
            && self.primary().is_some()
        {
            // A standby that does not answer is not checked; once it is back, it reports why it is refused.
            standfast_standby::sizing::check_standbys(
                *bytes,
                &crate::role::standby_observations::smallest_standby_logs(self),
            )?;
        }
        let _one = self.one_command();
        if let LogChange::AddMember { directory } = &change {
            prepare_directory(&self.environment, directory)?;
        }
        if let Some(primary) = self.primary() {
            let call = |work: Work| primary.threads.call_writer(work);
            return change_log(&self.environment, primary.source.redo_log(), &call, change);
        }
        let received = match &*self.mode() {
            Mode::Standby(standby) => standby.received().clone(),
            _ => {
                let hint = "look at `standfast status`, and try again when it is open";
                return Err(InstanceError::refused("the instance is neither primary nor standby now", hint));
            }
        };
        let locked = || received.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let log = locked().shared().log.clone();
        change_log(&self.environment, &log, &|work: Work| work(locked().writer()), change)
    }
}

/// Implements [`Running::change_log`].
///
/// # Errors
/// See there.
pub fn change_log(
    environment: &Arc<Environment>,
    log: &Arc<RedoLog>,
    on_writer: OnWriter,
    change: LogChange,
) -> Result<LogChanged, InstanceError> {
    let site = Site { environment, log, on_writer };
    // From now on the control file, not the files on disk, says what belongs to the log: files that an interrupted
    // change leaves behind do not count.
    if environment.control().redo_layouts.of(log.config().kind).is_none() {
        site.remember()(&log.layout(), &[])?;
    }
    match change {
        LogChange::AddGroup { bytes } => site.add_group(bytes),
        LogChange::DropGroup { group } => {
            let left = site.change_groups(Some(group), None)?;
            environment.alert.say(format!("log group {group} dropped"));
            Ok(LogChanged::Group { added: None, bytes: None, dropped: Some(group), left_behind: left })
        }
        LogChange::ResizeGroup { group, bytes } => site.resize_group(group, bytes),
        LogChange::AddMember { directory } => site.add_member(&environment.paths.directory.join(directory)),
        LogChange::DropMember { directory } => site.drop_member(&environment.paths.directory.join(directory)),
    }
}

struct Site<'a> {
    environment: &'a Arc<Environment>,
    log: &'a Arc<RedoLog>,
    on_writer: OnWriter<'a>,
}

impl Site<'_> {
    fn add_group(&self, bytes: Option<u64>) -> Result<LogChanged, InstanceError> {
        let layout = self.log.layout();
        let bytes = bytes.or(layout.groups.values().max().copied()).unwrap_or(GROUP_BYTES_MIN);
        if layout.groups.len() >= GROUPS_MAX {
            return Err(InstanceError::refused("a redo log has at most 64 groups", "drop one first"));
        }
        let new = self.make_group(bytes)?;
        let number = new.number();
        self.change_groups(None, Some(new))?;
        self.environment.alert.say(format!("log group {number} added, {bytes} bytes"));
        Ok(LogChanged::Group {
            added: Some(number),
            bytes: Some(bytes),
            dropped: None,
            left_behind: Vec::new(),
        })
    }

    fn resize_group(&self, group: usize, bytes: u64) -> Result<LogChanged, InstanceError> {
        let new = self.make_group(bytes)?;
        let number = new.number();
        let left = self.change_groups(Some(group), Some(new))?;
        let reported = format!("log group {group} dropped for group {number} of {bytes} bytes");
        self.environment.alert.say(reported);
        Ok(LogChanged::Group {
            added: Some(number),
            bytes: Some(bytes),
            dropped: Some(group),
            left_behind: left,
        })
    }

    fn make_group(&self, bytes: u64) -> Result<NewGroup, InstanceError> {
        if !bytes.is_multiple_of(4096) || bytes < self.bytes_min() {
            let what = format!("a log group of {bytes} bytes");
            return Err(InstanceError::refused(what, "at least 8 MiB (8388608), a multiple of 4096"));
        }
        Ok(self.log.make_group(bytes)?)
    }

    fn bytes_min(&self) -> u64 {
        self.log.config().group_bytes.min(GROUP_BYTES_MIN)
    }

    /// Returns files that could not be removed.
    fn change_groups(
        &self,
        drop: Option<usize>,
        add: Option<NewGroup>,
    ) -> Result<Vec<PathBuf>, InstanceError> {
        let made = add.as_ref().map(NewGroup::files).unwrap_or_default();
        let remember = self.remember();
        let work: Work =
            Box::new(move |writer| writer.change_groups(drop, add, |layout, files| remember(layout, files)));
        match (self.on_writer)(work) {
            Ok(unused) => Ok(self.remove(unused)),
            Err(error) => {
                // Only a refusal is sure to have changed nothing; after any other error the new control file may be
                // durable.
                if let InstanceError::Refused { .. } = error {
                    self.remove(made);
                }
                Err(error)
            }
        }
    }

    fn add_member(&self, directory: &Path) -> Result<LogChanged, InstanceError> {
        let mut new = self.log.make_member::<InstanceError>(directory)?;
        let files = new.files();
        for _ in 0..PASSES_MAX {
            if self.log.fill(&mut new)? <= LAST_BYTES {
                break;
            }
        }
        let remember = self.remember();
        let work: Work = Box::new(move |writer| {
            let done = writer.admit_member(new, |layout, files| remember(layout, files));
            done.map(|()| Vec::<PathBuf>::new())
        });
        (self.on_writer)(work)?;
        let text = format!("redo log member {} added: {} files", directory.display(), files.len());
        self.environment.alert.say(text);
        Ok(LogChanged::Member {
            added: Some(directory.to_owned()),
            files,
            dropped: None,
            left_behind: Vec::new(),
        })
    }

    fn drop_member(&self, directory: &Path) -> Result<LogChanged, InstanceError> {
        let (remember, place) = (self.remember(), directory.to_owned());
        let work: Work =
            Box::new(move |writer| writer.drop_member(&place, |layout, files| remember(layout, files)));
        let left = self.remove((self.on_writer)(work)?);
        self.environment.alert.say(format!("redo log member {} dropped", directory.display()));
        Ok(LogChanged::Member {
            added: None,
            files: Vec::new(),
            dropped: Some(directory.to_owned()),
            left_behind: left,
        })
    }

    /// Returns a closure that makes a layout durable in the control file and clears the given files from the stale
    /// members.
    fn remember(&self) -> impl FnOnce(&Layout, &[PathBuf]) -> Result<(), InstanceError> + Send + use<> {
        let environment = self.environment.clone();
        let kind = self.log.config().kind;
        move |layout: &Layout, not_stale: &[PathBuf]| {
            let directory = &environment.paths.directory;
            let relative = |path: &PathBuf| path.strip_prefix(directory).unwrap_or(path).to_owned();
            let layout = recorded(&environment.config, &environment.paths, layout);
            let not_stale: Vec<PathBuf> = not_stale.iter().map(relative).collect();
            environment.update_control(|control| {
                control.redo_layouts.set(kind, layout);
                control.stale_members.retain(|path| !not_stale.contains(path));
            })
        }
    }

    /// Removes unused files. Returns, and writes to the alert log, those that cannot be removed or belong to another
    /// instance.
    fn remove(&self, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let (disk, family) = (self.environment.disk.as_ref(), self.environment.control().family);
        let is_foreign =
            |path: &PathBuf| matches!(RedoLog::owner(disk, path), Ok(Some(owner)) if owner != family);
        let stays = |path: &PathBuf| is_foreign(path) || disk.remove(path).is_err();
        let left: Vec<PathBuf> = files.into_iter().filter(stays).collect();
        for path in &left {
            let path = path.display();
            self.environment.alert.say(format!("{path} is not used any more and was not removed"));
        }
        left
    }
}

/// Creates the directory of a new member, and refuses one that is unfit for it. Log files of this instance in it are
/// leftovers of its own and do not matter.
///
/// # Errors
/// `Refused`; when it cannot be created.
pub fn prepare_directory(environment: &Environment, directory: &Path) -> Result<(), InstanceError> {
    let directory = environment.paths.directory.join(directory);
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(PRIVATE_DIRECTORY).create(&directory);
    made.map_err(InstanceError::io("create the directory", &directory))?;
    standfast_environment::state::file_system::check(&directory, "members of the redo log")?;
    let family = environment.control().family;
    let found = environment.disk.list(&directory).map_err(InstanceError::io("list", &directory))?;
    for path in found.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "log"))
    {
        match RedoLog::owner(environment.disk.as_ref(), &path) {
            Ok(Some(owner)) if owner != family => {
                return Err(InstanceError::refused(
                    format!("{} is of another instance", path.display()),
                    "name a directory of its own for the member",
                ));
            }
            Ok(_) | Err(LogError::Damaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
