//! Results as tables for the terminal.

use crate::raw::RawLimits;
use crate::run::RunResult;
use crate::stations::{ApplyResult, LogResult};
use crate::statistics::MinMedianMax;
use crate::suite::Series;
use crate::systems::SystemKind;

/// Columns: commits/s min/median/max, ratio to stock FULL, latencies, fairness, redo, processor time, context switches,
/// errors.
const HEADER: [&str; 11] = [
    "system",
    "commits/s min/median/max",
    "x FULL",
    "p50 ms",
    "p99 ms",
    "worst ms",
    "fair",
    "redo B",
    "cpu us",
    "csw",
    "errors",
];

/// Formats the series of one case.
pub fn table(series: &[Series]) -> String {
    let reference = median(series.iter().find(|one| one.system == SystemKind::StockFull));
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    rows.extend(series.iter().filter(|one| one.missing.is_none()).map(|one| row(one, reference)));
    let mut text = aligned(&rows);
    for (one, missing) in series.iter().filter_map(|one| Some((one, one.missing.as_ref()?))) {
        text.push_str(&format!("  {}: {}\n", one.name, missing.reason()));
    }
    text
}

fn median(series: Option<&Series>) -> Option<f64> {
    series?.of(|run| run.commits_per_second).ok().map(|rate| rate.median)
}

fn row(series: &Series, reference: Option<f64>) -> Vec<String> {
    let of = |number: fn(&RunResult) -> f64| series.of(number).ok();
    let middle = |number: fn(&RunResult) -> f64, digits: usize| match of(number) {
        Some(value) => format!("{:.digits$}", value.median),
        None => "-".into(),
    };
    let ratio =
        median(Some(series)).zip(reference).map_or("-".into(), |(own, full)| format!("{:.2}", own / full));
    let worst = of(|run| run.latency.max_us / 1e3).map_or("-".into(), |value| format!("{:.1}", value.max));
    let redo = series.runs.iter().filter_map(|run| run.redo_bytes_per_commit);
    let redo = MinMedianMax::of(redo).map_or("-".into(), |bytes| format!("{:.0}", bytes.median));
    vec![
        series.name.clone(),
        of(|run| run.commits_per_second).map_or("-".into(), three),
        ratio,
        middle(|run| run.latency.p50_us / 1e3, 3),
        middle(|run| run.latency.p99_us / 1e3, 3),
        worst,
        middle(RunResult::fairness, 2),
        redo,
        by_group(series, |group| group.cpu_us_per_commit, 0),
        by_group(series, |group| group.switches_per_commit, 2),
        series.runs.iter().map(|run| run.errors).sum::<u64>().to_string(),
    ]
}

/// Medians of the process groups, application first: `26+15+12`.
fn by_group(series: &Series, number: fn(&crate::processes::GroupUsage) -> f64, digits: usize) -> String {
    let groups = series.runs.first().map_or(0, |run| run.usage.len());
    let medians = (0..groups).filter_map(|nth| {
        MinMedianMax::of(series.runs.iter().filter_map(|run| run.usage.get(nth)).map(number))
    });
    medians.map(|of| format!("{:.digits$}", of.median)).collect::<Vec<_>>().join("+")
}

fn three(of: MinMedianMax) -> String {
    format!("{:.0}/{:.0}/{:.0}", of.min, of.median, of.max)
}

/// Aligns the first column to the left, the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |nth: usize| rows.iter().filter_map(|row| row.get(nth)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|nth| width(nth).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(nth, (cell, &width))| match nth {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str("  ");
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Formats the limits of the machine.
pub fn limits(raw: &RawLimits) -> String {
    format!(
        "  durable write 4 KiB {:.0} us, two files at once {:.0} us, 1 MiB one after the other {:.2} GB/s; TCP 8 KiB ping-pong {:.0} us\n",
        raw.small_write_us,
        raw.two_writes_us,
        raw.large_write_rate / 1e9,
        raw.ping_pong_us
    )
}

/// Formats the throughput of the log writer and of plain writes.
pub fn log(result: &LogResult) -> String {
    let gb =
        |of: MinMedianMax| format!("{:.2}/{:.2}/{:.2} GB/s", of.min / 1e9, of.median / 1e9, of.max / 1e9);
    format!(
        "  log writer, {} producers: {}; one thread, 1 MiB durable writes: {}; {:.0} %\n",
        result.producers,
        gb(result.rate),
        gb(result.baseline),
        result.ratio() * 100.0
    )
}

pub fn apply(result: &ApplyResult) -> String {
    format!(
        "  {} transactions over {} database(s): {} transactions/s\n",
        result.transactions,
        result.databases,
        three(result.rate)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{Latencies, LatencySummary};
    use crate::suite::Missing;
    use crate::systems::Case;
    use crate::workload::Layout;

    fn series(system: SystemKind, rates: &[f64], missing: Option<Missing>) -> Series {
        let run = |rate: &f64| RunResult {
            system: "s".into(),
            clients: 8,
            layout: Layout::OneDatabase,
            seconds: 1.0,
            commits: *rate as u64,
            commits_in_all: *rate as u64,
            commits_per_second: *rate,
            latency: LatencySummary { p50_us: 1500.0, ..LatencySummary::default() },
            latencies: Latencies::default(),
            commits_of_clients: vec![10, 9],
            errors: 0,
            first_error: None,
            redo_bytes_per_commit: None,
            usage: Vec::new(),
        };
        let case = Case { clients: 8, layout: Layout::OneDatabase };
        Series { system, name: system.key(), case, runs: rates.iter().map(run).collect(), missing }
    }

    #[test]
    fn table_shows_ratios_of_medians_and_reasons_for_missing_ones() {
        let text = table(&[
            series(SystemKind::StockFull, &[900.0, 1000.0, 1100.0], None),
            series(SystemKind::SyncAffirm, &[2900.0, 3000.0, 9000.0], None),
            series(SystemKind::Postgres, &[], Some(Missing::Skipped("not installed".into()))),
        ]);
        let affirm = text.lines().find(|line| line.contains("sync-affirm")).unwrap();
        assert!(
            affirm.contains("2900/3000/9000") && affirm.contains(" 3.00 ") && affirm.contains("0.90"),
            "{text}"
        );
        assert!(affirm.contains("1.500"), "{text}");
        assert!(text.contains("postgres: not installed"), "{text}");
    }
}
