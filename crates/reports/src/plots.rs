//! The plots of a report. Pure.

use crate::interval::Interval;
use crate::period::Period;
use crate::section::Section;
use standfast_instruments::{CommitPart, Event, Metric, bucket_upper_us};
use standfast_page::plot::{Plot, Series};
use standfast_page::scale::{Axis, plain};

/// Maximum ticks of a horizontal axis.
const TICKS: usize = 8;
/// Maximum ticks of a vertical axis.
const LEVELS: usize = 6;

/// Adds the plots to their sections.
pub fn add(sections: &mut [Section], period: &Period, interval: &Interval) {
    let mut put = |title: &str, plots: Vec<Plot>| {
        if let Some(section) = sections.iter_mut().find(|section| section.title == title) {
            section.plots.extend(plots);
        }
    };
    put("Load profile", metrics(&period.metrics, interval.begin_us));
    put("Wait event histograms", distribution(interval).into_iter().collect());
    put("Commit and redo", parts(interval).into_iter().collect());
}

/// One plot over time for each metric of the load.
fn metrics(all: &[Metric], begin_us: u64) -> Vec<Plot> {
    let wanted = [
        ("User Transaction Per Sec", "commits"),
        ("Redo Generated Per Sec", "redo"),
        ("Database Time Per Sec", "active"),
    ];
    let one = |(name, id): (&str, &str)| {
        let of = all.iter().filter(|metric| metric.name == name && metric.group_s == 60);
        let minutes = |us: u64| us.saturating_sub(begin_us) as f64 / 6e7;
        let points: Vec<(f64, f64)> =
            of.clone().filter_map(|metric| Some((minutes(metric.end_us), metric.value?))).collect();
        let unit = of.map(|metric| metric.unit.clone()).next()?;
        (points.len() > 1).then(|| Plot {
            id: id.to_owned(),
            title: name.to_owned(),
            description: format!("{name} ({unit}), means of a minute."),
            x: Axis::from_zero("minutes from the begin", points.iter().map(|(x, _)| *x), TICKS),
            y: Axis::from_zero(&unit, points.iter().map(|(_, y)| *y), LEVELS),
            series: vec![Series { name: name.to_owned(), points, marked: false }],
            rules: Vec::new(),
            events: None,
        })
    };
    wanted.into_iter().filter_map(one).collect()
}

/// Cumulative distribution of the commit waits, local and remote.
fn distribution(interval: &Interval) -> Option<Plot> {
    let counters = interval.counters.as_ref()?;
    let curve = |event: Event| {
        let times = counters.event(event).filter(|times| times.count > 0)?;
        let mut seen = 0;
        let point = |(bucket, count): (usize, &u64)| {
            seen += count;
            Some((bucket_upper_us(bucket)? as f64 / 1e3, seen as f64 / times.count as f64 * 100.0))
        };
        let points: Vec<(f64, f64)> = times.buckets.iter().enumerate().filter_map(point).collect();
        // Drops the flat ends of the curve: leading zeros but one, and what follows the first 100 %.
        let first = points.iter().position(|(_, y)| *y > 0.0)?.saturating_sub(1);
        let last = points.iter().position(|(_, y)| *y >= 100.0).map_or(points.len(), |last| last + 1);
        Some(Series { name: event.name().to_owned(), points: points[first..last].to_vec(), marked: true })
    };
    let events = [Event::LogFileSync, Event::LogFileParallelWrite, Event::SyncRemoteWrite];
    let series: Vec<Series> = events.into_iter().filter_map(curve).collect();
    let xs: Vec<f64> = series.iter().flat_map(|one| one.points.iter().map(|(x, _)| *x)).collect();
    (!series.is_empty()).then(|| Plot {
        id: "waits".into(),
        title: "How long commits and writes waited".into(),
        description: "Percent of the waits that were shorter than the time below; bounds are powers of two."
            .into(),
        x: Axis::logarithmic("ms", xs.into_iter(), TICKS, plain),
        y: Axis::from_zero("% of the waits", std::iter::once(100.0), LEVELS - 1),
        rules: Vec::new(),
        events: None,
        series,
    })
}

/// Mean wait of a commit, added up part by part.
fn parts(interval: &Interval) -> Option<Plot> {
    let counters = interval.counters.as_ref()?;
    let of_sync = CommitPart::ALL.into_iter().filter(|part| part.is_of_log_file_sync());
    let means: Option<Vec<(CommitPart, f64)>> =
        of_sync.map(|part| Some((part, counters.part(part)?.mean_us? / 1e3))).collect();
    let means = means?;
    let mut sum = 0.0;
    let mut points = vec![(0.0, 0.0)];
    let mut ticks = Vec::new();
    for (index, (part, ms)) in means.iter().enumerate() {
        sum += ms;
        points.extend([(index as f64, sum), (index as f64 + 1.0, sum)]);
        ticks.push((index as f64 + 0.5, part.name()));
    }
    Some(Plot {
        id: "parts".into(),
        title: "The way of a commit".into(),
        description: "Mean time from the notice of a commit, added up part by part: a high step is where the time went.".into(),
        x: Axis::with_ticks("part of log file sync", means.len() as f64, &ticks),
        y: Axis::from_zero("ms", points.iter().map(|(_, y)| *y), LEVELS),
        series: vec![Series { name: "mean".into(), points, marked: false }],
        rules: Vec::new(),
        events: None,
    })
}
