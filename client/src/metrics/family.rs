//! Metrics defined by components as constants; each is registered when it is first recorded.

use std::collections::BTreeMap;

use prometheus::core::Collector;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, exponential_buckets};
use stdx::sync::{Mutex, MutexGuard};

/// A metric definition.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
    pub kind: MetricKind,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy)]
pub enum MetricKind {
    /// Values are added.
    Counter,
    /// Values replace the previous one.
    Gauge,
    /// Values are counted in buckets.
    Histogram(Buckets),
}

/// The buckets of a histogram.
#[derive(Debug, Clone, Copy)]
pub enum Buckets {
    /// Starts at `start` and grows by `factor`.
    Exponential {
        start: f64,
        factor: f64,
        count: usize,
    },
    Listed(&'static [f64]),
}

impl Metric {
    /// A counter.
    pub const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
        Metric { name, help, labels, kind: MetricKind::Counter }
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
        Metric { name, help, labels, kind: MetricKind::Gauge }
    }

    /// A histogram with the default buckets.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        (start, factor, count): (f64, f64, usize),
    ) -> Metric {
        Metric { name, help, labels, kind: MetricKind::Histogram(Buckets::Exponential { start, factor, count }) }
    }

    /// A histogram with its own buckets.
    pub const fn histogram_of(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
    ) -> Metric {
        Metric { name, help, labels, kind: MetricKind::Histogram(Buckets::Listed(buckets)) }
    }

    fn collector(&self) -> prometheus::Result<Family> {
        let options = Opts::new(self.name, self.help);
        Ok(match self.kind {
            MetricKind::Counter => Family::Counter(CounterVec::new(options, self.labels)?),
            MetricKind::Gauge => Family::Gauge(GaugeVec::new(options, self.labels)?),
            MetricKind::Histogram(buckets) => {
                let buckets = match buckets {
                    Buckets::Exponential { start, factor, count } => exponential_buckets(start, factor, count)?,
                    Buckets::Listed(buckets) => buckets.to_vec(),
                };
                let options = HistogramOpts::new(self.name, self.help).buckets(buckets);
                Family::Histogram(HistogramVec::new(options, self.labels)?)
            }
        })
    }
}

enum Family {
    Counter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

impl Family {
    fn boxed(&self) -> Box<dyn Collector> {
        match self {
            Family::Counter(family) => Box::new(family.clone()),
            Family::Gauge(family) => Box::new(family.clone()),
            Family::Histogram(family) => Box::new(family.clone()),
        }
    }

    fn record(&self, labels: &[&str], value: f64) -> prometheus::Result<()> {
        match self {
            Family::Counter(family) => family.get_metric_with_label_values(labels)?.inc_by(value),
            Family::Gauge(family) => family.get_metric_with_label_values(labels)?.set(value),
            Family::Histogram(family) => family.get_metric_with_label_values(labels)?.observe(value),
        }
        Ok(())
    }
}

/// The registered metrics by name.
#[derive(Default)]
pub(super) struct Families(Mutex<BTreeMap<&'static str, Family>>);

impl Families {
    pub(super) fn record(&self, registry: &Registry, metric: &'static Metric, labels: &[&str], value: f64) {
        let result = self.with(registry, metric, |family| family.record(labels, value));
        if let Err(error) = result {
            tracing::error!(name = metric.name, %error, "failed to record metric");
        }
    }

    /// Removes all series of a gauge.
    pub(super) fn clear(&self, metric: &'static Metric) {
        if let Some(Family::Gauge(family)) = self.families().get(metric.name) {
            family.reset();
        }
    }

    pub(super) fn forget(&self, metric: &'static Metric, labels: &[&str]) {
        // A series that was never recorded cannot be removed.
        let _ = match self.families().get(metric.name) {
            Some(Family::Counter(family)) => family.remove_label_values(labels),
            Some(Family::Gauge(family)) => family.remove_label_values(labels),
            Some(Family::Histogram(family)) => family.remove_label_values(labels),
            None => Ok(()),
        };
    }

    fn with<T>(
        &self,
        registry: &Registry,
        metric: &'static Metric,
        work: impl FnOnce(&Family) -> prometheus::Result<T>,
    ) -> prometheus::Result<T> {
        let mut families = self.families();
        if let Some(family) = families.get(metric.name) {
            return work(family);
        }
        let family = metric.collector()?;
        registry.register(family.boxed())?;
        work(families.entry(metric.name).or_insert(family))
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<&'static str, Family>> {
        self.0.lock()
    }
}
