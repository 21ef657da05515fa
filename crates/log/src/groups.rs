//! Log groups, their members, and the contents of each.

use standfast_format::{BlockHeader, LogFileHeader};
use standfast_io::LogFile;
use standfast_types::Scn;
use std::path::PathBuf;
use std::sync::Arc;

/// State of a group, as in V$LOG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Never written, or its header is void.
    Unused,
    Current,
    /// Full; its redo is still needed for recovery.
    Active,
    /// Full and not needed for recovery.
    Inactive,
}

/// A living member: one file of a group, read and written.
#[derive(Clone)]
pub(crate) struct Member {
    pub file: Arc<dyn LogFile>,
    pub path: PathBuf,
}

/// A message to the operator about a member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberNotice {
    /// The member is neither read nor written; the group continues with the others.
    Dropped {
        path: PathBuf,
        cause: String,
        /// A member with which the group continues.
        living: PathBuf,
    },
    /// The member did not hold what its group holds, and was repaired.
    Repaired {
        path: PathBuf,
        /// Number of blocks written to it.
        blocks: u32,
        /// Some of these blocks lie before correct ones: the file was damaged, not only behind.
        damaged: bool,
    },
}

pub(crate) struct Group {
    pub members: Vec<Member>,
    pub dropped: Vec<PathBuf>,
    pub header: Option<LogFileHeader>,
    /// SCN after the last byte; known once the group is full.
    pub next_scn: Option<Scn>,
    pub archived: bool,
    /// Truncation blocks in the group, in order of writing; `None` until they have been read since the log was opened.
    pub cuts: Option<Vec<Cut>>,
}

/// A truncation block: from this block on the stream continues at an earlier position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub block: u32,
    pub at: Scn,
}

impl Cut {
    pub fn of(block: &BlockHeader) -> Option<Cut> {
        block.cut.then_some(Cut { block: block.number, at: block.position })
    }
}

impl Group {
    /// An empty slot, for a number without a group.
    pub fn absent() -> Group {
        Group {
            members: Vec::new(),
            dropped: Vec::new(),
            header: None,
            next_scn: None,
            archived: false,
            cuts: None,
        }
    }
}

/// A group as seen from outside this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Number of the group, counted from 1.
    pub group: usize,
    pub state: GroupState,
    /// Header of the log that the group holds; `None` when it holds none.
    pub header: Option<LogFileHeader>,
    /// SCN after the last byte; `None` unless the group is full.
    pub next_scn: Option<Scn>,
    pub archived: bool,
    /// Bytes of each of its files.
    pub bytes: u64,
    pub members: Vec<PathBuf>,
    /// Members that are neither read nor written: lost since the start, or missing at the start.
    pub dropped: Vec<PathBuf>,
}
