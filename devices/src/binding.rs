//! Binding conditions: a pod is bound once the drivers of its devices report that they are attached.

use crate::{Claim, DeviceStatus};

/// A driver reports that a device cannot be attached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device binding failed: claim={claim}, reason={reason}, message={message:?}")]
pub struct BindingFailure {
    claim: String,
    reason: String,
    message: String,
}

/// Whether all binding conditions of an allocated claim are true; an error if one of its failure conditions is.
pub fn is_ready_for_binding(claim: &Claim) -> Result<bool, BindingFailure> {
    let Some(allocation) = &claim.allocation else { return Ok(false) };
    for device in allocation.devices.iter().filter(|device| !device.binding_conditions.is_empty()) {
        let Some(status) = claim.device_statuses.iter().find(|status| status.id == device.id) else {
            return Ok(false);
        };
        for failure in &device.binding_failure_conditions {
            if let Some((_, true, reason, message)) = status.condition(failure) {
                let (reason, message) = (reason.to_string(), message.to_string());
                return Err(BindingFailure { claim: claim.name.to_string(), reason, message });
            }
        }
        if !device.binding_conditions.iter().all(|kind| status.condition(kind).is_some_and(|(_, is_true, ..)| *is_true))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

impl DeviceStatus {
    fn condition(&self, kind: &str) -> Option<&(api::Str, bool, api::Str, api::Str)> {
        self.conditions.iter().find(|(known, ..)| known == kind)
    }
}

#[cfg(test)]
mod tests {
    use api::{Tree, tree};

    use super::*;

    fn claim(conditions: &[(&str, &str)]) -> Claim {
        let result = tree! {
            "driver" => "d", "pool" => "p", "device" => "x",
            "bindingConditions" => vec![Tree::from("Attached")],
            "bindingFailureConditions" => vec![Tree::from("Broken")],
        };
        let condition = |(kind, status): &(&str, &str)| {
            tree! { "type" => *kind, "status" => *status, "reason" => "R", "message" => "m" }
        };
        let status = tree! {
            "driver" => "d", "pool" => "p", "device" => "x",
            "conditions" => conditions.iter().map(condition).collect::<Vec<_>>(),
        };
        Claim::read(&tree! {
            "metadata" => tree! { "name" => "c" },
            "status" => tree! {
                "allocation" => tree! { "devices" => tree! { "results" => vec![result] } },
                "devices" => vec![status],
            },
        })
    }

    #[test]
    fn conditions_decide_when_a_pod_is_bound() {
        let check = |conditions: &[(&str, &str)], want: Result<bool, &str>| {
            let ready = is_ready_for_binding(&claim(conditions)).map_err(|failure| failure.to_string());
            assert_eq!(ready, want.map_err(str::to_string), "{conditions:?}");
        };
        check(&[], Ok(false));
        check(&[("Attached", "False")], Ok(false));
        check(&[("Attached", "True"), ("Broken", "False")], Ok(true));
        let failed = "device binding failed: claim=c, reason=R, message=\"m\"";
        check(&[("Attached", "True"), ("Broken", "True")], Err(failed));
    }
}
