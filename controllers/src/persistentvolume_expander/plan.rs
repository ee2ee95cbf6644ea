//! The CSI driver resizes a claim that requests more than its capacity; an event reports it.

use api::Tree;
use api::quantity::Quantity;

use crate::support::event_message::EventMessage;

pub(super) fn plan(claim: &Tree, volume: Option<&Tree>) -> Option<EventMessage> {
    let quantity = |path: &str| Quantity::parse(claim.str(path)).unwrap_or_default();
    let is_bound = claim.str("status.phase") == "Bound";
    let wants_more = quantity("spec.resources.requests.storage") > quantity("status.capacity.storage");
    let is_of = |volume: &Tree| volume.str("spec.claimRef.uid") == claim.str("metadata.uid");
    (is_bound && wants_more && volume.is_some_and(is_of))
        .then(|| EventMessage::normal("ExternalExpanding", "waiting for an external controller to expand this PVC"))
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn reports_waiting_for_the_resizer() {
        let claim = |phase: &str, request: &str| {
            tree! {
                "metadata" => tree! { "uid" => "u" },
                "spec" => tree! { "resources" => tree! { "requests" => tree! { "storage" => request } } },
                "status" => tree! { "phase" => phase, "capacity" => tree! { "storage" => "1Gi" } },
            }
        };
        let volume = tree! { "spec" => tree! { "claimRef" => tree! { "uid" => "u" } } };
        assert!(plan(&claim("Bound", "2Gi"), Some(&volume)).is_some());
        assert_eq!(plan(&claim("Bound", "1024Mi"), Some(&volume)), None);
        assert_eq!(plan(&claim("Pending", "2Gi"), Some(&volume)), None);
        assert_eq!(plan(&claim("Bound", "2Gi"), None), None);
    }
}
