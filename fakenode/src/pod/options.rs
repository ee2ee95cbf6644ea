//! Options of the simulation of a pod, from its annotations.

use api::Tree;

pub(super) const EXIT_CODE: &str = "tiphys.io/fake-exit-code";
pub(super) const RUN_SECONDS: &str = "tiphys.io/fake-run-seconds";
pub(super) const READY_SECONDS: &str = "tiphys.io/fake-ready-seconds";
pub(super) const STOP_SECONDS: &str = "tiphys.io/fake-stop-seconds";

const NEVER: &str = "never";
const HELM_HOOK: &str = "helm.sh/hook";
/// The run time of a Job's pod without annotations.
const WORK_SECONDS: i64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SimulationOptions {
    /// After how many seconds the containers end, and with which code; None if they do not exit.
    pub end: Option<(i64, i64)>,
    /// After how many seconds a container is ready; None for never.
    pub ready_seconds: Option<i64>,
    /// How long a container takes to terminate after the signal.
    pub stop_seconds: i64,
}

/// The error message of an annotation that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InvalidAnnotation(pub String);

impl SimulationOptions {
    pub(super) fn of(pod: &Tree) -> Result<SimulationOptions, InvalidAnnotation> {
        let annotations = pod.map("metadata.annotations");
        let number = |name: &str, most: i64| match annotations.get(name).and_then(Tree::as_str) {
            None => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(number) if (0..=most).contains(&number) => Ok(Some(number)),
                _ => Err(InvalidAnnotation(format!("annotation {name}: {text:?} is not a number from 0 to {most}"))),
            },
        };
        let runs_on = annotations.str(RUN_SECONDS) == NEVER;
        let seconds = if runs_on { None } else { number(RUN_SECONDS, i64::from(u32::MAX))? };
        let code = number(EXIT_CODE, 255)?;
        let end = match (seconds, code) {
            _ if runs_on => None,
            (None, None) => is_awaited(pod).then_some((WORK_SECONDS, 0)),
            (seconds, code) => Some((seconds.unwrap_or(0), code.unwrap_or(0))),
        };
        let never = annotations.str(READY_SECONDS) == NEVER;
        let ready = if never { None } else { Some(number(READY_SECONDS, i64::from(u32::MAX))?.unwrap_or(0)) };
        Ok(SimulationOptions {
            end,
            ready_seconds: ready,
            stop_seconds: number(STOP_SECONDS, i64::from(u32::MAX))?.unwrap_or(0),
        })
    }
}

/// Whether a client waits until the pod has ended: those of Jobs, and those of Helm hooks.
fn is_awaited(pod: &Tree) -> bool {
    let is_job = |owner: &Tree| owner.bool("controller") && owner.str("kind") == "Job";
    let is_hook = pod.map("metadata.annotations").contains(HELM_HOOK);
    let of_job = pod.list("metadata.ownerReferences").iter().any(is_job);
    of_job || is_hook && pod.str("spec.restartPolicy") != "Always"
}

#[cfg(test)]
mod tests {
    use api::{Map, list, tree};

    use super::*;

    #[test]
    fn pods_that_are_waited_for_end_by_themselves() {
        let check = |owner: &str, annotations: &[(&str, &str)], restart: &str, want: Option<(i64, i64)>| {
            let mut map = Map::new();
            annotations.iter().for_each(|(name, value)| drop(map.insert(*name, *value)));
            let owners = list![tree! { "kind" => owner, "controller" => true }];
            let metadata = tree! { "annotations" => map, "ownerReferences" => owners };
            let pod = tree! { "metadata" => metadata, "spec" => tree! { "restartPolicy" => restart } };
            assert_eq!(SimulationOptions::of(&pod).map(|options| options.end), Ok(want), "{pod:?}");
        };
        check("ReplicaSet", &[], "Always", None);
        check("Job", &[], "Never", Some((1, 0)));
        check("Job", &[(RUN_SECONDS, "never")], "Never", None);
        check("Job", &[(RUN_SECONDS, "5")], "OnFailure", Some((5, 0)));
        check("Job", &[(EXIT_CODE, "2")], "Never", Some((0, 2)));
        check("", &[(HELM_HOOK, "test")], "Never", Some((1, 0)));
        check("", &[(HELM_HOOK, "test")], "Always", None);
    }

    #[test]
    fn annotations_say_how_a_pod_behaves() {
        let runs = SimulationOptions { end: None, ready_seconds: Some(0), stop_seconds: 0 };
        let read = |annotations: &[(&str, &str)]| {
            let mut map = Map::new();
            annotations.iter().for_each(|(name, value)| drop(map.insert(*name, *value)));
            SimulationOptions::of(&tree! { "metadata" => tree! { "annotations" => map } }).map_err(|why| why.0)
        };
        assert_eq!(read(&[]), Ok(runs));
        assert_eq!(read(&[(EXIT_CODE, "3")]), Ok(SimulationOptions { end: Some((0, 3)), ..runs }));
        assert_eq!(read(&[(RUN_SECONDS, "7")]), Ok(SimulationOptions { end: Some((7, 0)), ..runs }));
        assert_eq!(read(&[(READY_SECONDS, "never")]), Ok(SimulationOptions { ready_seconds: None, ..runs }));
        assert_eq!(read(&[(READY_SECONDS, "5")]), Ok(SimulationOptions { ready_seconds: Some(5), ..runs }));
        assert_eq!(read(&[(STOP_SECONDS, "9")]), Ok(SimulationOptions { stop_seconds: 9, ..runs }));
        assert_eq!(
            read(&[(EXIT_CODE, "256")]),
            Err(format!("annotation {EXIT_CODE}: \"256\" is not a number from 0 to 255"))
        );
        assert!(read(&[(RUN_SECONDS, "soon")]).is_err());
    }
}
