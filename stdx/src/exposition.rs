//! Prometheus' text, a family at a time, for samples that are computed at each scrape. Counters of a process are in the
//! registry of the crate `prometheus`, which supports neither the time of a sample nor samples that come and go.

use std::fmt::Write;

/// The response to a scrape.
#[derive(Default)]
pub struct Page(String);

/// The type of a family.
pub enum Kind {
    Counter,
    Gauge,
}

impl Page {
    /// Families without a sample are left out.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str, samples: impl Iterator<Item = Sample>) {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for sample in samples {
            let labels: Vec<String> =
                sample.labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let at = sample.at.map(|at| format!(" {at}")).unwrap_or_default();
            let _ = writeln!(self.0, "{name}{labels} {}{at}", sample.value);
        }
    }

    /// The text of all families.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// One line of a family.
pub struct Sample {
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
    /// Milliseconds since the Unix epoch.
    pub at: Option<i64>,
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_a_head_and_escaped_labels() {
        let mut page = Page::default();
        let sample = |labels: &[(&'static str, &str)], at| {
            let labels = labels.iter().map(|(key, value)| (*key, value.to_string())).collect();
            Sample { labels, value: 2.5, at }
        };
        page.family("a", Kind::Gauge, "A.", [sample(&[("l", "x\"\\\n"), ("m", "")], Some(7))].into_iter());
        page.family("b", Kind::Counter, "B.", [sample(&[], None)].into_iter());
        page.family("c", Kind::Counter, "C.", std::iter::empty());
        let want =
            "# HELP a A.\n# TYPE a gauge\na{l=\"x\\\"\\\\\\n\",m=\"\"} 2.5 7\n# HELP b B.\n# TYPE b counter\nb 2.5\n";
        assert_eq!(page.into_text(), want);
    }
}
