//! The order in which a pod is stopped.

use api::Tree;

use super::sidecars;
use crate::model::state::{Container, PodState};

/// One step of stopping a pod.
#[derive(Debug, PartialEq)]
pub(crate) enum StopCommand<'a> {
    /// Stop these containers concurrently.
    StopContainers(Vec<&'a Container>),
    StopSandbox {
        id: &'a str,
    },
}

/// The main containers first, then the sidecars in reverse order, then the sandboxes.
pub(crate) fn plan<'a>(pod: &Tree, state: &'a PodState) -> Vec<StopCommand<'a>> {
    let sidecars: Vec<&str> = sidecars(pod).map(|spec| spec.str("name")).collect();
    let is_sidecar = |seen: &&Container| sidecars.contains(&seen.name.as_str());
    let main = state.running().filter(|seen| !is_sidecar(seen)).collect();
    let named = |name: &str| state.running().filter(|seen| seen.name == name).collect::<Vec<_>>();
    let groups = std::iter::once(main).chain(sidecars.iter().rev().map(|name| named(name)));
    let containers = groups.filter(|group: &Vec<_>| !group.is_empty()).map(StopCommand::StopContainers);
    containers.chain(state.sandboxes.iter().map(|sandbox| StopCommand::StopSandbox { id: &sandbox.id })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::state::{Sandbox, Stage, container};

    fn state(containers: &[(&str, Stage)]) -> PodState {
        let seen = |(name, stage): &(&str, Stage)| {
            let metadata = Some(cri::ContainerMetadata { name: name.to_string(), ..Default::default() });
            container("s", cri::ContainerStatus { metadata, state: (*stage).into(), ..Default::default() })
        };
        let sandbox = Sandbox { id: "s".to_string(), ..Sandbox::default() };
        PodState { sandboxes: vec![sandbox], containers: containers.iter().map(seen).collect(), round: 0 }
    }

    fn check(containers: &[(&str, Stage)], expected: &[&str]) {
        let text = "{spec: {initContainers: [{name: i}, {name: s1, restartPolicy: Always}, {name: s2, restartPolicy: Always}]}}";
        let pod = api::yaml::decode(text.as_bytes()).expect("a pod");
        let state = state(containers);
        let word = |command: &StopCommand<'_>| match command {
            StopCommand::StopContainers(all) => all.iter().map(|seen| seen.name.as_str()).collect::<Vec<_>>().join("+"),
            StopCommand::StopSandbox { id } => format!("sandbox {id}"),
        };
        let words: Vec<String> = plan(&pod, &state).iter().map(word).collect();
        assert_eq!(words, expected, "{containers:?}");
    }

    #[test]
    fn stops_main_containers_then_sidecars_in_reverse_then_sandboxes() {
        let (running, exited) = (Stage::Running, Stage::Exited);
        check(&[], &["sandbox s"]);
        check(&[("a", running), ("b", exited), ("c", Stage::Unknown)], &["a+c", "sandbox s"]);
        check(&[("s1", running), ("a", running), ("s2", running), ("b", running)], &["a+b", "s2", "s1", "sandbox s"]);
        check(&[("s1", running), ("s2", exited), ("i", running)], &["i", "s1", "sandbox s"]);
    }
}
