//! Views of the lags of standbys.

use super::columns::{INSTANCE, integer, text};
use super::definition::View;

pub(super) const DATAGUARD_STATS: View = View {
    name: "v$dataguard_stats",
    about: "Lags of standbys. At a primary, those of all its standbys, also of those that do not answer: NULL then.",
    needs_history: false,
    columns: &[
        text("source_dbid", "Identity of the family, hexadecimal."),
        text("source_db_unique_name", "Who sends the redo."),
        text("name", "transport lag, apply lag, apply finish time or estimated startup time."),
        text(
            "value",
            "As `+00 00:00:03` (days hours:minutes:seconds), startup time in seconds; NULL: unknown.",
        ),
        text("unit", "Unit of the value."),
        text("time_computed", "When the standby computed it."),
        text(
            "datum_time",
            "When the standby last heard of its source: while it stands still, the lags are not known.",
        ),
        INSTANCE,
    ],
};

pub(super) const RECOVERY_PROGRESS: View = View {
    name: "v$recovery_progress",
    about: "Apply at a standby, since its start.",
    needs_history: true,
    columns: &[
        text("start_time", "When apply was started."),
        text("type", "Media Recovery."),
        text("item", "What is counted."),
        text("units", "Its unit."),
        integer("sofar", "How much; NULL: unknown."),
        integer("total", "Of how much; NULL: open end."),
        text("timestamp", "Of the last applied redo: when it was committed."),
        text("comments", "Of the last applied redo: its SCN."),
        INSTANCE,
    ],
};

pub(super) const STANDBY_EVENT_HISTOGRAM: View = View {
    name: "v$standby_event_histogram",
    about: "How often a lag was seen to be of which size, looked at once a second.",
    needs_history: true,
    columns: &[
        text("name", "apply lag or transport lag."),
        integer("time", "Size of the lag, rounded down."),
        text("unit", "seconds, minutes, hours or days."),
        integer("count", "How often it was seen."),
        text("last_time_updated", "When it was seen last."),
        INSTANCE,
    ],
};
