//! The results of checks as service level indicators: the current result of each, and the counts of past results.

use std::collections::BTreeMap;
use std::fmt::Write;

use stdx::sync::Mutex;

/// One check of a probe: `livez`, `ping`.
type Check = (&'static str, &'static str);

/// How often checks have failed and passed. There are as many as checks.
#[derive(Default)]
pub struct Slis(Mutex<BTreeMap<Check, [u64; 2]>>);

impl Slis {
    /// Counts the result of a check.
    pub fn record(&self, probe: &'static str, name: &'static str, passes: bool) {
        let mut seen = self.0.lock();
        seen.entry((probe, name)).or_default()[usize::from(passes)] += 1;
    }

    /// With how all checks are now.
    pub fn text(&self, now: &[(Check, bool)]) -> String {
        let mut text =
            head("kubernetes_healthcheck", "This metric records the result of a single healthcheck.", "gauge");
        for ((probe, name), passes) in now {
            let passes = u8::from(*passes);
            let _ = writeln!(text, "kubernetes_healthcheck{{name={name:?},type={probe:?}}} {passes}");
        }
        text +=
            &head("kubernetes_healthchecks_total", "This metric records the results of all healthcheck.", "counter");
        for ((probe, name), counts) in self.0.lock().iter() {
            for (status, count) in ["error", "success"].iter().zip(counts).filter(|(_, count)| **count > 0) {
                let labels = format!("name={name:?},status={status:?},type={probe:?}");
                let _ = writeln!(text, "kubernetes_healthchecks_total{{{labels}}} {count}");
            }
        }
        text
    }
}

fn head(name: &str, help: &str, kind: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
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
