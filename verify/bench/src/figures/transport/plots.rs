//! The results of the group as an HTML page with plots, beside the JSON.

use std::path::Path;
use std::time::{Duration, SystemTime};

use standfast_net::html::page::{Identity, page};
use standfast_page::markup::Markup;
use standfast_page::page::{figure, numbers, section, table, words};
use standfast_page::plot::{Plot, Series};
use standfast_page::scale::Axis;

use super::ship::Shipped;
use super::{MEGABITS, TransportResult, median};
use crate::Result;
use crate::error::During;

/// Round trips of the goodput measurements, milliseconds.
const DISTANCES: [f64; 2] = [25.0, 100.0];

/// Writes the page; `begun` is the start of the measurements.
pub(in super::super) fn write_plots(found: &TransportResult, begun: SystemTime, path: &Path) -> Result<()> {
    let took = begun.elapsed().unwrap_or(Duration::ZERO);
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default().trim().to_owned();
    let identity = Identity {
        host: read("/proc/sys/kernel/hostname"),
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease")),
        begun,
        took,
    };
    let target = format!("a standby at the end of an emulated link of {MEGABITS} Mbit/s");
    let text = page("Redo transport", &identity, &target, sections(found));
    std::fs::write(path, text).during(|| format!("write {}", path.display()))
}

fn sections(found: &TransportResult) -> Markup {
    let mut all = Markup::new();
    if let Some(content) = goodput(found) {
        all = all.then(section("Goodput of a backlog", content));
    }
    if let Some(content) = shipping(found) {
        all = all.then(section("A log that was archived meanwhile", content));
    }
    all
}

fn goodput(found: &TransportResult) -> Option<Markup> {
    let measured: Vec<_> = DISTANCES
        .into_iter()
        .zip(&found.goodput)
        .filter_map(|(rtt, against)| Some((rtt, against.as_ref().ok()?)))
        .map(|(rtt, against)| (rtt, median(&against.ours) / 1e6, median(&against.other) / 1e6))
        .collect();
    let series = vec![
        line("Standfast ASYNC", measured.iter().map(|(rtt, ours, _)| (*rtt, *ours))),
        line("iperf3", measured.iter().map(|(rtt, _, other)| (*rtt, *other))),
    ];
    let rows = measured
        .iter()
        .map(|(rtt, ours, other)| vec![format!("{rtt}"), format!("{ours:.1}"), format!("{other:.1}")]);
    let columns = [words("round trip, ms"), numbers("Standfast, MB/s"), numbers("iperf3, MB/s")];
    let behind = table("Medians", &columns, rows);
    let description = "Payload that reaches the other side a second, over one connection.";
    plot("goodput", description, "MB/s", series).map(|plot| figure(&plot, behind))
}

fn shipping(found: &TransportResult) -> Option<Markup> {
    let all = found.ship.as_ref().ok()?;
    let mut ways: Vec<_> = all.iter().map(|shipped| (shipped.connections, shipped.unit_bytes)).collect();
    ways.sort_unstable();
    ways.dedup();
    let mebibytes = |bytes: u64| bytes >> 20;
    let of = |(connections, unit_bytes): (u32, u64)| {
        let is_it =
            move |shipped: &&Shipped| (shipped.connections, shipped.unit_bytes) == (connections, unit_bytes);
        let points = all.iter().filter(is_it).map(|shipped| (shipped.rtt_ms, median(&shipped.seconds)));
        line(&format!("{connections} connections, units of {} MiB", mebibytes(unit_bytes)), points)
    };
    let rows = all.iter().map(|shipped| {
        vec![
            format!("{}", shipped.rtt_ms),
            shipped.connections.to_string(),
            mebibytes(shipped.unit_bytes).to_string(),
            format!("{:.1}", median(&shipped.seconds)),
        ]
    });
    let columns = [words("round trip, ms"), numbers("connections"), numbers("unit, MiB"), numbers("seconds")];
    let behind = table("Medians", &columns, rows);
    let series = ways.into_iter().map(of).collect();
    let description = "Time until a log of 1 GB is on the standby's disk.";
    plot("ship", description, "seconds", series).map(|plot| figure(&plot, behind))
}

fn line(name: &str, points: impl Iterator<Item = (f64, f64)>) -> Series {
    Series { name: name.into(), points: points.collect(), marked: true }
}

/// A plot over the round trip; None without points.
fn plot(id: &str, description: &str, unit: &str, series: Vec<Series>) -> Option<Plot> {
    let points = || series.iter().flat_map(|series| &series.points);
    points().next()?;
    Some(Plot {
        id: id.into(),
        title: description.into(),
        description: description.into(),
        x: Axis::from_zero("round trip, ms", points().map(|(x, _)| *x), 5),
        y: Axis::from_zero(unit, points().map(|(_, y)| *y), 5),
        series,
        rules: Vec::new(),
        events: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::net::Against;
    use super::*;
    use crate::suite::Missing;

    fn skipped<T>() -> super::super::Outcome<T> {
        Err(Missing::Skipped("not asked for".into()))
    }

    #[test]
    fn only_measured_results_are_drawn_as_plots() {
        let nothing = || TransportResult {
            goodput: [skipped(), skipped()],
            asynchronous: [skipped(), skipped()],
            synchronous: skipped(),
            slow_disk: skipped(),
            ship: skipped(),
            gap: skipped(),
            tls: skipped(),
            packing: skipped(),
        };
        assert!(!sections(&nothing()).into_string().contains("<svg"));
        let against = Against { ours: vec![100e6], other: vec![110e6] };
        let found = TransportResult { goodput: [Ok(against), skipped()], ..nothing() };
        let drawn = sections(&found).into_string();
        assert!(drawn.contains("<svg") && drawn.contains("iperf3") && drawn.contains("110.0"), "{drawn}");
    }
}
