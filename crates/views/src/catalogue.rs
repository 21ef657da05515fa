//! The catalogue: every view with its columns, in the documented order and with the documented names, in lower case and
//! with `_no` for `#`. CON_ID is omitted.
//!
//! The last column says which instance a row is about. It is `db_unique_name`, except where a documented column has
//! that name: in v$database it means the same, and in the views of destinations it is that of the destination, so the
//! last column is `source_db_unique_name`.

mod columns;
mod database;
mod definition;
mod destinations;
mod lags;
mod logs;
mod processes;
mod waits;

pub use definition::{Column, Kind, View};

/// All views, sorted by name.
pub const VIEWS: [&View; 24] = [
    &waits::ACTIVE_SESSION_HISTORY,
    &destinations::ARCHIVE_DEST,
    &destinations::ARCHIVE_DEST_STATUS,
    &logs::ARCHIVE_GAP,
    &logs::ARCHIVED_LOG,
    &database::DATABASE,
    &processes::DATAGUARD_PROCESS,
    &lags::DATAGUARD_STATS,
    &database::DATAGUARD_STATUS,
    &waits::EVENT_HISTOGRAM,
    &waits::EVENT_HISTOGRAM_MICRO,
    &logs::LOG,
    &logs::LOG_HISTORY,
    &logs::LOGFILE,
    &processes::MANAGED_STANDBY,
    &database::PARAMETER,
    &lags::RECOVERY_PROGRESS,
    &destinations::REDO_DEST_RESP_HISTOGRAM,
    &lags::STANDBY_EVENT_HISTOGRAM,
    &logs::STANDBY_LOG,
    &waits::SYSMETRIC,
    &waits::SYSMETRIC_HISTORY,
    &waits::SYSSTAT,
    &waits::SYSTEM_EVENT,
];

/// Returns the view with this name, ignoring case.
pub fn view(name: &str) -> Option<&'static View> {
    VIEWS.into_iter().find(|view| view.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_and_column_has_a_unique_name_and_a_description() {
        assert!(VIEWS.is_sorted_by_key(|view| view.name));
        for view in VIEWS {
            assert!(!view.about.is_empty() && view.name.starts_with("v$"), "{}", view.name);
            for (at, column) in view.columns.iter().enumerate() {
                assert_eq!(view.position(column.name), Some(at), "{}.{} twice", view.name, column.name);
                assert!(column.about.ends_with('.'), "{}.{}", view.name, column.name);
                let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                assert!(column.name.bytes().all(plain), "{}", column.name);
                assert!(!column.about.contains('|'), "{}.{}: tables of pages", view.name, column.name);
            }
        }
    }

    #[test]
    fn every_view_has_a_column_that_names_the_instance() {
        for view in VIEWS {
            assert!(view.position("db_unique_name").is_some(), "{}", view.name);
            let last = view.columns.last().map(|column| column.name);
            let documented = ["v$archive_dest", "v$archive_dest_status"].contains(&view.name);
            let wanted = if documented { "source_db_unique_name" } else { "db_unique_name" };
            assert!(last == Some(wanted) || view.name == "v$database", "{}", view.name);
        }
    }

    #[test]
    fn view_names_are_matched_without_regard_to_case() {
        assert_eq!(view("V$Log").map(|view| view.name), Some("v$log"));
        assert_eq!(view("log"), None);
    }
}
