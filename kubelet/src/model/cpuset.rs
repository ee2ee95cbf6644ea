//! A set of logical CPUs, written as the kernel writes it: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<u32>);

/// A text that is no list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unable to parse {0:?}: expected numbers or ranges such as 0-3,8")]
pub(crate) struct ParseError(String);

/// No machine has more CPUs, and a typing error must not fill the memory.
const MOST: u32 = 1 << 16;

impl CpuSet {
    pub(crate) fn parse(text: &str) -> Result<CpuSet, ParseError> {
        let wrong = || ParseError(text.to_string());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < MOST);
            let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(CpuSet(cpus))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains_all(&self, other: &CpuSet) -> bool {
        other.0.is_subset(&self.0)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn and(&self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 & &other.0)
    }

    pub(crate) fn with(&self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 | &other.0)
    }

    pub(crate) fn without(&self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 - &other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        CpuSet(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let range = |(first, last): &(u32, u32)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        formatter.write_str(&ranges.iter().map(range).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_cpu_lists() {
        let cases = [("", ""), ("3", "3"), ("0-3,8", "0-3,8"), ("8,1,0,2", "0-2,8"), (" 5 , 5", "5"), ("0,1", "0-1")];
        for (text, want) in cases {
            assert_eq!(CpuSet::parse(text).map(|set| set.to_string()).as_deref(), Ok(want), "{text}");
        }
        for text in ["x", "1-", "3-1", ",", "1,,2", "-1", "0-99999999"] {
            assert!(CpuSet::parse(text).is_err(), "{text}");
        }
    }
}
