//! CPU usage in cores, from the usage since the last measurement.

use std::collections::BTreeMap;

use cri::{CpuUsage, PodSandboxStats, UInt64Value};
use stdx::sync::Mutex;

/// Requests within this time get the same rate.
const LEAST: i64 = 1_000_000_000;

/// The last samples, by pod UID or container ID.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<BTreeMap<String, Sample>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Nanoseconds since the epoch, and of cores.
    at: i64,
    used: u64,
    rate: Option<u64>,
}

/// The current measurement.
pub(crate) struct SampleRound<'a> {
    rates: &'a Rates,
    seen: BTreeMap<String, Sample>,
}

impl Rates {
    pub(crate) fn now(&self) -> SampleRound<'_> {
        SampleRound { rates: self, seen: BTreeMap::new() }
    }
}

impl SampleRound<'_> {
    /// In nanocores; None without an earlier measurement.
    pub(crate) fn rate(&mut self, of: String, at: i64, used: u64) -> Option<u64> {
        let known = self.rates.0.lock().get(&of).copied();
        let sample = next(known, at, used);
        self.seen.insert(of, sample);
        sample.rate
    }

    /// Adds missing rates to a pod and its containers.
    pub(crate) fn fill(&mut self, uid: &str, stats: &mut PodSandboxStats) {
        let Some(linux) = &mut stats.linux else { return };
        self.fill_cpu_rate(uid.to_string(), linux.cpu.as_mut());
        for container in &mut linux.containers {
            let id = container.attributes.as_ref().map(|attributes| attributes.id.clone()).unwrap_or_default();
            self.fill_cpu_rate(id, container.cpu.as_mut());
        }
    }

    fn fill_cpu_rate(&mut self, of: String, cpu: Option<&mut CpuUsage>) {
        let Some(cpu) = cpu.filter(|cpu| cpu.usage_nano_cores.is_none()) else { return };
        let Some(used) = cpu.usage_core_nano_seconds.as_ref().map(|used| used.value) else { return };
        cpu.usage_nano_cores = self.rate(of, cpu.timestamp, used).map(|value| UInt64Value { value });
    }
}

impl Drop for SampleRound<'_> {
    /// Drops samples that were not measured again.
    fn drop(&mut self) {
        *self.rates.0.lock() = std::mem::take(&mut self.seen);
    }
}

fn next(known: Option<Sample>, at: i64, used: u64) -> Sample {
    let Some(last) = known.filter(|last| at >= last.at && used >= last.used) else {
        return Sample { at, used, rate: None };
    };
    let time = at - last.at;
    if time < LEAST {
        return last;
    }
    let rate = u128::from(used - last.used) * 1_000_000_000 / u128::from(time.unsigned_abs());
    Sample { at, used, rate: u64::try_from(rate).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_the_usage_since_the_last_call() {
        const SECOND: i64 = 1_000_000_000;
        let rates = Rates::default();
        let ask = |of: &str, at: i64, used: u64| rates.now().rate(of.to_string(), at, used);
        assert_eq!(ask("a", 10 * SECOND, 500), None);
        assert_eq!(ask("a", 12 * SECOND, 1500), Some(500));
        assert_eq!(ask("a", 12 * SECOND + 5, 9000), Some(500), "too soon for another");
        assert_eq!(ask("a", 14 * SECOND, 1500), Some(0));
        assert_eq!(ask("a", 16 * SECOND, 3), None, "it was started anew");
        assert_eq!(ask("b", 20 * SECOND, 3), None);
        assert_eq!(ask("a", 30 * SECOND, 30), None, "it was not measured last time");
    }
}
