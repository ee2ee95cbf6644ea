//! Priority: sets a pod's priority and preemption policy from its priority class, or from the global default.

use std::sync::Arc;

use api::status::Status;
use api::{Map, Tree};

use super::{Attributes, Operation};

const STORAGE: &str = "priorityclasses";

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.is("", "Pod", Operation::Update) {
        old.into_iter().for_each(|old| keep_old(pod, old));
    }
    if !attributes.is("", "Pod", Operation::Create) {
        return Ok(());
    }
    let name = pod.str("spec.priorityClassName");
    let class = if name.is_empty() {
        global_default(&attributes.registry.storage.objects(STORAGE, "")).map(Arc::new)
    } else {
        let missing = || attributes.forbidden(format!("no PriorityClass with name {name} was found"));
        Some(attributes.registry.storage.object(STORAGE, name).ok_or_else(missing)?)
    };
    set_priority(pod, class.as_deref()).map_err(|why| attributes.forbidden(&why))
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    class: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let group = "scheduling.k8s.io";
    let create = attributes.is(group, "PriorityClass", Operation::Create);
    let update = attributes.is(group, "PriorityClass", Operation::Update);
    if !(create || update) || !class.is_some_and(|class| class.bool("globalDefault")) {
        return Ok(());
    }
    match global_default(&attributes.registry.storage.objects(STORAGE, "")) {
        Some(other) if create || other.str("metadata.name") != attributes.name => Err(attributes.forbidden(format!(
            "PriorityClass {} is already marked as default. Only one default can exist",
            other.str("metadata.name")
        ))),
        _ => Ok(()),
    }
}

/// Keeps the values from the pod's creation if an update omits them.
fn keep_old(pod: &mut Tree, old: &Tree) {
    for key in ["priority", "preemptionPolicy"] {
        if !pod.at("spec").has(key) && old.at("spec").has(key) {
            pod.child("spec").set(key, old.at("spec").at(key).clone());
        }
    }
}

/// A race may create two defaults: the lower one is used.
fn global_default(classes: &[Tree]) -> Option<Tree> {
    let defaults = classes.iter().filter(|class| class.bool("globalDefault"));
    defaults.min_by_key(|class| class.int("value")).cloned()
}

/// A pod that sets what its priority class decides.
#[derive(Debug, thiserror::Error)]
enum PriorityError {
    #[error(
        "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
    )]
    Priority { given: i64, computed: i64 },
    #[error(
        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
    )]
    PreemptionPolicy { given: String, computed: String },
}

fn set_priority(pod: &mut Tree, class: Option<&Tree>) -> Result<(), PriorityError> {
    let none = Tree::Map(Map::new());
    let class = class.unwrap_or(&none);
    let priority = class.int("value").unwrap_or(0);
    let policy = match class.str("preemptionPolicy") {
        "" => "PreemptLowerPriority",
        policy => policy,
    };
    let spec = pod.child("spec");
    if let Some(given) = spec.int("priority").filter(|given| *given != priority) {
        return Err(PriorityError::Priority { given, computed: priority });
    }
    let given = spec.str("preemptionPolicy");
    if !given.is_empty() && given != policy {
        return Err(PriorityError::PreemptionPolicy { given: given.to_string(), computed: policy.to_string() });
    }
    spec.set("priority", priority);
    spec.set("preemptionPolicy", policy);
    if class.has("metadata") {
        spec.set("priorityClassName", class.str("metadata.name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn priority_comes_from_the_class() {
        let high = json(r#"{"metadata":{"name":"high"},"value":1000,"preemptionPolicy":"Never"}"#);
        let check = |spec: &str, class: Option<&Tree>, want: &str| {
            let mut pod = json(&format!(r#"{{"spec":{spec}}}"#));
            let got = match set_priority(&mut pod, class) {
                Ok(()) => format!(
                    "{} {} {}",
                    pod.str("spec.priorityClassName"),
                    pod.int("spec.priority").unwrap_or(-1),
                    pod.str("spec.preemptionPolicy")
                ),
                Err(why) => why.to_string()[..30].to_string(),
            };
            assert_eq!(got, want);
        };
        check("{}", None, " 0 PreemptLowerPriority");
        check("{}", Some(&high), "high 1000 Never");
        check(r#"{"priority":1000}"#, Some(&high), "high 1000 Never");
        check(r#"{"priority":5}"#, Some(&high), "the integer value of priority ");
        check(r#"{"preemptionPolicy":"PreemptLowerPriority"}"#, Some(&high), "the string value of Preemption");
    }

    #[test]
    fn uses_the_lower_of_two_defaults() {
        let classes = [
            json(r#"{"metadata":{"name":"a"},"value":9,"globalDefault":true}"#),
            json(r#"{"metadata":{"name":"b"},"value":3,"globalDefault":true}"#),
            json(r#"{"metadata":{"name":"c"},"value":1}"#),
        ];
        assert_eq!(global_default(&classes).map(|class| class.str("metadata.name").to_string()).as_deref(), Some("b"));
    }
}
