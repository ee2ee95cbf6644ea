//! Prometheus' text, a family at a time.

use std::fmt::Write;

#[derive(Default)]
pub(crate) struct Page(String);

pub(crate) enum Kind {
    Counter,
    Gauge,
}

impl Page {
    /// Families without a sample are left out.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str, samples: impl Iterator<Item = Sample>) {
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

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
    /// Milliseconds since the Unix epoch.
    pub(crate) at: Option<i64>,
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
