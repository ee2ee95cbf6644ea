//! The usage of containers, by image and namespace: counts by size and day, which need little memory for a month of a
//! cluster. InitialResources reads it.

use std::collections::BTreeMap;

use api::{Tree, tree};
use stdx::sync::{Mutex, MutexGuard};

use crate::registry::admission::initial_resources::{Usage, UsageQuery, without_tag};

const DAY: i64 = 86_400;
const DAYS: i64 = 30;
/// The maximum number of images by namespace; the least recently seen one is dropped first.
const MOST: usize = 2000;
/// The ratio between one size and the next.
const STEP: f64 = 1.05;

pub(crate) const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// One container at one time: thousandths of a core, and bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub image: String,
    pub namespace: String,
    pub milli_cpu: i64,
    pub memory: i64,
}

/// The number of values of each size.
#[derive(Debug, Clone, Default, PartialEq)]
struct Histogram(BTreeMap<u16, u64>);

impl Histogram {
    fn add(&mut self, value: i64) {
        *self.0.entry(size(value)).or_default() += 1;
    }

    fn merge(&mut self, other: &Histogram) {
        other.0.iter().for_each(|(size, count)| *self.0.entry(*size).or_default() += count);
    }

    fn count(&self) -> u64 {
        self.0.values().sum()
    }

    fn percentile(&self, percentile: u8) -> i64 {
        let wanted = (self.count() * u64::from(percentile)).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        found.map_or(0, |(size, _)| value(*size))
    }
}

fn size(value: i64) -> u16 {
    if value <= 1 {
        return u16::from(value == 1);
    }
    1 + ((value as f64).ln() / STEP.ln()).ceil() as u16
}

/// The largest of a size.
fn value(size: u16) -> i64 {
    if size <= 1 { i64::from(size) } else { STEP.powi(i32::from(size) - 1).round() as i64 }
}

/// The histograms of one image in one namespace, by day; both resources.
type DailyHistograms = BTreeMap<i64, [Histogram; 2]>;

#[derive(Default)]
pub(crate) struct History {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Seconds since the epoch, of the newest samples.
    now: i64,
    known: BTreeMap<(String, String), DailyHistograms>,
}

impl History {
    pub(crate) fn add(&self, samples: &[Sample], now: i64) {
        let mut state = self.state();
        state.now = now;
        let today = now / DAY;
        for sample in samples {
            let days = state.known.entry((sample.image.clone(), sample.namespace.clone())).or_default();
            let sizes = days.entry(today).or_default();
            sizes[0].add(sample.milli_cpu);
            sizes[1].add(sample.memory);
        }
        state.known.values_mut().for_each(|days| days.retain(|day, _| today - day < DAYS));
        state.known.retain(|_, days| !days.is_empty());
        while state.known.len() > MOST {
            let last = |days: &DailyHistograms| days.last_key_value().map(|(day, _)| *day);
            let oldest = state.known.iter().min_by_key(|(_, days)| last(days)).map(|(key, _)| key.clone());
            oldest.map(|key| state.known.remove(&key));
        }
    }

    /// The whole history, for users.
    pub(crate) fn shown(&self) -> Tree {
        let state = self.state();
        let one = |((image, namespace), days): (&(String, String), &DailyHistograms)| {
            let mut shown = tree! { "image" => image.as_str(), "namespace" => namespace.as_str() };
            for (at, resource) in RESOURCES.into_iter().enumerate() {
                let sizes = sum(days.values().map(|sizes| &sizes[at]));
                shown.set("samples", i64::try_from(sizes.count()).unwrap_or(i64::MAX));
                let of = |percentile| sizes.percentile(percentile);
                shown.set(resource, tree! { "p50" => of(50), "p90" => of(90), "p99" => of(99) });
            }
            shown
        };
        tree! { "items" => state.known.iter().map(one).collect::<Vec<Tree>>() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Histogram>) -> Histogram {
    let mut sum = Histogram::default();
    all.for_each(|sizes| sum.merge(sizes));
    sum
}

impl Usage for History {
    fn percentile(&self, request: &UsageQuery<'_>) -> Option<(i64, u64)> {
        let at = RESOURCES.iter().position(|resource| *resource == request.resource)?;
        let state = self.state();
        let since = (state.now - i64::try_from(request.since.as_secs()).unwrap_or(i64::MAX)) / DAY;
        let is_asked = |image: &str, namespace: &str| {
            let image = if request.any_tag { without_tag(image) } else { image };
            image == request.image && (request.namespace.is_empty() || namespace == request.namespace)
        };
        let known = state.known.iter().filter(|((image, namespace), _)| is_asked(image, namespace));
        let sizes = sum(known.flat_map(|(_, days)| days.range(since..)).map(|(_, sizes)| &sizes[at]));
        (sizes.count() > 0).then(|| (sizes.percentile(request.percentile), sizes.count()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(image: &str, namespace: &str, milli_cpu: i64) -> Sample {
        Sample { image: image.to_string(), namespace: namespace.to_string(), milli_cpu, memory: milli_cpu << 20 }
    }

    fn ask(history: &History, image: &str, any_tag: bool, namespace: &str, days: u64) -> Option<(i64, u64)> {
        let since = Duration::from_secs(days * 86_400);
        history.percentile(&UsageQuery { resource: "cpu", percentile: 90, image, any_tag, namespace, since })
    }

    #[test]
    fn queries_history_by_image_namespace_and_time() {
        let history = History::default();
        let day = |day: i64| day * DAY + 1;
        history.add(&[sample("app:1", "a", 100), sample("app:2", "b", 400)], day(0));
        for milli in 1..=10 {
            history.add(&[sample("app:1", "a", milli * 10)], day(20));
        }
        let near = |found: Option<(i64, u64)>, value: i64, count: u64| {
            let (got, samples) = found.expect("samples");
            assert!((got - value).abs() <= value / 20 + 1 && samples == count, "{got} {samples}");
        };
        near(ask(&history, "app:1", false, "a", 7), 90, 10);
        near(ask(&history, "app:1", false, "", 30), 100, 11);
        near(ask(&history, "app", true, "", 30), 100, 12);
        near(ask(&history, "app:2", false, "b", 30), 400, 1);
        assert_eq!(ask(&history, "app:2", false, "b", 7), None);
        assert_eq!(ask(&history, "app:3", false, "", 30), None);
        history.add(&[], day(31));
        assert_eq!(ask(&history, "app:2", false, "b", 30), None, "it was too long ago");
        let shown = history.shown();
        assert_eq!(shown.list("items")[0].int("samples"), Some(10));
    }

    #[test]
    fn sizes_are_approximate_and_memory_is_limited() {
        for wanted in [0, 1, 2, 7, 100, 12_345, 1 << 30, 1 << 50] {
            let got = value(size(wanted));
            assert!(got >= wanted * 99 / 100 && got <= wanted + wanted / 19 + 1, "{wanted} {got}");
        }
        let history = History::default();
        let samples: Vec<Sample> = (0..3000).map(|at| sample(&format!("i:{at}"), "a", 1)).collect();
        history.add(&samples, 1);
        assert_eq!(history.state().known.len(), MOST);
    }
}
