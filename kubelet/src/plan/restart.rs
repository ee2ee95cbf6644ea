//! Whether a container that has ended is started again.

use api::Tree;

use crate::pod;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    /// A container's own policy, or that of its pod.
    pub fn of(pod: &Tree, container: &Tree) -> Restart {
        let own = container.str("restartPolicy");
        match if own.is_empty() { pod.str("spec.restartPolicy") } else { own } {
            "Never" => Restart::Never,
            "OnFailure" => Restart::OnFailure,
            _ => Restart::Always,
        }
    }

    /// After it has ended with a code.
    pub fn after(pod: &Tree, container: &Tree, code: i32) -> bool {
        if pod::is_deleted(pod) {
            return false;
        }
        let rule = container.list("restartPolicyRules").iter().find(|rule| matches(rule, code));
        if let Some(rule) = rule {
            return rule.str("action").starts_with("Restart");
        }
        match Restart::of(pod, container) {
            Restart::Always => true,
            Restart::OnFailure => code != 0,
            Restart::Never => false,
        }
    }

    /// One that prepares is done once it has succeeded, whatever the pod's policy.
    pub fn after_init(pod: &Tree, container: &Tree, code: i32) -> bool {
        if pod::is_sidecar(container) {
            return !pod::is_deleted(pod);
        }
        code != 0 && Restart::after(pod, container, code)
    }
}

fn matches(rule: &Tree, code: i32) -> bool {
    let codes = rule.at("exitCodes");
    let listed = codes.list("values").iter().any(|value| value.as_int() == Some(i64::from(code)));
    match codes.str("operator") {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}
