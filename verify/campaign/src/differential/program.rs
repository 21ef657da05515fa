//! A program of statements on several connections, and the outcome of each step.

use serde::{Deserialize, Serialize};

pub const CONNECTIONS: usize = 4;
pub const CURSORS: usize = 4;
pub const BLOBS: usize = 2;

/// How the shim is loaded into the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    Preload,
    Extension,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    Write,
    Read,
    /// Reading and writing, with a cache shared with other connections of this kind.
    SharedCache,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    Number(i64),
    /// A blob of pseudorandom bytes, which a seed stands for.
    Bytes {
        seed: u64,
        length: usize,
    },
}

/// One step of a program. Numbers are those of connections, cursors and blobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Opens a connection, after closing one that is open under its number.
    Open {
        connection: usize,
        file: String,
        access: Access,
        timeout_ms: u32,
    },
    Close {
        connection: usize,
    },
    Timeout {
        connection: usize,
        ms: u32,
    },
    Run {
        connection: usize,
        sql: String,
        /// Parameter values, from the first parameter on in each statement.
        values: Vec<Value>,
    },
    Prepare {
        connection: usize,
        /// Its number; a cursor that is open under it is closed first.
        cursor: usize,
        sql: String,
    },
    Next {
        cursor: usize,
        /// At most this many rows are read.
        rows: u32,
    },
    Finalize {
        cursor: usize,
    },
    /// Opens column `c` of a row of a table for incremental I/O.
    BlobOpen {
        connection: usize,
        /// Its number; a blob that is open under it is closed first.
        blob: usize,
        schema: String,
        table: String,
        row: i64,
        /// Opens it for writing as well.
        write: bool,
    },
    /// Moves an open blob to another row.
    BlobReopen {
        blob: usize,
        row: i64,
    },
    /// Reads a part of a blob.
    BlobRead {
        blob: usize,
        /// Offset, in thousandths of its length.
        at: u32,
        length: u32,
    },
    /// Overwrites a part of a blob.
    BlobWrite {
        blob: usize,
        /// Offset, in thousandths of its length.
        at: u32,
        length: u32,
        /// The bytes written are pseudorandom, drawn from this.
        seed: u64,
    },
    BlobClose {
        blob: usize,
    },
    Checkpoint {
        connection: usize,
        /// One attached database; `None` is all of them.
        schema: Option<String>,
        /// 0 passive, 1 full, 2 restart, 3 truncate.
        mode: u8,
        /// With `PRAGMA wal_checkpoint`, else with the function. The first row of the outcome names the files
        /// concerned.
        pragma: bool,
    },
    /// Reads as of a snapshot that is taken on one connection and opened on another, after a third connection has
    /// written.
    Snapshot {
        /// The connection on which the snapshot is taken.
        taken: usize,
        /// Its read transaction stays open until the other connection has read.
        kept: bool,
        /// The connection that writes in between.
        writer: usize,
        write: String,
        /// The connection on which the snapshot is opened.
        opened: usize,
        read: String,
        /// Name of the database, the same on both connections.
        schema: String,
    },
    /// Copies a database with the backup API.
    Backup {
        /// Connection whose main database is copied.
        from: usize,
        /// Connection whose main database is overwritten; a number without a connection is a database in memory.
        to: usize,
        /// Pages copied per step; a negative number copies all.
        pages: i32,
    },
    Flush {
        connection: usize,
    },
    /// A statement that Standfast refuses and stock SQLite does not. It runs with the shim only, and must change
    /// nothing.
    Refused {
        connection: usize,
        sql: String,
    },
    /// A transaction over a protected database and two others with rollback journals, on a connection of its own. It
    /// runs with the shim only, which refuses it, and must change nothing.
    RefusedTogether {
        file: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub code: i32,
    /// SQLite's message; empty when the step succeeded.
    pub message: String,
    pub rows: Vec<String>,
    /// Change counts and transaction state of the connection afterwards.
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub seed: u64,
    pub door: Door,
    /// Protected databases that it uses, each with the value of `PRAGMA auto_vacuum` at the start.
    pub protected: Vec<(String, u8)>,
    pub steps: Vec<Step>,
}

impl Program {
    /// Returns the steps as text, one a line, for reports.
    pub fn listing(&self) -> String {
        let lines = self.steps.iter().enumerate().map(|(number, step)| format!("  {number:3} {step:?}\n"));
        format!("door {:?}, protected {:?}\n", self.door, self.protected) + &lines.collect::<String>()
    }
}
