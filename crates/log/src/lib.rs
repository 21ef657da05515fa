//! The redo log of an instance: the log buffer, the log writer, the online (or standby) log groups, archiving, reading
//! by position, and recovery.
//!
//! `docs/format.md` draws files and blocks. This crate does not decide when to write, switch or archive; the instance
//! does.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod alter;
mod archive;
mod archived_logs;
mod blocks;
mod buffer;
mod catalog;
mod config;
mod error;
mod groups;
mod header;
mod hole;
mod keeper;
mod layout;
mod log_writer;
mod members;
mod open;
mod reader;
mod records;
mod recovery;
mod redo_log;
mod repair;
mod unreachable;

pub use alter::{NewGroup, NewMember};
pub use archive::{archive_group, keep_beginning, remove_archived};
pub use archived_logs::{ArchivedLog, archived_logs};
pub use buffer::{LogBuffer, RedoChunk};
pub use config::LogConfig;
pub use error::LogError;
pub use groups::{GroupState, GroupView, MemberNotice};
pub use header::{LogIdentity, LogSwitch};
pub use hole::{Chain, Hole, Verified, verify_archived};
pub use keeper::MemberKeeper;
pub use layout::{Layout, Refusal};
pub use log_writer::{LogWriter, MemberPlace, WriteCounts};
pub use records::RecordReader;
pub use recovery::Recovered;
pub use redo_log::{RedoLog, SwitchBlocked};
pub use unreachable::LostRedo;
