//! Views of wait events, statistics and metrics.

use super::columns::{INSTANCE, integer, real, text};
use super::definition::{Column, View};

const WAIT_CLASS_ID: Column = integer("wait_class_id", "Number that stands for the name of the class.");
const EVENT_ID: Column = integer("event_id", "Number that stands for the name of the event.");

pub(super) const SYSTEM_EVENT: View = View {
    name: "v$system_event",
    about: "Wait events since the start of the instance. Those that sessions wait for have the same in the _fg columns.",
    needs_history: false,
    columns: &[
        text("event", "Its name."),
        integer("total_waits", "Waits that have ended."),
        integer("total_timeouts", "NULL: not counted."),
        integer("time_waited", "Time of all waits, hundredths of a second."),
        real("average_wait", "Hundredths of a second for a wait; NULL without waits."),
        integer("time_waited_micro", "Time of all waits, microseconds."),
        integer("total_waits_fg", "Waits of sessions."),
        integer("total_timeouts_fg", "NULL: not counted."),
        integer("time_waited_fg", "Of sessions, hundredths of a second."),
        real("average_wait_fg", "Of sessions, hundredths of a second for a wait."),
        integer("time_waited_micro_fg", "Of sessions, microseconds."),
        EVENT_ID,
        WAIT_CLASS_ID,
        integer("wait_class_no", "Number of the class."),
        text("wait_class", "Name of the class."),
        INSTANCE,
    ],
};

pub(super) const EVENT_HISTOGRAM: View = View {
    name: "v$event_histogram",
    about: "Wait events by duration, in milliseconds (of 1,024 microseconds).",
    needs_history: false,
    columns: &[
        integer("event_no", "Number of the event."),
        text("event", "Its name."),
        integer(
            "wait_time_milli",
            "Waits were shorter than this, milliseconds, and not shorter than half of it.",
        ),
        integer("wait_count", "How many."),
        text("last_update_time", "NULL: not recorded."),
        INSTANCE,
    ],
};

pub(super) const EVENT_HISTOGRAM_MICRO: View = View {
    name: "v$event_histogram_micro",
    about: "Wait events by duration, in microseconds.",
    needs_history: false,
    columns: &[
        integer("event_no", "Number of the event."),
        text("event", "Its name."),
        integer(
            "wait_time_micro",
            "Waits were shorter than this, microseconds; 4294967296: all that were longer.",
        ),
        text("wait_time_format", "The same to read, as `2 microseconds`."),
        integer("wait_count", "How many."),
        text("last_update_time", "NULL: not recorded."),
        INSTANCE,
    ],
};

pub(super) const SYSSTAT: View = View {
    name: "v$sysstat",
    about: "Counters since the start of the instance.",
    needs_history: false,
    columns: &[
        integer("statistic_no", "Its number."),
        text("name", "Its name."),
        integer("class", "1 user, 2 redo, 8 other."),
        integer("value", "Count so far."),
        integer("stat_id", "Number that stands for the name."),
        INSTANCE,
    ],
};

const METRIC: [Column; 9] = [
    text("begin_time", "Begin of the interval."),
    text("end_time", "Its end."),
    integer("intsize_csec", "Its length, hundredths of a second."),
    integer("group_id", "2: intervals of 60 seconds; 3: of 15 seconds."),
    integer("metric_id", "Number that stands for the name."),
    text("metric_name", "Its name."),
    real("value", "Its value; NULL when there was nothing to divide by."),
    text("metric_unit", "Its unit."),
    INSTANCE,
];

pub(super) const SYSMETRIC: View = View {
    name: "v$sysmetric",
    about: "Rates and averages of the last interval.",
    needs_history: true,
    columns: &METRIC,
};

pub(super) const SYSMETRIC_HISTORY: View = View {
    name: "v$sysmetric_history",
    about: "Rates and averages of all intervals that are remembered.",
    needs_history: true,
    columns: &METRIC,
};

pub(super) const ACTIVE_SESSION_HISTORY: View = View {
    name: "v$active_session_history",
    about: "Sessions and threads that were not idle, looked at once a second.",
    needs_history: true,
    columns: &[
        integer("sample_id", "Seconds since 1970 of the sample."),
        text("sample_time", "When it was taken."),
        integer("session_id", "Number of the session; 0: a thread of the instance."),
        text("session_type", "FOREGROUND: of an application; BACKGROUND: of the instance."),
        text("session_state", "WAITING or ON CPU."),
        text("event", "What it waited for; NULL when it worked."),
        EVENT_ID,
        text("wait_class", "Class of that event."),
        WAIT_CLASS_ID,
        integer("time_waited", "For how long so far, microseconds."),
        text("program", "The thread, or the database of the session."),
        integer("pid", "Process."),
        INSTANCE,
    ],
};
