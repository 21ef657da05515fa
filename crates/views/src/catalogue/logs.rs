//! Views of redo logs and archived logs.

use super::columns::{INSTANCE, RESETLOGS_CHANGE, RESETLOGS_TIME, THREAD, integer, text};
use super::definition::{Column, View};

const SEQUENCE: Column = integer("sequence_no", "Log sequence number.");
const GROUP: Column = integer("group_no", "Number of the group.");
const FIRST_CHANGE: Column = integer("first_change_no", "SCN at which the log begins.");
const FIRST_TIME: Column = text("first_time", "When the log was switched to.");
const NEXT_CHANGE: Column =
    integer("next_change_no", "SCN at which the next log begins; NULL while it is filled.");
const NEXT_TIME: Column = text("next_time", "When the next log was switched to; NULL while it is filled.");

pub(super) const LOG: View = View {
    name: "v$log",
    about: "Groups of the online redo log of a primary.",
    needs_history: false,
    columns: &[
        GROUP,
        THREAD,
        SEQUENCE,
        integer("bytes", "Size of each file of the group."),
        integer("blocksize", "Block size of the log, bytes."),
        integer("members", "Files of the group that live."),
        text("archived", "YES or NO."),
        text("status", "UNUSED, CURRENT, ACTIVE (needed for recovery) or INACTIVE."),
        FIRST_CHANGE,
        FIRST_TIME,
        NEXT_CHANGE,
        NEXT_TIME,
        INSTANCE,
    ],
};

pub(super) const STANDBY_LOG: View = View {
    name: "v$standby_log",
    about: "Groups of the standby redo log of a standby or a far sync.",
    needs_history: false,
    columns: &[
        GROUP,
        text(
            "dbid",
            "Identity of the family whose redo it holds, hexadecimal; UNASSIGNED when it holds none.",
        ),
        THREAD,
        SEQUENCE,
        integer("bytes", "Size of each file of the group."),
        integer("blocksize", "Block size of the log, bytes."),
        integer("used", "Bytes of redo in it."),
        text("archived", "YES or NO."),
        text("status", "ACTIVE: it holds redo that is being received or archived; else UNASSIGNED."),
        FIRST_CHANGE,
        FIRST_TIME,
        NEXT_CHANGE,
        NEXT_TIME,
        integer("last_change_no", "SCN of the end of the redo in it."),
        text("last_time", "When redo last came into it."),
        INSTANCE,
    ],
};

pub(super) const LOGFILE: View = View {
    name: "v$logfile",
    about: "Files of the redo log: a row for each member of each group.",
    needs_history: false,
    columns: &[
        GROUP,
        text("status", "NULL: in use; INVALID: lost, not written any more."),
        text("type", "ONLINE or STANDBY."),
        text("member", "Path of the file."),
        text("is_recovery_dest_file", "Always NO."),
        INSTANCE,
    ],
};

pub(super) const LOG_HISTORY: View = View {
    name: "v$log_history",
    about: "Log switches, as far as the archived logs go back.",
    needs_history: false,
    columns: &[
        integer("recid", "Number of the row, from 1, the oldest first."),
        integer("stamp", "Seconds since 1970 of the switch away from the log."),
        THREAD,
        SEQUENCE,
        FIRST_CHANGE,
        FIRST_TIME,
        NEXT_CHANGE,
        RESETLOGS_CHANGE,
        RESETLOGS_TIME,
        INSTANCE,
    ],
};

pub(super) const ARCHIVE_GAP: View = View {
    name: "v$archive_gap",
    about: "Whole logs that a standby lacks at the moment; no row: no gap is known.",
    needs_history: false,
    columns: &[
        THREAD,
        integer("low_sequence_no", "Sequence of the first log that is missing."),
        integer("high_sequence_no", "Sequence of the last one."),
        INSTANCE,
    ],
};

pub(super) const ARCHIVED_LOG: View = View {
    name: "v$archived_log",
    about: "Archived logs that are there.",
    needs_history: false,
    columns: &[
        integer("recid", "Number of the row, from 1, the oldest first."),
        integer("stamp", "Seconds since 1970 at which it was complete."),
        text("name", "Path of the file here; of a destination, its name."),
        integer("dest_id", "0: the instance's own archive; else the destination that has the log, too."),
        THREAD,
        SEQUENCE,
        RESETLOGS_CHANGE,
        RESETLOGS_TIME,
        text("resetlogs_id", "Identity of the incarnation, hexadecimal."),
        FIRST_CHANGE,
        FIRST_TIME,
        NEXT_CHANGE,
        text("next_time", "When the next log was switched to; NULL when no log follows here."),
        integer("blocks", "Blocks of the file."),
        integer("block_size", "Bytes of a block."),
        text("creator", "ARCH: copied from the log here; RFS: received."),
        text("registrar", "ARCH or RFS."),
        text("standby_dest", "NO: the file is here."),
        text("archived", "Always YES."),
        text("applied", "At a standby: YES, IN-MEMORY (partly) or NO. NULL at a primary."),
        text("deleted", "Always NO: what was removed has no row."),
        text("status", "A: available."),
        text("completion_time", "When the file was complete."),
        text("dictionary_begin", "Always NO."),
        text("dictionary_end", "Always NO."),
        text("end_of_redo", "NULL: not recorded."),
        integer("backup_count", "NULL: not recorded."),
        integer("archival_thread_no", "Always 1."),
        text("activation_no", "Identity of the incarnation, hexadecimal."),
        text("is_recovery_dest_file", "Always NO."),
        text("compressed", "Always NO."),
        text("fal", "NULL: whether it came to fill a gap is not recorded."),
        text("end_of_redo_type", "NULL: not recorded."),
        text("backed_by_vss", "Always NO."),
        INSTANCE,
    ],
};
