//! One measured number beside its limit, and how it is shown.

/// What a ratio has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Must {
    AtLeast(f64),
    AtMost(f64),
    /// Wished for: shown, never failed.
    Aim(f64),
    /// Shown for its own sake.
    Nothing,
}

impl Must {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Must::AtLeast(bound) => ratio >= bound,
            Must::AtMost(bound) | Must::Aim(bound) => ratio <= bound,
            Must::Nothing => true,
        }
    }

    fn text(self) -> String {
        match self {
            Must::AtLeast(bound) => format!(">= {bound}"),
            Must::AtMost(bound) => format!("<= {bound}"),
            Must::Aim(bound) => format!("aim <= {bound}"),
            Must::Nothing => String::new(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
    /// In the same unit, measured in the same run.
    pub limit: f64,
    pub must: Must,
}

impl Figure {
    pub(crate) fn ratio(&self) -> f64 {
        if self.limit == 0.0 { 0.0 } else { self.value / self.limit }
    }

    pub(crate) fn ok(&self) -> bool {
        self.must.holds(self.ratio())
    }

    fn json(&self) -> String {
        format!(
            "{{\"name\":\"{}\",\"value\":{:.3},\"unit\":\"{}\",\"limit\":{:.3},\"ratio\":{:.3},\"must\":\"{}\",\"ok\":{}}}",
            self.name,
            self.value,
            self.unit,
            self.limit,
            self.ratio(),
            self.must.text(),
            self.ok()
        )
    }

    fn row(&self) -> String {
        let mark = if self.ok() { "ok" } else { "MISSED" };
        let (name, unit, must) = (self.name, self.unit, self.must.text());
        format!(
            "{name:<46} {:>12} {unit:<8} {:>12} {:>7.2}  {must:<10} {mark}",
            number(self.value),
            number(self.limit),
            self.ratio()
        )
    }
}

/// Four digits are as many as such a measurement is good for.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Shows figures as they come and remembers whether one missed.
pub(crate) struct Report {
    json: bool,
    missed: usize,
    shown: usize,
}

impl Report {
    pub(crate) fn new(json: bool) -> Report {
        Report { json, missed: 0, shown: 0 }
    }

    pub(crate) fn add(&mut self, figure: &Figure) {
        if self.json {
            println!("{}", figure.json());
        } else {
            if self.shown == 0 {
                println!("{:<46} {:>12} {:<8} {:>12} {:>7}  must", "figure", "value", "unit", "limit", "ratio");
            }
            println!("{}", figure.row());
        }
        self.shown += 1;
        if !figure.ok() && !matches!(figure.must, Must::Aim(_)) {
            self.missed += 1;
        }
    }

    /// Says what takes a while, on standard error: the figures are for other programs too.
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
            (Must::AtLeast(0.5), 50.0, true),
            (Must::AtLeast(0.5), 49.0, false),
            (Must::AtMost(1.2), 120.0, true),
            (Must::AtMost(1.2), 121.0, false),
            (Must::Nothing, 1.0, true),
        ];
        for (must, value, ok) in cases {
            let figure = Figure { name: "x", value, unit: "1/s", limit: 100.0, must };
            assert_eq!(figure.ok(), ok, "{must:?} {value}");
        }
    }

    #[test]
    fn missed_aims_do_not_fail() {
        let mut report = Report::new(true);
        report.add(&Figure { name: "x", value: 3.0, unit: "ms", limit: 1.0, must: Must::Aim(1.0) });
        assert!(report.finish());
        report.add(&Figure { name: "y", value: 3.0, unit: "ms", limit: 1.0, must: Must::AtMost(1.0) });
        assert!(!report.finish());
    }
}
