//! What can be waited for, by the names that operators know.

use serde::{Deserialize, Serialize};

/// Classes of wait events, as in V$SYSTEM_EVENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitClass {
    /// Locks of the application's own making.
    Application,
    /// Too little of something that can be configured.
    Configuration,
    /// Waits for the durability of a commit.
    Commit,
    /// A thread that has nothing to do.
    Idle,
    /// Sending to other instances and receiving from them.
    Network,
    /// Writes and reads of background threads.
    #[serde(rename = "System I/O")]
    SystemIo,
    Other,
}

impl WaitClass {
    pub const ALL: [WaitClass; 7] = [
        WaitClass::Application,
        WaitClass::Configuration,
        WaitClass::Commit,
        WaitClass::Idle,
        WaitClass::Network,
        WaitClass::SystemIo,
        WaitClass::Other,
    ];

    pub fn name(self) -> &'static str {
        match self {
            WaitClass::Application => "Application",
            WaitClass::Configuration => "Configuration",
            WaitClass::Commit => "Commit",
            WaitClass::Idle => "Idle",
            WaitClass::Network => "Network",
            WaitClass::SystemIo => "System I/O",
            WaitClass::Other => "Other",
        }
    }
}

macro_rules! events {
    ($($(#[doc = $doc:literal])* $event:ident, $name:literal, $class:ident, $foreground:literal;)*) => {
        /// A wait event. The documentation of each says who waits, and from when to when.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Event { $($(#[doc = $doc])* $event,)* }

        impl Event {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Event] = &[$(Event::$event),*];

            pub fn name(self) -> &'static str {
                match self { $(Event::$event => $name,)* }
            }

            pub fn class(self) -> WaitClass {
                match self { $(Event::$event => WaitClass::$class,)* }
            }

            /// Whether sessions wait for it; else threads of the instance do.
            pub fn is_foreground(self) -> bool {
                match self { $(Event::$event => $foreground,)* }
            }

            pub fn description(self) -> &'static str {
                match self { $(Event::$event => concat!($($doc),*),)* }
            }
        }
    };
}

events! {
    /// A session, in COMMIT: from the notice of its commit until it runs again with the answer.
    LogFileSync, "log file sync", Commit, true;
    /// A session, at the begin of a write: for SQLite's write lock, in the queue.
    WriteLock, "enq: TX - write lock", Application, true;
    /// A session, at the begin of a transaction: while the write-ahead log is reset (the gate).
    WalReset, "write-ahead log reset", Configuration, true;
    /// The log writer: for the writes to all members of the current group.
    LogFileParallelWrite, "log file parallel write", SystemIo, false;
    /// The log writer: for the write of a log file's header.
    LogFileSingleWrite, "log file single write", SystemIo, false;
    /// The log writer, with redo in hand: more was captured than one batch takes, the rest waits in the write-ahead logs.
    LogBufferSpace, "log buffer space", Configuration, false;
    /// The log writer: while it switches to the next group.
    SwitchCompletion, "log file switch completion", Configuration, false;
    /// The log writer: the next group is still needed for recovery.
    SwitchCheckpointIncomplete, "log file switch (checkpoint incomplete)", Configuration, false;
    /// The log writer: the next group is not archived.
    SwitchArchivingNeeded, "log file switch (archiving needed)", Configuration, false;
    /// A sender: for the acknowledgement of what it sent to a synchronous destination, remote write included.
    SyncRemoteWrite, "SYNC Remote Write", Network, false;
    /// A sender: for the acknowledgement of what it sent to an asynchronous destination; no commit waits for it.
    AsyncRemoteWrite, "ASYNC Remote Write", Network, false;
    /// A sender: while it connects to its destination and both agree where to resume.
    TransportAttach, "Redo Transport Attach", Network, false;
    /// An archiver: while it sends a chunk of an archived log, reading it included.
    ArchRemoteWrite, "ARCH Remote Write", Network, false;
    /// An archiver: held back while it sends, so that answers to commits that wait for other destinations do not come late.
    ArchPace, "ARCH wait for commits", Idle, false;
    /// The receiver of a standby: from a batch of redo in memory until it is answered, checks included.
    RfsWrite, "RFS write", SystemIo, false;
    /// The receiver of a standby: for the write to the standby redo log.
    RfsRandomIo, "RFS random i/o", SystemIo, false;
    /// The receiver of a standby: for the write of a unit of an archived log.
    RfsSequentialIo, "RFS sequential i/o", SystemIo, false;
    /// An archiver, a sender or apply: for a read of a log file.
    LogFileSequentialRead, "log file sequential read", SystemIo, false;
    /// An archiver: for the write of an archived log.
    LogArchiveIo, "Log archive I/O", SystemIo, false;
    /// For the write of the control file.
    ControlFileWrite, "control file parallel write", SystemIo, false;
    /// The checkpointer, or apply: while it moves pages from the write-ahead log into the database.
    DbFileParallelWrite, "db file parallel write", SystemIo, false;
    /// The checkpointer, or apply: for the sync of a write-ahead log or a database.
    DbFileSync, "db file sync", SystemIo, false;
    /// Apply: while a stretch of redo is put into the databases of the standby and committed there.
    RecoveryApply, "recovery apply", SystemIo, false;
    /// Apply: held back by DELAY.
    RecoveryApplyDelay, "recovery apply delay", Idle, false;
    /// Apply: there is no redo to apply.
    RecoveryIdle, "parallel recovery coordinator idle wait", Idle, false;
    /// A thread of the instance: there is nothing to do.
    RdbmsIpcMessage, "rdbms ipc message", Idle, false;
    /// The receiver of a standby: there is no redo to receive.
    RfsIdle, "RFS idle", Idle, false;
}

impl Event {
    pub fn index(self) -> usize {
        self as usize
    }

    pub fn from_index(index: usize) -> Option<Event> {
        Event::ALL.get(index).copied()
    }

    pub fn named(name: &str) -> Option<Event> {
        Event::ALL.iter().copied().find(|event| event.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_unique_number_and_name() {
        for (number, event) in Event::ALL.iter().enumerate() {
            assert_eq!(event.index(), number);
            assert_eq!(Event::from_index(number), Some(*event));
            assert_eq!(Event::named(event.name()), Some(*event), "{} twice", event.name());
            assert!(!event.description().trim().is_empty());
        }
        assert_eq!(Event::from_index(Event::ALL.len()), None);
    }
}
