//! The names of scheduled snapshots, which sort by their time, and which of them are removed.

use api::time::Timestamp;

const PREFIX: &str = "tiphys-";
const SUFFIX: &str = ".snapshot";
/// `20261118T204500Z`
const TIME: usize = 16;

/// The name of a snapshot at this time.
pub(super) fn name(now: Timestamp) -> String {
    let text = api::time::format_seconds(now.seconds);
    let time: String = text.chars().filter(|letter| letter.is_ascii_alphanumeric()).collect();
    format!("{PREFIX}{time}{SUFFIX}")
}

fn is_snapshot(name: &str) -> bool {
    let time = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    time.is_some_and(|time| time.len() == TIME && time.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// All but the newest scheduled snapshots. Other files are never removed.
pub(super) fn expired(names: &[String], retention: usize) -> Vec<&str> {
    let mut snapshots: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_snapshot(name)).collect();
    snapshots.sort_unstable();
    snapshots.truncate(snapshots.len().saturating_sub(retention));
    snapshots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_and_other_files() {
        let at = |seconds| name(Timestamp { seconds, nanos: 7 });
        assert_eq!(at(1_369_353_600), "tiphys-20130524T000000Z.snapshot");
        assert!(is_snapshot(&at(0)) && at(0) < at(1) && at(86_399) < at(86_400));
        let mut names: Vec<String> = (0..7).rev().map(at).collect();
        names.extend(
            ["mine.snapshot", "tiphys-x.snapshot", ".tiphys-20261118T201500Z.snapshot.partial"].map(str::to_string),
        );
        assert_eq!(expired(&names, 5), [at(0), at(1)]);
        assert!(expired(&names, 7).is_empty());
    }
}
