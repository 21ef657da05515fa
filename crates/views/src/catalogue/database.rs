//! Views of the instance as a whole.

use super::columns::{INSTANCE, RESETLOGS_CHANGE, RESETLOGS_TIME, integer, text};
use super::definition::View;

pub(super) const DATABASE: View = View {
    name: "v$database",
    about: "A row for each instance. What is a database elsewhere is an instance with all its databases here.",
    needs_history: false,
    columns: &[
        text("dbid", "Identity of the family, hexadecimal."),
        text("name", "Name of the instance."),
        RESETLOGS_CHANGE,
        RESETLOGS_TIME,
        text("log_mode", "Always ARCHIVELOG."),
        integer("checkpoint_change_no", "SCN at which recovery begins."),
        integer("archive_change_no", "SCN up to which the redo is archived here."),
        text("controlfile_type", "CURRENT, STANDBY or FAR SYNC."),
        text("open_mode", "READ WRITE, READ ONLY WITH APPLY, READ ONLY or MOUNTED."),
        text("protection_mode", "MAXIMUM PERFORMANCE, AVAILABILITY or PROTECTION: what was asked for."),
        text("protection_level", "What commits get now; RESYNCHRONIZATION: no standby is synchronised."),
        text("remote_archive", "Always ENABLED."),
        text("activation_no", "Identity of the incarnation, hexadecimal."),
        text("switchover_no", "Identity of the incarnation, hexadecimal."),
        text("database_role", "PRIMARY, PHYSICAL STANDBY, SNAPSHOT STANDBY or FAR SYNC."),
        integer("archivelog_change_no", "SCN up to which the redo is archived here."),
        text("switchover_status", "NULL: `standfast dg validate database` says whether a standby is ready."),
        text("dataguard_broker", "Always DISABLED."),
        text("guard_status", "ALL at a standby, which takes no writes; else NONE."),
        text("force_logging", "Always YES: there is no commit without redo."),
        integer(
            "current_scn",
            "Newest SCN: durable at a primary, applied at a standby, hardened at a far sync.",
        ),
        text("flashback_on", "Always NO."),
        text("db_unique_name", "Name of the instance that the row is about."),
        integer("standby_became_primary_scn", "SCN at which this became primary by a failover."),
        text("fs_failover_mode", "ZERO DATA LOSS or DISABLED."),
        text(
            "fs_failover_status",
            "SYNCHRONIZED, UNSYNCHRONIZED, STALLED, PRIMARY UNOBSERVED, SUSPENDED, REINSTATE REQUIRED or DISABLED; at a \
             standby also BYSTANDER, UNOBSERVED, NOT READY and LACKS REDO.",
        ),
        text("fs_failover_current_target", "Member that may take over; NULL: none at the moment."),
        integer(
            "fs_failover_threshold",
            "Seconds that the primary must be silent before the target takes over.",
        ),
        text("fs_failover_observer_present", "YES when the observer answers and decides, else NO."),
        text("fs_failover_observer_host", "Host of the observer."),
        text("controlfile_converted", "Always NO."),
        text("primary_db_unique_name", "Name of the primary that the redo comes from."),
    ],
};

pub(super) const DATAGUARD_STATUS: View = View {
    name: "v$dataguard_status",
    about: "The newest lines of the alert log.",
    needs_history: false,
    columns: &[
        text("facility", "Log Transport Services, Log Apply Services, Remote File Server or NULL."),
        text("severity", "Informational, Control (a change of state), Warning, Error or Fatal."),
        integer("dest_id", "Destination that it is about."),
        integer("message_num", "Number of the row, the oldest first."),
        integer("error_code", "NULL: messages are texts."),
        text("callout", "YES when an operator should look, else NO."),
        text("timestamp", "When it was written."),
        text("message", "The line."),
        INSTANCE,
    ],
};

pub(super) const PARAMETER: View = View {
    name: "v$parameter",
    about: "Settings in force, and destinations in the notation of LOG_ARCHIVE_DEST_n.",
    needs_history: false,
    columns: &[
        integer("num", "Number of the row."),
        text("name", "section.setting, as in standfast.toml."),
        integer("type", "1 boolean, 2 text, 3 integer."),
        text("value", "Its value."),
        text("display_value", "The same."),
        text("isdefault", "TRUE or FALSE."),
        INSTANCE,
    ],
};
