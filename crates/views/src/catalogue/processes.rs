//! Views of the threads of instances, under the names of the Oracle processes that do the same.

use super::columns::{INSTANCE, THREAD, integer, text};
use super::definition::{Column, View};

const GROUP: Column = integer("group_no", "Log group in use; NULL: none or unknown.");
const SEQUENCE: Column = integer("sequence_no", "Log sequence in use; NULL: none or unknown.");
const RESETLOG: Column = text("resetlog_id", "Identity of the incarnation, hexadecimal.");
const DELAY: Column = integer("delay_mins", "Delay of apply, minutes; NULL where nothing is applied.");

pub(super) const DATAGUARD_PROCESS: View = View {
    name: "v$dataguard_process",
    about: "Threads that write, send, receive, apply and archive redo.",
    needs_history: false,
    columns: &[
        text("name", "As `top -H` shows it."),
        integer("pid", "Process of the instance."),
        text("type", "Always KSB: a background process."),
        text("role", "What it does."),
        text("proc_time", "When the process was started."),
        text("task_time", "NULL: not recorded."),
        text("task_done", "NULL: not recorded."),
        text("action", "What it waits for, WORKING or IDLE."),
        integer("client_pid", "NULL: not known."),
        text("client_role", "Role of the other end: who sends, or who is sent to; NULL: there is none."),
        GROUP,
        RESETLOG,
        THREAD,
        SEQUENCE,
        integer("block_no", "Block of the log that is written or applied next."),
        integer("block_count", "NULL: not recorded."),
        DELAY,
        integer("dest_id", "Destination that it sends to."),
        integer("dest_mask", "Bit 2^(dest_id - 1)."),
        text("dbid", "Identity of the family, hexadecimal."),
        text("dgid", "Identity of the family, hexadecimal."),
        integer("instance", "Always 1."),
        text("stop_state", "Always NULL: threads end with the instance."),
        INSTANCE,
    ],
};

pub(super) const MANAGED_STANDBY: View = View {
    name: "v$managed_standby",
    about: "The older form of v$dataguard_process.",
    needs_history: false,
    columns: &[
        text("process", "LGWR, ARCH, LNS (sends), RFS (receives) or MRP0 (applies)."),
        integer("pid", "Process of the instance."),
        text(
            "status",
            "IDLE, WRITING, RECEIVING, CONNECTED, CLOSING, APPLYING_LOG, WAIT_FOR_LOG or WAIT_FOR_GAP.",
        ),
        text("client_process", "LGWR at RFS of a primary's stream, else N/A."),
        text("client_pid", "N/A: not known."),
        text("client_dbid", "Identity of the family, hexadecimal."),
        GROUP,
        RESETLOG,
        THREAD,
        SEQUENCE,
        integer("block_no", "Block of the log that is written or applied next."),
        integer("blocks", "NULL: not recorded."),
        DELAY,
        integer("known_agents", "Always 0."),
        integer("active_agents", "Always 0."),
        INSTANCE,
    ],
};
