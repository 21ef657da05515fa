//! The commit path: from dirty databases to released commits.

pub mod archive_lag;
pub mod baseline;
pub mod database;
pub mod foreign_commits;
pub mod foreign_processes;
pub mod primary;
pub mod release_queue;
pub mod whole_file;
