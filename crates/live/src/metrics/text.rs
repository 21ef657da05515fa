//! Metrics in the OpenMetrics text format, which Prometheus reads.

use super::definition::{Family, Kind, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// No labels beyond those of the family.
type Plain = [(&'static str, &'static str); 0];

pub fn exposition(families: Vec<Family>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(families)));
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct Metrics(Vec<Family>);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.0.iter().try_for_each(|family| encode(family, &mut encoder))
    }
}

fn encode(family: &Family, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let definition = family.definition;
    let kind = match definition.kind {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
        Kind::Histogram => MetricType::Histogram,
        Kind::Info => MetricType::Info,
    };
    // The client library appends a full stop.
    let help = definition.help.trim_end_matches('.');
    let mut metric = encoder.encode_descriptor(definition.base, help, None, kind)?;
    for (values, value) in &family.series {
        let labels: Vec<(&str, &str)> =
            definition.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
        if definition.kind == Kind::Info {
            metric.encode_info(&labels)?;
        } else if labels.is_empty() {
            encode_value(definition.kind, value, &mut metric)?;
        } else {
            encode_value(definition.kind, value, &mut metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_value(kind: Kind, value: &Value, metric: &mut MetricEncoder) -> fmt::Result {
    match value {
        Value::Number(number) if kind == Kind::Counter => {
            metric.encode_counter::<Plain, f64, f64>(number, None)
        }
        Value::Number(number) => metric.encode_gauge(number),
        Value::Durations { sum_s, buckets } => {
            let count = buckets.iter().map(|bucket| bucket.1).sum();
            metric.encode_histogram::<Plain>(*sum_s, count, buckets, None)
        }
    }
}
