//! Which dead containers and sandboxes are removed. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::ContainerGc;

/// A container that does not run. Times are nanoseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadContainer {
    pub(crate) id: String,
    pub(crate) pod: String,
    pub(crate) name: String,
    pub(crate) created_at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) pod: String,
    pub(crate) created_at: i64,
    pub(crate) is_ready: bool,
}

/// The containers to remove, the oldest first. All of a pod for which `is_over` is true are removed.
pub(crate) fn dead(
    all: Vec<DeadContainer>,
    is_over: impl Fn(&str) -> bool,
    policy: &ContainerGc,
    now: i64,
) -> Vec<String> {
    let least = i64::try_from(policy.minimum_age.as_nanos()).unwrap_or(i64::MAX);
    let mut units: BTreeMap<(String, String), Vec<DeadContainer>> = BTreeMap::new();
    let mut going = Vec::new();
    for one in all.into_iter().filter(|one| now - one.created_at >= least) {
        match is_over(&one.pod) {
            true => going.push(one),
            false => units.entry((one.pod.clone(), one.name.clone())).or_default().push(one),
        }
    }
    let newest_first = |a: &DeadContainer, b: &DeadContainer| (b.created_at, &b.id).cmp(&(a.created_at, &a.id));
    let mut kept = Vec::new();
    let share = policy.most.map(|most| (most / units.len().max(1)).max(1));
    let own = policy.per_container.unwrap_or(usize::MAX);
    let count: usize = units.values().map(|unit| unit.len().min(own)).sum();
    // Every container loses some of its dead instances before any loses all.
    let own = share.filter(|_| policy.most.is_some_and(|most| count > most)).map_or(own, |share| own.min(share));
    for mut unit in units.into_values() {
        unit.sort_by(newest_first);
        going.extend(unit.split_off(own.min(unit.len())));
        kept.append(&mut unit);
    }
    kept.sort_by(newest_first);
    going.extend(kept.split_off(policy.most.unwrap_or(usize::MAX).min(kept.len())));
    going.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    going.into_iter().map(|one| one.id).collect()
}

/// Sandboxes without containers that are not ready: all of a pod that is over, all but the newest of another.
pub(crate) fn sandboxes(all: Vec<Sandbox>, used: &BTreeSet<String>, is_over: impl Fn(&str) -> bool) -> Vec<String> {
    let mut pods: BTreeMap<String, Vec<Sandbox>> = BTreeMap::new();
    for one in all {
        pods.entry(one.pod.clone()).or_default().push(one);
    }
    let mut going = Vec::new();
    for (pod, mut own) in pods {
        own.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        let kept = usize::from(!is_over(&pod));
        let spare = own.into_iter().skip(kept).filter(|one| !one.is_ready && !used.contains(&one.id));
        going.extend(spare.map(|one| one.id));
    }
    going
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn all(names: &[(&str, &str, i64)]) -> Vec<DeadContainer> {
        let one = |(pod, name, at): &(&str, &str, i64)| DeadContainer {
            id: format!("{pod}{name}{at}"),
            pod: pod.to_string(),
            name: name.to_string(),
            created_at: *at,
        };
        names.iter().map(one).collect()
    }

    #[test]
    fn removes_dead_containers_by_age_and_number() {
        let there = [
            ("p", "a", 1),
            ("p", "a", 3),
            ("p", "a", 2),
            ("p", "b", 4),
            ("q", "a", 5),
            ("q", "a", 6),
            ("over", "a", 7),
        ];
        let upstream = ContainerGc::default();
        let policy =
            |age, per_container, most| ContainerGc { minimum_age: Duration::from_nanos(age), per_container, most };
        let cases: [(ContainerGc, &[&str]); 7] = [
            (policy(0, Some(2), Some(5)), &["pa1", "overa7"]),
            (upstream, &["pa1", "pa2", "qa5", "overa7"]),
            (policy(0, Some(0), None), &["pa1", "pa2", "pa3", "pb4", "qa5", "qa6", "overa7"]),
            (policy(0, None, None), &["overa7"]),
            (policy(8, Some(1), None), &["pa1"]),
            (policy(0, Some(2), Some(3)), &["pa1", "pa2", "qa5", "overa7"]),
            (policy(0, None, Some(1)), &["pa1", "pa2", "pa3", "pb4", "qa5", "overa7"]),
        ];
        for (policy, want) in cases {
            assert_eq!(dead(all(&there), |pod| pod == "over", &policy, 10), want, "{policy:?}");
        }
    }

    #[test]
    fn keeps_the_newest_sandbox_of_a_pod() {
        let one = |id: &str, pod: &str, created_at, is_ready| Sandbox {
            id: id.to_string(),
            pod: pod.to_string(),
            created_at,
            is_ready,
        };
        let there = || {
            vec![
                one("1", "p", 1, false),
                one("2", "p", 2, false),
                one("3", "p", 3, false),
                one("4", "q", 4, true),
                one("5", "q", 5, false),
                one("6", "over", 6, false),
            ]
        };
        let used = BTreeSet::from(["2".to_string()]);
        assert_eq!(sandboxes(there(), &used, |pod| pod == "over"), ["6", "1"]);
        assert_eq!(sandboxes(there(), &used, |_| false), ["1"]);
    }
}
