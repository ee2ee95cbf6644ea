//! One measured number beside its limit, and how it is shown.

/// The requirement of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// An aim: shown, but a miss is no failure.
    Aim(f64),
    /// Shown for its own sake.
    Nothing,
}

impl Goal {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Goal::AtLeast(bound) => ratio >= bound,
            Goal::AtMost(bound) | Goal::Aim(bound) => ratio <= bound,
            Goal::Nothing => true,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(bound) => format!(">= {bound}"),
            Goal::AtMost(bound) => format!("<= {bound}"),
            Goal::Aim(bound) => format!("aim <= {bound}"),
            Goal::Nothing => String::new(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct BenchmarkResult {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// In the same unit, measured in the same run.
    pub limit: f64,
    pub goal: Goal,
}

impl BenchmarkResult {
    pub(crate) fn ratio(&self) -> f64 {
        if self.limit == 0.0 { 0.0 } else { self.value / self.limit }
    }

    pub(crate) fn ok(&self) -> bool {
        self.goal.holds(self.ratio())
    }

    fn json(&self) -> String {
        format!(
            "{{\"name\":\"{}\",\"value\":{:.3},\"unit\":\"{}\",\"limit\":{:.3},\"ratio\":{:.3},\"must\":\"{}\",\"ok\":{}}}",
            self.name,
            self.value,
            self.unit,
            self.limit,
            self.ratio(),
            self.goal.text(),
            self.ok()
        )
    }

    fn row(&self) -> String {
        let mark = if self.ok() { "ok" } else { "MISSED" };
        let (name, unit, goal) = (self.name, self.unit, self.goal.text());
        format!(
            "{name:<46} {:>12} {unit:<8} {:>12} {:>7.2}  {goal:<10} {mark}",
            number(self.value),
            number(self.limit),
            self.ratio()
        )
    }
}

fn skipped_json(name: &str, why: &str) -> String {
    let tree = api::tree! { "name" => name, "skipped" => why };
    String::from_utf8_lossy(&api::json::encode(&tree, None)).into_owned()
}

/// Four digits are as many as such a measurement is good for.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Prints figures as they are measured, and records whether one missed its limit.
pub(crate) struct Report {
    json: bool,
    missed: usize,
    shown: usize,
}

impl Report {
    pub(crate) fn new(json: bool) -> Report {
        Report { json, missed: 0, shown: 0 }
    }

    pub(crate) fn add(&mut self, figure: &BenchmarkResult) {
        if self.json {
            println!("{}", figure.json());
        } else {
            if self.shown == 0 {
                println!("{:<46} {:>12} {:<8} {:>12} {:>7}  must", "figure", "value", "unit", "limit", "ratio");
            }
            println!("{}", figure.row());
        }
        self.shown += 1;
        if !figure.ok() && !matches!(figure.goal, Goal::Aim(_)) {
            self.missed += 1;
        }
    }

    /// A figure that this server cannot have, and why.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        if self.json {
            println!("{}", skipped_json(name, why));
        } else {
            println!("{name:<46} skipped: {why}");
        }
    }

    /// Reports progress on standard error: standard output is for other programs.
    pub(crate) fn progress(&self, text: &str) {
        eprintln!("{text} ...");
    }

    /// True if nothing missed.
    pub(crate) fn finish(&self) -> bool {
        if !self.json && self.missed > 0 {
            println!("\n{} of {} figures miss what they must reach", self.missed, self.shown);
        }
        self.missed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_figures_by_ratio() {
        let cases = [
            (Goal::AtLeast(0.5), 50.0, true),
            (Goal::AtLeast(0.5), 49.0, false),
            (Goal::AtMost(1.2), 120.0, true),
            (Goal::AtMost(1.2), 121.0, false),
            (Goal::Nothing, 1.0, true),
        ];
        for (goal, value, ok) in cases {
            let figure = BenchmarkResult { name: "x", value, unit: "1/s", limit: 100.0, goal };
            assert_eq!(figure.ok(), ok, "{goal:?} {value}");
        }
    }

    #[test]
    fn missed_aims_do_not_fail() {
        let mut report = Report::new(true);
        report.add(&BenchmarkResult { name: "x", value: 3.0, unit: "ms", limit: 1.0, goal: Goal::Aim(1.0) });
        assert!(report.finish());
        report.add(&BenchmarkResult { name: "y", value: 3.0, unit: "ms", limit: 1.0, goal: Goal::AtMost(1.0) });
        assert!(!report.finish());
    }
}
