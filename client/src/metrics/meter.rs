//! What components count of their own. A meter is a constant; it is shown once something was recorded with it.

use std::collections::BTreeMap;

use prometheus::core::Collector;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, exponential_buckets};
use stdx::sync::{Mutex, MutexGuard};

/// A metric under upstream's name.
#[derive(Debug)]
pub struct Meter {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
    pub sort: Sort,
}

/// What a recorded value does.
#[derive(Debug, Clone, Copy)]
pub enum Sort {
    /// It is added.
    Counter,
    /// It takes the place of the last one.
    Gauge,
    /// It is counted among those of its size.
    Histogram(Sizes),
}

/// The sizes of a histogram.
#[derive(Debug, Clone, Copy)]
pub enum Sizes {
    /// They begin with the first and grow by a factor.
    Growing {
        first: f64,
        factor: f64,
        count: usize,
    },
    Listed(&'static [f64]),
}

impl Meter {
    pub const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Meter {
        Meter { name, help, labels, sort: Sort::Counter }
    }

    pub const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Meter {
        Meter { name, help, labels, sort: Sort::Gauge }
    }

    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        (first, factor, count): (f64, f64, usize),
    ) -> Meter {
        Meter { name, help, labels, sort: Sort::Histogram(Sizes::Growing { first, factor, count }) }
    }

    pub const fn histogram_of(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        sizes: &'static [f64],
    ) -> Meter {
        Meter { name, help, labels, sort: Sort::Histogram(Sizes::Listed(sizes)) }
    }

    fn collector(&self) -> prometheus::Result<Family> {
        let options = Opts::new(self.name, self.help);
        Ok(match self.sort {
            Sort::Counter => Family::Counter(CounterVec::new(options, self.labels)?),
            Sort::Gauge => Family::Gauge(GaugeVec::new(options, self.labels)?),
            Sort::Histogram(sizes) => {
                let buckets = match sizes {
                    Sizes::Growing { first, factor, count } => exponential_buckets(first, factor, count)?,
                    Sizes::Listed(sizes) => sizes.to_vec(),
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

/// All meters that were recorded with, by their names.
#[derive(Default)]
pub struct Meters(Mutex<BTreeMap<&'static str, Family>>);

impl Meters {
    pub fn record(&self, registry: &Registry, meter: &'static Meter, labels: &[&str], value: f64) {
        let result = self.with(registry, meter, |family| family.record(labels, value));
        if let Err(error) = result {
            tracing::error!(name = meter.name, %error, "a metric cannot be recorded");
        }
    }

    /// Forgets the values of a gauge: what is not set again is gone.
    pub fn clear(&self, meter: &'static Meter) {
        if let Some(Family::Gauge(family)) = self.families().get(meter.name) {
            family.reset();
        }
    }

    pub fn forget(&self, meter: &'static Meter, labels: &[&str]) {
        // What was never recorded is not there to be removed.
        let _ = match self.families().get(meter.name) {
            Some(Family::Counter(family)) => family.remove_label_values(labels),
            Some(Family::Gauge(family)) => family.remove_label_values(labels),
            Some(Family::Histogram(family)) => family.remove_label_values(labels),
            None => Ok(()),
        };
    }

    fn with<T>(
        &self,
        registry: &Registry,
        meter: &'static Meter,
        work: impl FnOnce(&Family) -> prometheus::Result<T>,
    ) -> prometheus::Result<T> {
        let mut families = self.families();
        if let Some(family) = families.get(meter.name) {
            return work(family);
        }
        let family = meter.collector()?;
        registry.register(family.boxed())?;
        work(families.entry(meter.name).or_insert(family))
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<&'static str, Family>> {
        self.0.lock()
    }
}
