//! The rows of the V$ views, derived from an [`Observation`]. Pure.
//!
//! An observation contains those of its standbys, and of their standbys: a view has the rows of all of them, nearest
//! first. Unknown is NULL.

mod builder;
mod database;
mod destinations;
mod family;
mod lags;
mod logs;
mod processes;
mod text;
mod waits;

use builder::Builder;
use standfast_instruments::Observation;
use standfast_views::{Rows, View};

/// Returns the rows of a view.
pub fn rows(view: &'static View, observation: &Observation) -> Rows {
    let mut rows = Builder::new(view);
    add(&mut rows, view, observation);
    rows.finish()
}

fn add(rows: &mut Builder, view: &View, at: &Observation) {
    rows.begin_instance(&at.name);
    match view.name {
        "v$active_session_history" => waits::active_session_history(rows, at),
        "v$archive_dest" => destinations::archive_dest(rows, at),
        "v$archive_dest_status" => destinations::archive_dest_status(rows, at),
        "v$archive_gap" => logs::archive_gap(rows, at),
        "v$archived_log" => logs::archived_log(rows, at),
        "v$database" => database::database(rows, at),
        "v$dataguard_process" => processes::dataguard_process(rows, at),
        "v$dataguard_stats" => lags::dataguard_stats(rows, at),
        "v$dataguard_status" => database::dataguard_status(rows, at),
        "v$event_histogram" => waits::event_histogram(rows, at),
        "v$event_histogram_micro" => waits::event_histogram_micro(rows, at),
        "v$log" => logs::log(rows, at),
        "v$log_history" => logs::log_history(rows, at),
        "v$logfile" => logs::logfile(rows, at),
        "v$managed_standby" => processes::managed_standby(rows, at),
        "v$parameter" => database::parameter(rows, at),
        "v$recovery_progress" => lags::recovery_progress(rows, at),
        "v$redo_dest_resp_histogram" => destinations::redo_dest_resp_histogram(rows, at),
        "v$standby_event_histogram" => lags::standby_event_histogram(rows, at),
        "v$standby_log" => logs::standby_log(rows, at),
        "v$sysmetric" => waits::sysmetric(rows, at),
        "v$sysmetric_history" => waits::sysmetric_history(rows, at),
        "v$sysstat" => waits::sysstat(rows, at),
        "v$system_event" => waits::system_event(rows, at),
        _ => {}
    }
    for standby in at.standbys.iter().filter_map(|remote| remote.observation.as_deref()) {
        add(rows, view, standby);
    }
}

#[cfg(any(test, feature = "synthetic"))]
pub mod example;

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_documents::status::Gap;
    use standfast_views::VIEWS;

    #[test]
    fn every_view_has_rows_for_a_primary_or_its_standby() {
        let mut family = example::family();
        let standby = family.standbys[0].observation.as_mut().unwrap();
        standby.status.standby.as_mut().unwrap().gap =
            Some(Gap { low_sequence: Some(3), high_sequence: Some(5), ..Gap::default() });
        for view in VIEWS {
            assert!(!rows(view, &family).rows.is_empty(), "{}", view.name);
        }
    }

    #[test]
    fn empty_observation_yields_no_zero_values() {
        let nothing = Observation { name: "south".into(), ..Observation::default() };
        for view in VIEWS {
            let rows = rows(view, &nothing);
            let constant = ["mountid", "quota_size", "async_blocks", "known_agents", "active_agents"];
            for row in &rows.rows {
                for (column, cell) in rows.columns.iter().zip(row) {
                    let is_zero = matches!(cell, standfast_views::Cell::Integer(0));
                    assert!(!is_zero || constant.contains(column), "{}.{column} is 0", view.name);
                }
            }
        }
    }
}
