//! The groups of a log, their sizes, and the directories of their members.

use standfast_format::LogKind;
use standfast_types::Hint;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Groups and members of a redo log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of each file of a group, by group number, from 1.
    pub groups: BTreeMap<usize, u64>,
    /// Directory of the members with this letter; each group has a file in each directory.
    pub members: BTreeMap<char, PathBuf>,
}

/// A change that is refused in the present state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refusal {
    pub what: String,
    pub hint: String,
}

impl Hint for Refusal {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(self.hint.as_str().into())
    }
}

impl Refusal {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal { what: what.into(), hint: hint.into() }
    }
}

impl Layout {
    /// Number of slots: groups are kept by number, and an unused number leaves its slot empty.
    pub fn places(&self) -> usize {
        self.groups.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Bytes of each file of the group at this index, from 0; `None` when there is no such group.
    pub fn bytes_at(&self, index: usize) -> Option<u64> {
        self.groups.get(&(index + 1)).copied()
    }

    /// Path of the group's file of the member with this letter.
    pub fn path(&self, kind: LogKind, index: usize, letter: char) -> Option<PathBuf> {
        Some(self.members.get(&letter)?.join(file_name(kind, index, letter)))
    }

    /// Files of a group, one per member.
    pub fn paths_at(&self, kind: LogKind, index: usize) -> Vec<PathBuf> {
        let place = |(letter, directory): (&char, &PathBuf)| directory.join(file_name(kind, index, *letter));
        self.members.iter().map(place).collect()
    }

    /// Letter of the members in this directory.
    pub fn letter_of(&self, directory: &Path) -> Option<char> {
        self.members.iter().find(|(_, other)| *other == directory).map(|(letter, _)| *letter)
    }

    /// Lowest number that no group has.
    pub fn free_number(&self) -> usize {
        (1..).find(|number| !self.groups.contains_key(number)).unwrap_or(usize::MAX)
    }
}

pub(crate) fn file_name(kind: LogKind, index: usize, letter: char) -> String {
    format!("{}_{}{letter}.log", file_prefix(kind), index + 1)
}

pub(crate) fn file_prefix(kind: LogKind) -> &'static str {
    if kind == LogKind::Online { "online" } else { "standby" }
}
