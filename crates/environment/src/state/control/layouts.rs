//! Groups and members of the redo logs, once they have been changed.

use serde::{Deserialize, Serialize};
use standfast_format::LogKind;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Layouts of both logs; `None` for a log that was never changed: the configuration applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedoLayouts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<RedoLayout>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<RedoLayout>,
}

/// Groups and members of one log, and the settings that applied when they were first changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedoLayout {
    /// Bytes of each file of a group, by group number.
    pub groups: BTreeMap<usize, u64>,
    /// Member directories by letter, relative if inside the instance directory.
    pub members: BTreeMap<char, PathBuf>,
    /// `redo.groups`, `redo.group_bytes` and `redo.members` at the time of the change. They no longer have any effect,
    /// and the instance reports a change of them.
    pub configured: (usize, u64, Vec<PathBuf>),
}

impl RedoLayouts {
    pub fn is_empty(&self) -> bool {
        *self == RedoLayouts::default()
    }

    /// Returns the recorded layout of a log.
    pub fn of(&self, kind: LogKind) -> Option<&RedoLayout> {
        match kind {
            LogKind::Standby => self.standby.as_ref(),
            _ => self.online.as_ref(),
        }
    }

    pub fn set(&mut self, kind: LogKind, layout: RedoLayout) {
        match kind {
            LogKind::Standby => self.standby = Some(layout),
            _ => self.online = Some(layout),
        }
    }
}
