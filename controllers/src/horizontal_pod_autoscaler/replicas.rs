//! Computes the replica count for a metric.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Tree;
use api::quantity::Quantity;
use api::time::{self, Timestamp};
use thiserror::Error;

use super::source::Samples;
use crate::support::conditions;
use crate::support::pods::is_ready;

/// Deviations within these tolerances are ignored, below and above the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerance {
    pub down: f64,
    pub up: f64,
}

impl Tolerance {
    fn covers(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// The pods of a target, and the settings for pods that just started.
pub(super) struct ReplicaCalculator<'a> {
    pub pods: &'a [Arc<Tree>],
    pub replicas: i64,
    pub tolerance: Tolerance,
    pub cpu_initialization_seconds: i64,
    pub initial_readiness_seconds: i64,
    pub now: Timestamp,
}

/// The replica count of a metric, and its current value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub replicas: i64,
    /// Percentage of the requested resources, for utilization targets.
    pub utilization: Option<i64>,
    /// In thousandths.
    pub value: i64,
}

/// The target of a per-pod metric.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// A percentage of the resource requests of the pods, or of one of their containers.
    Utilization { percent: i64, resource: &'a str, container: &'a str },
    /// An average in thousandths; `resource` is empty for custom metrics.
    Average { value: i64, resource: &'a str },
}

#[derive(Default)]
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";

/// Why no replica count can be computed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ReplicasError {
    #[error("{NO_PODS}")]
    NoPods,
    #[error("unable to calculate ready pods: {NO_PODS}")]
    NoReadyPods,
    #[error("did not receive metrics for any ready pods")]
    NoMetrics,
    #[error("no metrics returned matched known pods")]
    NoMatch,
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    MissingRequest { resource: String, container: String, pod: String },
}

impl ReplicaCalculator<'_> {
    /// For metrics of each pod.
    pub(crate) fn by_pods(&self, mut samples: Samples, target: Target<'_>) -> Result<Proposal, ReplicasError> {
        if self.pods.is_empty() {
            return Err(ReplicasError::NoPods);
        }
        let resource = match target {
            Target::Utilization { resource, .. } | Target::Average { resource, .. } => resource,
        };
        let groups = self.group(&samples, resource);
        samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
        let requests = match target {
            Target::Utilization { resource, container, .. } => self.requests(resource, container)?,
            Target::Average { .. } => BTreeMap::new(),
        };
        if samples.is_empty() {
            return Err(ReplicasError::NoMetrics);
        }
        let values: BTreeMap<String, i64> = samples.into_iter().map(|(name, sample)| (name, sample.value)).collect();
        let (ratio, proposal) = rate(&values, target, &requests)?;
        let replicas = self.assume_missing(values, ratio, target, &groups, &requests)?;
        Ok(Proposal { replicas, ..proposal })
    }

    /// Pods without metrics are assumed to have the value that makes the change smaller.
    fn assume_missing(
        &self,
        mut values: BTreeMap<String, i64>,
        ratio: f64,
        target: Target<'_>,
        groups: &Groups,
        requests: &BTreeMap<String, i64>,
    ) -> Result<i64, ReplicasError> {
        let unready_count = !groups.unready.is_empty() && ratio > 1.0;
        if !unready_count && groups.missing.is_empty() {
            let replicas = (ratio * groups.ready as f64).ceil() as i64;
            return Ok(if self.tolerance.covers(ratio) { self.replicas } else { replicas });
        }
        for name in &groups.missing {
            let assumed = match target {
                _ if ratio > 1.0 => 0,
                Target::Average { value, .. } => value,
                Target::Utilization { percent, .. } => {
                    requests.get(name).copied().unwrap_or(0) * percent.max(100) / 100
                }
            };
            values.insert(name.clone(), assumed);
        }
        if unready_count {
            values.extend(groups.unready.iter().map(|name| (name.clone(), 0)));
        }
        let (again, _) = rate(&values, target, requests)?;
        let turns = (ratio < 1.0 && again > 1.0) || (ratio > 1.0 && again < 1.0);
        let replicas = (again * values.len() as f64).ceil() as i64;
        let against = (again < 1.0 && replicas > self.replicas) || (again > 1.0 && replicas < self.replicas);
        Ok(if self.tolerance.covers(again) || turns || against { self.replicas } else { replicas })
    }

    fn group(&self, samples: &Samples, resource: &str) -> Groups {
        let mut groups = Groups::default();
        for pod in self.pods {
            let name = pod.str("metadata.name").to_string();
            if pod.at("metadata").has("deletionTimestamp") || pod.str("status.phase") == "Failed" {
                groups.ignored.insert(name);
            } else if pod.str("status.phase") == "Pending" {
                groups.unready.insert(name);
            } else if let Some(sample) = samples.get(&name) {
                if resource == "cpu" && self.is_starting(pod, sample.time, sample.window_seconds) {
                    groups.unready.insert(name);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name);
            }
        }
        groups
    }

    /// CPU usage during startup does not predict the later load.
    fn is_starting(&self, pod: &Tree, sampled: Timestamp, window_seconds: i64) -> bool {
        let seconds = |text: &str| time::parse(text).ok().map(|time| time.seconds);
        let (Some(condition), Some(start)) = (conditions::get(pod, "Ready"), seconds(pod.str("status.startTime")))
        else {
            return true;
        };
        let since = seconds(condition.str("lastTransitionTime")).unwrap_or(0);
        let is_unready = condition.str("status") == "False";
        if start + self.cpu_initialization_seconds > self.now.seconds {
            return is_unready || sampled.seconds < since + window_seconds;
        }
        is_unready && start + self.initial_readiness_seconds > since
    }

    /// The resource request of each pod, in thousandths.
    fn requests(&self, resource: &str, container: &str) -> Result<BTreeMap<String, i64>, ReplicasError> {
        let of = |pod: &Arc<Tree>| {
            let name = pod.str("metadata.name");
            let sidecars = pod.list("spec.initContainers").iter().filter(|one| one.str("restartPolicy") == "Always");
            let all = pod.list("spec.containers").iter().chain(sidecars);
            let mut sum = 0;
            for one in all.filter(|one| container.is_empty() || one.str("name") == container) {
                let request = one.map("resources.requests").str(resource);
                let request = Quantity::parse(request).map_err(|_| ReplicasError::MissingRequest {
                    resource: resource.to_string(),
                    container: one.str("name").to_string(),
                    pod: name.to_string(),
                })?;
                sum += request.milli_value();
            }
            Ok((name.to_string(), sum))
        };
        self.pods.iter().map(of).collect()
    }

    /// For a single value of another object.
    pub(crate) fn by_value(&self, value: i64, target: i64) -> Result<Proposal, ReplicasError> {
        let ratio = value as f64 / target as f64;
        let replicas = if self.replicas == 0 {
            ratio.ceil() as i64
        } else if self.tolerance.covers(ratio) {
            self.replicas
        } else {
            if self.pods.is_empty() {
                return Err(ReplicasError::NoReadyPods);
            }
            let runs = |pod: &&Arc<Tree>| pod.str("status.phase") == "Running" && is_ready(pod);
            (ratio * self.pods.iter().filter(runs).count() as f64).ceil() as i64
        };
        Ok(Proposal { replicas, utilization: None, value })
    }

    /// For a value of another object that is averaged over the pods.
    pub(crate) fn by_share(&self, value: i64, target: i64, there: i64) -> Proposal {
        let ratio = value as f64 / (target as f64 * there as f64);
        let wanted = (value as f64 / target as f64).ceil() as i64;
        let replicas = if self.tolerance.covers(ratio) { there } else { wanted };
        Proposal { replicas, utilization: None, value: (value as f64 / there as f64).ceil() as i64 }
    }
}

/// The ratio of the measured value to the target.
fn rate(
    values: &BTreeMap<String, i64>,
    target: Target<'_>,
    requests: &BTreeMap<String, i64>,
) -> Result<(f64, Proposal), ReplicasError> {
    let proposal = |utilization, value| Proposal { replicas: 0, utilization, value };
    match target {
        Target::Average { value: target, .. } => {
            let average = values.values().sum::<i64>() / values.len() as i64;
            Ok((average as f64 / target as f64, proposal(None, average)))
        }
        Target::Utilization { percent, .. } => {
            let known = values.iter().filter_map(|(name, value)| Some((*value, *requests.get(name)?)));
            let (used, requested, count) = known.fold((0, 0, 0), |sum: (i64, i64, i64), (used, requested)| {
                (sum.0 + used, sum.1 + requested, sum.2 + 1)
            });
            if requested == 0 {
                return Err(ReplicasError::NoMatch);
            }
            let utilization = used * 100 / requested;
            Ok((utilization as f64 / percent as f64, proposal(Some(utilization), used / count)))
        }
    }
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::super::source::Sample;
    use super::*;

    /// `phase/ready` of each pod; each requests 1000m.
    fn pods(states: &[&str]) -> Vec<Arc<Tree>> {
        let pod = |(at, state): (usize, &&str)| {
            let (phase, ready) = state.split_once('/').unwrap_or((state, "True"));
            let condition =
                format!(r#"{{"type":"Ready","status":"{ready}","lastTransitionTime":"1970-01-01T00:00:00Z"}}"#);
            let status =
                format!(r#"{{"phase":"{phase}","startTime":"1970-01-01T00:00:00Z","conditions":[{condition}]}}"#);
            let spec = r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}"#;
            let json = format!(r#"{{"metadata":{{"name":"p{at}"}},"spec":{spec},"status":{status}}}"#);
            Arc::new(decode(json.as_bytes()).expect("a pod"))
        };
        states.iter().enumerate().map(pod).collect()
    }

    fn measured(pods: &[Arc<Tree>], replicas: i64) -> ReplicaCalculator<'_> {
        ReplicaCalculator {
            pods,
            replicas,
            tolerance: Tolerance { down: 0.1, up: 0.1 },
            cpu_initialization_seconds: 300,
            initial_readiness_seconds: 30,
            now: Timestamp { seconds: 10_000, nanos: 0 },
        }
    }

    fn samples(values: &[i64]) -> Samples {
        let sample = |value: i64| Sample { value, time: Timestamp { seconds: 9_990, nanos: 0 }, window_seconds: 30 };
        values.iter().enumerate().map(|(at, value)| (format!("p{at}"), sample(*value))).collect()
    }

    fn check(states: &[&str], values: &[i64], percent: i64, want: Result<(i64, i64), &str>) {
        let pods = pods(states);
        let target = Target::Utilization { percent, resource: "cpu", container: "" };
        let found = measured(&pods, pods.len() as i64).by_pods(samples(values), target);
        let found = found.map(|proposal| (proposal.replicas, proposal.utilization.expect("a percentage")));
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, want.map_err(str::to_string), "{states:?} {values:?}");
    }

    #[test]
    fn scales_by_utilization() {
        check(&["Running"; 3], &[300, 500, 700], 30, Ok((5, 50)));
        check(&["Running"; 3], &[300, 300, 300], 50, Ok((2, 30)));
        check(&["Running"; 3], &[520, 520, 520], 50, Ok((3, 52)));
        // A pod that was never ready counts as idle when scaling up.
        check(&["Running", "Running", "Running/False"], &[600, 600, 999], 30, Ok((4, 60)));
        check(&["Running", "Running", "Pending"], &[300, 300], 50, Ok((2, 30)));
        check(&["Running", "Running", "Failed"], &[900, 900, 0], 50, Ok((4, 90)));
        // A pod without metrics counts as idle when scaling up and as fully used when scaling down.
        check(&["Running"; 3], &[900, 900], 50, Ok((4, 90)));
        check(&["Running"; 3], &[100, 100], 50, Ok((3, 10)));
        check(&["Running"; 2], &[], 50, Err("did not receive metrics for any ready pods"));
        check(&[], &[1], 50, Err(NO_PODS));
    }

    #[test]
    fn scales_by_averages_and_values() {
        let pods = pods(&["Running"; 3]);
        let average = |values: &[i64], value: i64| {
            let target = Target::Average { value, resource: "" };
            measured(&pods, 3).by_pods(samples(values), target).map(|proposal| (proposal.replicas, proposal.value))
        };
        assert_eq!(average(&[10_000, 20_000, 30_000], 10_000), Ok((6, 20_000)));
        assert_eq!(average(&[10_000, 10_000, 10_500], 10_000), Ok((3, 10_166)));
        let whole = |value: i64, target: i64, replicas: i64| {
            measured(&pods, replicas).by_value(value, target).map(|proposal| proposal.replicas)
        };
        assert_eq!(whole(20_000, 10_000, 3), Ok(6));
        assert_eq!(whole(10_500, 10_000, 3), Ok(3));
        assert_eq!(whole(2_500, 1_000, 0), Ok(3), "from none there are no ready ones to count");
        let shared = measured(&pods, 3).by_share(50_000, 10_000, 3);
        assert_eq!((shared.replicas, shared.value), (5, 16_667));
    }

    #[test]
    fn tolerance_can_differ_by_direction() {
        let pods = pods(&["Running"; 10]);
        let mut measured = measured(&pods, 10);
        measured.tolerance = Tolerance { down: 0.5, up: 0.0 };
        assert_eq!(measured.by_value(1_010, 1_000).map(|proposal| proposal.replicas), Ok(11));
        assert_eq!(measured.by_value(600, 1_000).map(|proposal| proposal.replicas), Ok(10));
    }

    #[test]
    fn utilization_needs_resource_requests() {
        let mut pods = pods(&["Running"]);
        Arc::make_mut(&mut pods[0]).child("spec").list_mut("containers")[0].remove("resources");
        let target = Target::Utilization { percent: 50, resource: "cpu", container: "" };
        let found = measured(&pods, 1).by_pods(samples(&[1]), target);
        let error = found.expect_err("no request").to_string();
        assert_eq!(error, "missing request for cpu in container c of Pod p0");
    }
}
