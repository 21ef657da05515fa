//! Metrics for Prometheus: their definitions, and their values in an observation.
//!
//! Base units. A counter only grows from the start of the process on. An unknown value has no series. Histogram bounds
//! are bounds of the buckets in which durations are counted, so no count is interpolated.

mod definition;
mod families;
mod text;

pub use definition::{Definition, Family, Kind, Value};
pub use families::families;
pub use text::{CONTENT_TYPE, exposition};

/// The table of all metrics, for the reference page.
pub fn reference() -> String {
    let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for definition in families::DEFINITIONS {
        let labels: Vec<String> = definition.labels.iter().map(|label| format!("`{label}`")).collect();
        let kind = format!("{:?}", definition.kind).to_lowercase();
        table +=
            &format!("| `{}` | {kind} | {} | {} |\n", definition.name(), labels.join(", "), definition.help);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_page_contains_the_table_of_all_metrics() {
        let page = include_str!("../../../docs/metrics.md");
        assert!(page.contains(&reference()), "docs/metrics.md wants this table:\n{}", reference());
    }
}
