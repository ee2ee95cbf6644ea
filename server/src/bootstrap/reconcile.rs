//! Reconciles the default roles and bindings of an earlier start: missing rules and subjects are added, additions of
//! users stay, and an annotation of `false` leaves an object unchanged.

use std::sync::Arc;

use api::Tree;
use api::status::Status;

use super::{Object, create_missing, edit, find, scope, system_user};
use crate::Server;
use crate::authorization::Rule;
use crate::authorization::rbac::cover::uncovered;
use crate::registry::options::DeleteOptions;
use crate::registry::verbs::delete::delete_one;

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

#[derive(Debug, PartialEq)]
enum Plan {
    Keep,
    Change(Tree),
    /// The role of a binding is immutable.
    Replace,
}

pub(super) async fn run(server: &Arc<Server>, objects: Vec<Object>) -> Result<(), Status> {
    for object in objects {
        reconcile(server, object).await?;
    }
    Ok(())
}

async fn reconcile(server: &Arc<Server>, object: Object) -> Result<(), Status> {
    let (namespace, name) = (object.tree.str("metadata.namespace"), object.tree.str("metadata.name"));
    let resource = find(server, object.group, object.version, object.plural)?;
    let Some(item) = resource.cache()?.get(&resource.key(namespace, name)) else { return Ok(()) };
    match plan(&item.tree(), &object.tree) {
        Plan::Keep => Ok(()),
        Plan::Change(_) => {
            let place = (object.group, object.version, object.plural, namespace);
            let change = |stored: &mut Tree| {
                if let Plan::Change(changed) = plan(stored, &object.tree) {
                    *stored = changed;
                }
            };
            edit(server, place, name, change).await
        }
        Plan::Replace => {
            let user = system_user();
            let scope = scope(server, &resource, &user, namespace, "");
            delete_one(&scope, name, &DeleteOptions::default(), &mut Vec::new()).await?;
            create_missing(server, vec![object]).await
        }
    }
}

fn plan(stored: &Tree, wanted: &Tree) -> Plan {
    if stored.map("metadata.annotations").str(AUTOUPDATE) == "false" {
        return Plan::Keep;
    }
    if wanted.has("roleRef") && stored.at("roleRef") != wanted.at("roleRef") {
        return Plan::Replace;
    }
    let mut changed = stored.clone();
    for map in ["metadata.labels", "metadata.annotations"] {
        add_missing(&mut changed, map, wanted);
    }
    match wanted.has("roleRef") {
        true => add_subjects(&mut changed, wanted),
        false => add_rules(&mut changed, wanted),
    }
    if changed == *stored { Plan::Keep } else { Plan::Change(changed) }
}

fn add_missing(changed: &mut Tree, map: &str, wanted: &Tree) {
    for (key, value) in wanted.map(map).iter() {
        if changed.map(map).get(key).is_none() {
            changed.child(map).set(key, value.clone());
        }
    }
}

/// The rules of a role that gathers are the controller's business; its selectors are ours.
fn add_rules(changed: &mut Tree, wanted: &Tree) {
    let selectors = "aggregationRule.clusterRoleSelectors";
    if wanted.has("aggregationRule") {
        let missing: Vec<Tree> =
            wanted.list(selectors).iter().filter(|one| !changed.list(selectors).contains(one)).cloned().collect();
        if !missing.is_empty() {
            changed.child("aggregationRule").list_entry("clusterRoleSelectors").extend(missing);
        }
        return;
    }
    let missing = uncovered(&Rule::read_all(changed), &Rule::read_all(wanted));
    if !missing.is_empty() {
        changed.list_entry("rules").extend(missing.iter().map(Rule::to_tree));
    }
}

fn add_subjects(changed: &mut Tree, wanted: &Tree) {
    let same = |a: &Tree, b: &Tree| ["kind", "name", "namespace"].iter().all(|key| a.str(key) == b.str(key));
    let there = changed.list("subjects").to_vec();
    let missing = wanted.list("subjects").iter().filter(|one| !there.iter().any(|other| same(one, other)));
    let missing: Vec<Tree> = missing.cloned().collect();
    if !missing.is_empty() {
        changed.list_entry("subjects").extend(missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::admission::tests::json;

    fn role(annotation: &str, verbs: &str) -> Tree {
        json(&format!(
            r#"{{"metadata":{{"annotations":{{"{AUTOUPDATE}":"{annotation}"}}}},
                "rules":[{{"verbs":[{verbs}],"apiGroups":[""],"resources":["pods"]}}]}}"#
        ))
    }

    #[test]
    fn missing_rules_are_added_and_others_stay() {
        let wanted = role("true", r#""get","list""#);
        assert_eq!(plan(&wanted, &wanted), Plan::Keep);
        assert_eq!(plan(&role("true", r#""*""#), &wanted), Plan::Keep);
        assert_eq!(plan(&role("false", r#""get""#), &wanted), Plan::Keep, "its owner keeps it");
        let Plan::Change(changed) = plan(&role("true", r#""get","delete""#), &wanted) else { panic!("a change") };
        let verbs: Vec<_> = Rule::read_all(&changed).iter().map(|rule| rule.verbs.join(" ")).collect();
        assert_eq!(verbs, ["get delete", "list"]);
    }

    #[test]
    fn bindings_get_their_subjects_back_and_their_role() {
        let binding = |role: &str, subjects: &str| {
            json(&format!(r#"{{"roleRef":{{"kind":"ClusterRole","name":"{role}"}},"subjects":[{subjects}]}}"#))
        };
        let (ours, theirs) = (r#"{"kind":"Group","name":"g"}"#, r#"{"kind":"User","name":"u"}"#);
        let wanted = binding("r", ours);
        assert_eq!(plan(&binding("r", &format!("{theirs},{ours}")), &wanted), Plan::Keep);
        let Plan::Change(changed) = plan(&binding("r", theirs), &wanted) else { panic!("a change") };
        assert_eq!(changed.list("subjects").len(), 2);
        assert_eq!(plan(&binding("other", ours), &wanted), Plan::Replace);
    }

    #[test]
    fn gathering_roles_keep_their_rules() {
        let role = |selectors: &str, rules: &str| {
            json(&format!(r#"{{"aggregationRule":{{"clusterRoleSelectors":[{selectors}]}},"rules":[{rules}]}}"#))
        };
        let wanted = role(r#"{"matchLabels":{"a":"b"}}"#, "");
        assert_eq!(plan(&role(r#"{"matchLabels":{"a":"b"}}"#, r#"{"verbs":["get"]}"#), &wanted), Plan::Keep);
        let Plan::Change(changed) = plan(&role("", ""), &wanted) else { panic!("a change") };
        assert_eq!(changed.list("aggregationRule.clusterRoleSelectors").len(), 1);
    }
}
