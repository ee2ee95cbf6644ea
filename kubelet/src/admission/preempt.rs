//! Which pods a critical pod preempts: as few as possible, and those of the lowest QoS class first. A pod of a higher
//! class is preempted only if all pods of lower classes together do not free enough.

use super::{AdmittedPod, PodAdmitAttributes};
use crate::model::pod::is_critical;
use crate::model::problem::Problem;
use crate::model::resources::Class;

pub(crate) const REASON: &str = "Preempting";
pub(crate) const MESSAGE: &str = "Preempted in order to admit critical pod";
pub(crate) const CONDITION: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// A missing amount of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) name: String,
    pub(crate) requested: i64,
    pub(crate) used: i64,
    pub(crate) all: i64,
}

impl Shortage {
    fn amount(&self) -> i64 {
        self.requested - (self.all - self.used)
    }
}

/// The amounts that are still missing.
type MissingResources = Vec<(String, i64)>;

/// The preempted pods, and the resource that was missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Preemption {
    /// Their uids.
    pub(crate) victims: Vec<String>,
    pub(crate) signal: String,
}

/// No pod is preempted for a pod that is not critical, or that fits.
pub(super) fn find_preemption(
    attributes: &PodAdmitAttributes<'_>,
    taken: &[&AdmittedPod],
    shortages: &[Shortage],
) -> Result<Preemption, Problem> {
    let Some(first) = shortages.first().filter(|_| is_critical(attributes.tree)) else {
        return Ok(Preemption::default());
    };
    let missing: MissingResources = shortages.iter().map(|short| (short.name.clone(), short.amount())).collect();
    let priority = attributes.tree.int("spec.priority");
    let of = |class: Class| -> Vec<&AdmittedPod> {
        taken.iter().copied().filter(|other| other.class == class && is_preemptable(other, priority)).collect()
    };
    let found = choose([of(Class::BestEffort), of(Class::Burstable), of(Class::Guaranteed)], &missing);
    let uids = |chosen: Vec<&AdmittedPod>| chosen.iter().map(|other| other.pod.uid.to_string()).collect();
    found.map(|chosen| Preemption { victims: uids(chosen), signal: first.name.clone() }).map_err(|left| Problem {
        reason: "UnexpectedAdmissionError".into(),
        message: format!(
            "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of \
             pods to preempt: no set of running pods found to reclaim resources: {}",
            text(&left)
        ),
    })
}

fn is_preemptable(other: &AdmittedPod, priority: Option<i64>) -> bool {
    !other.is_critical || priority.zip(other.priority).is_some_and(|(own, other)| own > other)
}

fn text(missing: &MissingResources) -> String {
    let each: String = missing.iter().map(|(name, amount)| format!("(res: {name}, q: {amount}), ")).collect();
    format!("[{each}]")
}

/// From each class what the other classes cannot free.
fn choose<'a>(
    [worst, middle, best]: [Vec<&'a AdmittedPod>; 3],
    missing: &MissingResources,
) -> Result<Vec<&'a AdmittedPod>, MissingResources> {
    let from_best = nearest(best, subtract_freed(missing, worst.iter().chain(&middle)))?;
    let from_middle = nearest(middle, subtract_freed(missing, worst.iter().chain(&from_best)))?;
    let from_worst = nearest(worst, subtract_freed(missing, from_middle.iter().chain(&from_best)))?;
    Ok(from_worst.into_iter().chain(from_middle).chain(from_best).collect())
}

/// One after the other, the pod that is nearest to the missing amount.
fn nearest(mut pods: Vec<&AdmittedPod>, mut missing: MissingResources) -> Result<Vec<&AdmittedPod>, MissingResources> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let rank = |pod: &AdmittedPod| (distance(pod, &missing), pod.request("memory"), pod.request("cpu"));
        let order = |a: &&(usize, _), b: &&(usize, _)| {
            let ((_, (near, memory, cpu)), (_, (other_near, other_memory, other_cpu))) = (*a, *b);
            f64::total_cmp(near, other_near).then((memory, cpu).cmp(&(other_memory, other_cpu)))
        };
        let ranked: Vec<(usize, (f64, i64, i64))> = pods.iter().map(|pod| rank(pod)).enumerate().collect();
        let Some((at, _)) = ranked.iter().min_by(order) else { return Err(missing) };
        let pod = pods.remove(*at);
        missing = subtract_freed(&missing, [&pod].into_iter());
        chosen.push(pod);
    }
    Ok(chosen)
}

fn distance(pod: &AdmittedPod, missing: &MissingResources) -> f64 {
    let of = |(name, amount): &(String, i64)| {
        let left = (*amount - pod.request(name)).max(0) as f64;
        (left / *amount as f64).powi(2)
    };
    missing.iter().map(of).sum()
}

fn subtract_freed<'a, 'b: 'a>(
    missing: &MissingResources,
    gone: impl Iterator<Item = &'a &'b AdmittedPod> + Clone,
) -> MissingResources {
    let left = |(name, amount): &(String, i64)| {
        let freed: i64 = gone.clone().map(|pod| pod.request(name)).sum();
        (name.clone(), amount - freed)
    };
    missing.iter().map(left).filter(|(_, amount)| *amount > 0).collect()
}

#[cfg(test)]
mod tests {
    use api::yaml;

    use super::*;

    /// A pod by its uid, class and requests of cpu and memory.
    fn pod(uid: &str, kind: &str, cpu: i64, memory: i64) -> AdmittedPod {
        let priority = if kind == "critical" { 2_000_000_000 } else { 5 };
        let amounts = format!("{{cpu: {cpu}m, memory: {memory}}}");
        let resources = match kind {
            "best-effort" => "{}".to_string(),
            "guaranteed" => format!("{{requests: {amounts}, limits: {amounts}}}"),
            _ => format!("{{requests: {amounts}}}"),
        };
        let spec = format!("{{priority: {priority}, containers: [{{name: c, resources: {resources}}}]}}");
        let text = format!("{{metadata: {{name: p, namespace: a, uid: {uid}}}, spec: {spec}}}");
        AdmittedPod::of(&yaml::decode(text.as_bytes()).expect("a pod"))
    }

    #[test]
    fn preempts_few_pods_of_the_lowest_class() {
        let there = [
            pod("be", "best-effort", 0, 0),
            pod("small", "burstable", 100, 100),
            pod("large", "burstable", 500, 500),
            pod("lean", "burstable", 500, 100),
            pod("full", "guaranteed", 1000, 1000),
            pod("own", "critical", 9000, 9000),
        ];
        let taken: Vec<&AdmittedPod> = there.iter().collect();
        let cases: [(&[(&str, i64)], &str); 7] = [
            (&[("cpu", 100)], "small"),
            // Both are enough: the one with the smaller request is preempted.
            (&[("cpu", 400)], "lean"),
            (&[("cpu", 400), ("memory", 300)], "large"),
            (&[("cpu", 600)], "lean small"),
            (&[("pods", 1)], "be"),
            (&[("cpu", 1200)], "lean full"),
            (&[("cpu", 3000)], "no: [(res: cpu, q: 900), ]"),
        ];
        for (missing, expected) in cases {
            let missing: MissingResources = missing.iter().map(|(name, amount)| (name.to_string(), *amount)).collect();
            let of = |class: Class| -> Vec<&AdmittedPod> {
                taken
                    .iter()
                    .copied()
                    .filter(|pod| pod.class == class && is_preemptable(pod, Some(2_000_000_000)))
                    .collect()
            };
            let found = choose([of(Class::BestEffort), of(Class::Burstable), of(Class::Guaranteed)], &missing);
            let result = match found {
                Ok(chosen) => chosen.iter().map(|pod| pod.pod.uid.to_string()).collect::<Vec<_>>().join(" "),
                Err(left) => format!("no: {}", text(&left)),
            };
            assert_eq!(result, expected, "{missing:?}");
        }
        assert!(is_preemptable(&there[5], Some(2_000_001_000)), "the more important one");
    }
}
