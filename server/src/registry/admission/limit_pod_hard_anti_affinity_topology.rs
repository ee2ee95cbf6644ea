//! LimitPodHardAntiAffinityTopology: a pod may keep other pods off its node, but not off a larger topology domain.

use api::Tree;
use api::status::Status;

use super::{Attributes, Operation};

const HOSTNAME: &str = "kubernetes.io/hostname";
const TERMS: &str = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution";

pub(super) fn validate(
    attributes: &Attributes<'_>,
    pod: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let write = attributes.is("", "Pod", Operation::Create) || attributes.is("", "Pod", Operation::Update);
    let Some(pod) = pod.filter(|_| write) else { return Ok(()) };
    match wide_key(pod) {
        Some(key) => Err(attributes.forbidden(format!(
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
        ))),
        None => Ok(()),
    }
}

fn wide_key(pod: &Tree) -> Option<&str> {
    pod.list(TERMS).iter().map(|term| term.str("topologyKey")).find(|key| *key != HOSTNAME)
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn only_the_node_is_narrow_enough() {
        let pod = |keys: &str| {
            let terms = format!(r#"{{"requiredDuringSchedulingIgnoredDuringExecution":{keys}}}"#);
            json(&format!(r#"{{"spec":{{"affinity":{{"podAntiAffinity":{terms}}}}}}}"#))
        };
        assert_eq!(wide_key(&pod(r#"[{"topologyKey":"kubernetes.io/hostname"}]"#)), None);
        assert_eq!(wide_key(&pod(r#"[{"topologyKey":"zone"}]"#)), Some("zone"));
        assert_eq!(wide_key(&json("{}")), None);
    }
}
