//! Group `instruments`: what the instruments report about a commit, against the stopwatch of the application.

mod compared;
mod cost;
mod diagnosis;
mod failover;
mod lags;
mod page;
mod parts;

use serde::Serialize;

use super::measured::outcome;
use super::net::lab::Labs;
use super::net::start::Start;
use crate::process::Scratch;
use crate::suite::Missing;
use crate::{Context, Result};

/// A measurement, or the reason why there is none.
type Outcome<T> = std::result::Result<T, Missing>;

#[derive(Debug, Serialize)]
pub struct InstrumentsResult {
    /// Commits of different numbers of clients over different round trips.
    pub commits: Outcome<Vec<parts::Commits>>,
    /// Commits with a delay injected in one place.
    pub delayed: Outcome<Vec<parts::Delayed>>,
    /// Shown and real lags of a standby.
    pub lags: Outcome<lags::Lags>,
    /// Estimates before a failover and the real values.
    pub failovers: Outcome<Vec<Vec<failover::Rehearsed>>>,
    /// `standfast report --compare` about the cost of synchronous transport.
    pub tables: Outcome<compared::Tables>,
    /// Findings of `standfast diagnose` about injected faults.
    pub diagnosed: Outcome<Vec<diagnosis::Diagnosed>>,
    /// The dashboard of a large instance in a browser.
    pub page: Outcome<page::Page>,
    /// Commits per second with and without instruments.
    pub cost: Outcome<cost::Cost>,
}

pub(super) fn instruments(context: &Context, rounds: usize) -> Result<InstrumentsResult> {
    let scratch = Scratch::new(&context.base)?;
    let start = Start::find()?;
    let labs = Labs { context, start: &start, scratch: &scratch };
    Ok(InstrumentsResult {
        commits: outcome(parts::commits(&labs, rounds))?,
        delayed: outcome(parts::delayed(&labs, rounds))?,
        lags: outcome(lags::lags(&labs))?,
        failovers: outcome(failover::rehearsed(&labs, rounds))?,
        tables: outcome(compared::tables(&labs))?,
        diagnosed: outcome(diagnosis::diagnosed(&labs))?,
        page: outcome(page::page(context))?,
        cost: outcome(cost::cost(&labs, rounds))?,
    })
}

impl InstrumentsResult {
    pub(super) fn worst_sum(&self) -> Outcome<f64> {
        self.commits.as_ref().map(|all| parts::worst(all, parts::Commits::apart)).map_err(Clone::clone)
    }

    pub(super) fn wrong_lags(&self) -> Outcome<f64> {
        self.lags.as_ref().map(lags::Lags::wrong).map_err(Clone::clone)
    }

    pub(super) fn worst_estimate(&self) -> Outcome<f64> {
        self.failovers
            .as_ref()
            .map(|all| parts::worst(all, |scene| failover::off(scene)))
            .map_err(Clone::clone)
    }

    pub(super) fn page(&self) -> Outcome<f64> {
        self.page.as_ref().map(page::Page::seconds).map_err(Clone::clone)
    }

    pub(super) fn cost(&self) -> Outcome<f64> {
        self.cost.as_ref().map(cost::Cost::percent).map_err(Clone::clone)
    }

    pub(super) fn wrong_tables(&self) -> Outcome<f64> {
        self.tables.as_ref().map(compared::Tables::wrong).map_err(Clone::clone)
    }

    pub(super) fn wrong_findings(&self) -> Outcome<f64> {
        self.diagnosed.as_ref().map(|all| diagnosis::wrong(all)).map_err(Clone::clone)
    }

    pub(super) fn worst_stray(&self) -> Outcome<f64> {
        self.delayed.as_ref().map(|all| parts::worst(all, parts::Delayed::stray)).map_err(Clone::clone)
    }
}
