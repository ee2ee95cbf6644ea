//! Pressure stall information of the machine.

use cri::{PsiData, PsiStats};

#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Pressures {
    pub(crate) cpu: Option<PsiStats>,
    pub(crate) memory: Option<PsiStats>,
    pub(crate) io: Option<PsiStats>,
}

impl Pressures {
    pub(crate) fn read() -> Pressures {
        let of = |name: &str| parse(&std::fs::read_to_string(format!("/proc/pressure/{name}")).ok()?);
        Pressures { cpu: of("cpu"), memory: of("memory"), io: of("io") }
    }
}

/// `some avg10=0.12 avg60=0.03 avg300=0.00 total=123456`, and the same with `full`, which older kernels have not of
/// cores.
fn parse(text: &str) -> Option<PsiStats> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(data);
    Some(PsiStats { some: Some(line("some ")?), full: line("full ") })
}

fn data(line: &str) -> PsiData {
    let text = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let number = |key: &str| text(key).and_then(|text| text.parse().ok()).unwrap_or(0.0);
    PsiData {
        total: text("total").and_then(|text| text.parse().ok()).unwrap_or(0),
        avg10: number("avg10"),
        avg60: number("avg60"),
        avg300: number("avg300"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_psi() {
        let text =
            "some avg10=0.12 avg60=0.03 avg300=0.00 total=123456\nfull avg10=0.00 avg60=0.01 avg300=0.00 total=7\n";
        let want = PsiStats {
            some: Some(PsiData { total: 123_456, avg10: 0.12, avg60: 0.03, avg300: 0.0 }),
            full: Some(PsiData { total: 7, avg60: 0.01, ..Default::default() }),
        };
        assert_eq!(parse(text), Some(want));
        assert_eq!(parse(""), None);
        assert_eq!(parse("some total=1\n").and_then(|stats| stats.full), None);
    }
}
