//! DefaultTolerationSeconds: a pod is evicted from a lost node after five minutes, unless it has its own tolerations.

use api::status::Status;
use api::{Tree, tree};

use super::{Attributes, Operation};

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if attributes.is("", "Pod", Operation::Create) || attributes.is("", "Pod", Operation::Update) {
        add_tolerations(pod);
    }
    Ok(())
}

fn add_tolerations(pod: &mut Tree) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !pod.list("spec.tolerations").iter().any(|toleration| tolerates(toleration, key)) {
            pod.child("spec").list_entry("tolerations").push(tree! {
                "key" => key, "operator" => "Exists", "effect" => "NoExecute", "tolerationSeconds" => 300,
            });
        }
    }
}

fn tolerates(toleration: &Tree, key: &str) -> bool {
    let same_key = [key, ""].contains(&toleration.str("key"));
    same_key && ["NoExecute", ""].contains(&toleration.str("effect"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn only_what_is_missing_is_added() {
        let check = |tolerations: &str, want: &[&str]| {
            let mut pod = json(&format!(r#"{{"spec":{{"tolerations":{tolerations}}}}}"#));
            let before = pod.list("spec.tolerations").len();
            add_tolerations(&mut pod);
            let added: Vec<&str> =
                pod.list("spec.tolerations")[before..].iter().map(|added| added.str("key")).collect();
            assert_eq!(added, want, "{tolerations}");
        };
        let (not_ready, unreachable) = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
        check("[]", &[not_ready, unreachable]);
        check(r#"[{"operator":"Exists"}]"#, &[]);
        check(r#"[{"key":"node.kubernetes.io/unreachable","operator":"Exists"}]"#, &[not_ready]);
        check(r#"[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]"#, &[not_ready, unreachable]);
    }
}
