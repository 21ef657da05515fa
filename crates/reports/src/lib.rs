//! Snapshots of what an instance counts, reports of the intervals between them, and diagnosis.
//!
//! [`Repository`] keeps snapshots. [`Interval`] computes the figures of a [`Period`] between two of them. All later
//! steps are pure: [`diagnose`] finds what is wrong, [`report`] and [`comparison`] arrange the figures in [`Section`]s,
//! and [`text`] and [`html`] render those. An unknown figure is `None` throughout.

pub mod ash;
pub mod compare;
mod condense;
mod counters;
pub mod delta;
mod error;
#[cfg(test)]
mod golden;
pub mod html;
pub mod interval;
pub mod period;
pub mod plots;
mod replication;
pub mod report;
mod repository;
pub mod rules;
pub mod section;
mod sections;
#[cfg(test)]
mod synthetic;
pub mod text;
pub mod units;

pub use compare::{Comparison, comparison};
pub use counters::{Counters, EventFigures, PartFigures, StatisticFigures, Times};
pub use error::ReportError;
pub use interval::Interval;
pub use period::{Moment, Period};
pub use replication::StandbyFigures;
pub use report::report;
pub use repository::{Listed, Repository, Snapshot};
pub use rules::{Evidence, Finding, Severity, diagnose};
pub use section::{Column, Section, Table};
