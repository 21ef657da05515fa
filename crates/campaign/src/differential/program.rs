//! A program of statements on several connections, and what becomes of each.

use serde::{Deserialize, Serialize};

/// Connections of a program.
pub const CONNECTIONS: usize = 4;
/// Statements that stay open.
pub const CURSORS: usize = 4;
/// Open blobs.
pub const BLOBS: usize = 2;

/// How the shim gets into the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    /// `libstandfast_preload.so` in `LD_PRELOAD`.
    Preload,
    /// `libstandfast.so`, loaded as an extension.
    Extension,
}

/// How a connection is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// For reading and writing.
    Write,
    /// `SQLITE_OPEN_READONLY`.
    Read,
    /// For reading and writing, with a cache that is shared with others of the same kind.
    SharedCache,
}

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// A number.
    Number(i64),
    /// So many bytes that are drawn from the seed.
    Bytes {
        /// What they are drawn from.
        seed: u64,
        /// How many.
        length: usize,
    },
}

/// One step of a program. Numbers are those of connections, cursors and blobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Opens a connection; one that is open under this number is closed before.
    Open {
        /// Which.
        connection: usize,
        /// The file.
        file: String,
        /// How.
        access: Access,
        /// Busy timeout, milliseconds.
        timeout_ms: u32,
    },
    /// Closes a connection.
    Close {
        /// Which.
        connection: usize,
    },
    /// Sets the busy timeout.
    Timeout {
        /// Of which connection.
        connection: usize,
        /// Milliseconds.
        ms: u32,
    },
    /// Runs statements to their ends.
    Run {
        /// On which connection.
        connection: usize,
        /// The statements.
        sql: String,
        /// Values of their parameters, from the first one on in each statement.
        values: Vec<Value>,
    },
    /// Opens a statement that stays open.
    Prepare {
        /// On which connection.
        connection: usize,
        /// Under which number; one that is open there is closed before.
        cursor: usize,
        /// The statement.
        sql: String,
    },
    /// Reads some rows of an open statement.
    Next {
        /// Which.
        cursor: usize,
        /// How many at most.
        rows: u32,
    },
    /// Closes a statement.
    Finalize {
        /// Which.
        cursor: usize,
    },
    /// Opens column `c` of a row of a table for incremental I/O.
    BlobOpen {
        /// On which connection.
        connection: usize,
        /// Under which number; one that is open there is closed before.
        blob: usize,
        /// Name of the attached database.
        schema: String,
        /// Name of the table.
        table: String,
        /// The row.
        row: i64,
        /// For writing, too.
        write: bool,
    },
    /// Moves an open blob to another row.
    BlobReopen {
        /// Which.
        blob: usize,
        /// The row.
        row: i64,
    },
    /// Reads a part of a blob.
    BlobRead {
        /// Which.
        blob: usize,
        /// Where, in thousandths of its length.
        at: u32,
        /// How many bytes.
        length: u32,
    },
    /// Overwrites a part of a blob.
    BlobWrite {
        /// Which.
        blob: usize,
        /// Where, in thousandths of its length.
        at: u32,
        /// How many bytes.
        length: u32,
        /// What they are drawn from.
        seed: u64,
    },
    /// Closes a blob.
    BlobClose {
        /// Which.
        blob: usize,
    },
    /// Asks for a checkpoint.
    Checkpoint {
        /// On which connection.
        connection: usize,
        /// Of one attached database, else of all.
        schema: Option<String>,
        /// 0 passive, 1 full, 2 restart, 3 truncate.
        mode: u8,
        /// By `PRAGMA wal_checkpoint`, else by the function. The first row of the outcome names the files that it is asked of.
        pragma: bool,
    },
    /// Reads as of a snapshot: taken on one connection, opened on another after a third one has written.
    Snapshot {
        /// Where the snapshot is taken.
        taken: usize,
        /// The read transaction stays open there until the other one has read.
        kept: bool,
        /// The connection that writes meanwhile.
        writer: usize,
        /// What it writes.
        write: String,
        /// Where the snapshot is opened.
        opened: usize,
        /// What is read there.
        read: String,
        /// Name of the database that both have.
        schema: String,
    },
    /// Copies a database with the backup API.
    Backup {
        /// From the main database of this connection.
        from: usize,
        /// To that of this one; a number without a connection is a database in memory.
        to: usize,
        /// Pages a step.
        pages: i32,
    },
    /// `sqlite3_db_cacheflush`.
    Flush {
        /// Of which connection.
        connection: usize,
    },
    /// A statement that Standfast refuses and stock SQLite does not: it is run with the shim only, and must change nothing.
    Refused {
        /// On which connection.
        connection: usize,
        /// The statement.
        sql: String,
    },
    /// A transaction over a protected database and two others with rollback journals, on a connection of its own; run with
    /// the shim only, where it is refused and must change nothing.
    RefusedTogether {
        /// The protected database.
        file: String,
    },
}

/// What became of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Extended result code of SQLite.
    pub code: i32,
    /// Its message, after an error.
    pub message: String,
    /// What was read.
    pub rows: Vec<String>,
    /// Counts and state of the transaction of the connection afterwards.
    pub state: String,
}

/// What a worker is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What it was drawn from.
    pub seed: u64,
    /// How the shim is loaded.
    pub door: Door,
    /// Files of protected databases that it uses, with the number for `PRAGMA auto_vacuum` that each has from the start.
    pub protected: Vec<(String, u8)>,
    /// Its steps.
    pub steps: Vec<Step>,
}

impl Program {
    /// The steps as text, one a line, for reports.
    pub fn listing(&self) -> String {
        let lines = self.steps.iter().enumerate().map(|(number, step)| format!("  {number:3} {step:?}\n"));
        format!("door {:?}, protected {:?}\n", self.door, self.protected) + &lines.collect::<String>()
    }
}
