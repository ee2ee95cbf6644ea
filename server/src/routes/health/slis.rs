//! The results of checks as service level indicators: the current result of each, and the counts of past results.

use std::collections::BTreeMap;

use stdx::exposition::{Kind, Page, Sample};
use stdx::sync::Mutex;

/// One check of a probe: `livez`, `ping`.
type Check = (&'static str, &'static str);

/// The number of failures and successes of each check.
#[derive(Default)]
pub struct Slis(Mutex<BTreeMap<Check, [u64; 2]>>);

impl Slis {
    /// Counts the result of a check.
    pub fn record(&self, probe: &'static str, name: &'static str, passes: bool) {
        let mut seen = self.0.lock();
        seen.entry((probe, name)).or_default()[usize::from(passes)] += 1;
    }

    /// The metrics, with the current results of all checks.
    pub fn text(&self, now: &[(Check, bool)]) -> String {
        let mut page = Page::default();
        let help = "This metric records the result of a single healthcheck.";
        let now = now.iter().map(|((probe, name), passes)| sample(name, None, probe, u64::from(*passes)));
        page.family("kubernetes_healthcheck", Kind::Gauge, help, now);
        let seen = self.0.lock();
        let counts = seen.iter().flat_map(|((probe, name), counts)| {
            let counted = ["error", "success"].into_iter().zip(*counts).filter(|(_, count)| *count > 0);
            counted.map(move |(status, count)| sample(name, Some(status), probe, count))
        });
        let help = "This metric records the results of all healthcheck.";
        page.family("kubernetes_healthchecks_total", Kind::Counter, help, counts);
        page.into_text()
    }
}

fn sample(name: &str, status: Option<&str>, probe: &str, value: u64) -> Sample {
    let labels = [("name", Some(name)), ("status", status), ("type", Some(probe))];
    let labels = labels.into_iter().filter_map(|(key, value)| Some((key, value?.to_string()))).collect();
    Sample { labels, value: value as f64, at: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_shown_as_they_are_and_counted_as_they_were() {
        let slis = Slis::default();
        for passes in [true, false, true] {
            slis.record("livez", "ping", passes);
        }
        let text = slis.text(&[(("livez", "ping"), true), (("readyz", "ping"), false)]);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let want = [
            r#"kubernetes_healthcheck{name="ping",type="livez"} 1"#,
            r#"kubernetes_healthcheck{name="ping",type="readyz"} 0"#,
            r#"kubernetes_healthchecks_total{name="ping",status="error",type="livez"} 1"#,
            r#"kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 2"#,
        ];
        assert_eq!(lines, want);
    }
}
