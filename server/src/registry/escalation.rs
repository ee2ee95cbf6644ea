//! Prevents privilege escalation: a user who writes a role must hold all of its rules, and one who binds a role all of
//! the role's rules, unless they may `escalate` or `bind`.

use std::borrow::Cow;

use api::status::Status;
use api::{Str, Tree};
use kinds::User;

use super::write::Scope;
use crate::authorization::rbac::{GROUP, cover};
use crate::authorization::{Attributes, Rule, aggregate, is_master};

/// Checks a write to one of the four kinds; all other writes pass.
pub(crate) async fn check(scope: &Scope<'_>, name: &str, object: &Tree, old: Option<&Tree>) -> Result<(), Status> {
    let kind = &scope.resource.kind;
    if kind.group() != GROUP || is_master(scope.user) || old.is_some_and(|old| only_owners_change(object, old)) {
        return Ok(());
    }
    let refused = match kind.kind() {
        "Role" | "ClusterRole" => role(scope, name, object, old).await,
        "RoleBinding" | "ClusterRoleBinding" => binding(scope, object).await?,
        _ => None,
    };
    match refused {
        None => Ok(()),
        Some(why) => Err(Status::forbidden(kind.group(), kind.plural(), name, &why)),
    }
}

/// The garbage collector must be able to finish objects of other users.
fn only_owners_change(object: &Tree, old: &Tree) -> bool {
    let bare = |tree: &Tree| {
        let mut tree = tree.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            tree.remove_at(&format!("metadata.{field}"));
        }
        tree
    };
    bare(object) == bare(old) && object != old
}

async fn role(scope: &Scope<'_>, name: &str, object: &Tree, old: Option<&Tree>) -> Option<String> {
    // The name of what is created is not in the request's path.
    let requested = if old.is_some() { name } else { "" };
    if may(scope, "escalate", scope.resource.kind.plural(), requested).await {
        return None;
    }
    if let Some(why) = missing(scope, &Rule::read_all(object)) {
        return Some(why);
    }
    let gathers = |role: &Tree| !role.list("aggregationRule.clusterRoleSelectors").is_empty();
    if (gathers(object) || old.is_some_and(gathers)) && missing(scope, &everything()).is_some() {
        return Some("must have cluster-admin privileges to use the aggregationRule".to_string());
    }
    None
}

async fn binding(scope: &Scope<'_>, object: &Tree) -> Result<Option<String>, Status> {
    let reference = object.at("roleRef");
    let plural = match reference.str("kind") {
        "ClusterRole" => "clusterroles",
        _ => "roles",
    };
    if may(scope, "bind", plural, reference.str("name")).await {
        return Ok(None);
    }
    match scope.registry.rbac.role_rules(reference, scope.namespace) {
        Ok(rules) => Ok(missing(scope, &rules)),
        Err(_) => Err(Status::not_found(GROUP, &reference.str("kind").to_lowercase(), reference.str("name"))),
    }
}

async fn may(scope: &Scope<'_>, verb: &str, plural: &str, name: &str) -> bool {
    let attributes = Attributes {
        namespace: scope.namespace,
        name: Cow::Borrowed(name),
        ..Attributes::resource(scope.user, verb, GROUP, plural)
    };
    scope.registry.authorizer.wait(&attributes).await.is_allowed()
}

/// The rules that the writer does not hold, as a text.
fn missing(scope: &Scope<'_>, wanted: &[Rule]) -> Option<String> {
    let (own, errors) = scope.registry.rbac.rules_of(scope.user, scope.namespace);
    let uncovered = cover::uncovered(&own, wanted);
    (!uncovered.is_empty()).then(|| describe(scope.user, uncovered, errors.iter().map(ToString::to_string).collect()))
}

fn everything() -> [Rule; 2] {
    let all = || vec![Str::const_new("*")];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), urls: all(), ..Rule::default() },
    ]
}

fn describe(user: &User, uncovered: Vec<Rule>, errors: Vec<String>) -> String {
    let mut lines: Vec<String> = compact(uncovered).iter().map(shown).collect();
    lines.sort();
    lines.dedup();
    let mut text = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(user.groups.iter().map(String::as_str)),
        lines.join("\n"),
    );
    if let Some(errors) = aggregate(errors) {
        text.push_str(&format!("; resolution errors: [{errors}]"));
    }
    text
}

/// Merges parts that differ only in their verb.
fn compact(parts: Vec<Rule>) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for part in parts {
        let same = |rule: &&mut Rule| {
            rule.urls.is_empty()
                && part.urls.is_empty()
                && rule.groups == part.groups
                && rule.resources == part.resources
                && rule.names == part.names
        };
        match rules.iter_mut().find(same) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => rules.push(part),
        }
    }
    rules
}

fn shown(rule: &Rule) -> String {
    let fields = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let shown = fields.iter().filter(|(_, words)| !words.is_empty());
    let parts: Vec<String> =
        shown.map(|(name, words)| format!("{name}:{}", quoted(words.iter().map(Str::as_str)))).collect();
    format!("{{{}}}", parts.join(", "))
}

fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rules_are_listed_compactly() {
        let rule = |text: &str| Rule::read(&crate::authorization::rbac::policy::rule(text));
        let user = User { name: "ed".to_string(), groups: vec!["a".to_string(), "b".to_string()], ..User::default() };
        let wanted = [rule("get list : core : pods : x"), rule("* url *"), rule("get : apps : deployments")];
        let text = describe(&user, cover::uncovered(&[], &wanted), vec!["gone".to_string()]);
        let want = concat!(
            "user \"ed\" (groups=[\"a\" \"b\"]) is attempting to grant RBAC permissions not currently held:\n",
            "{APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"x\"], Verbs:[\"get\" \"list\"]}\n",
            "{APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"get\"]}\n",
            "{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}; resolution errors: [gone]",
        );
        assert_eq!(text, want);
    }

    #[test]
    fn garbage_collector_changes_need_no_permission() {
        let role = |meta: &str, verb: &str| {
            crate::registry::admission::tests::json(&format!(
                r#"{{"metadata":{{{meta}}},"rules":[{{"verbs":["{verb}"]}}]}}"#
            ))
        };
        let old = role(r#""finalizers":["a"]"#, "get");
        assert!(only_owners_change(&role("", "get"), &old));
        assert!(!only_owners_change(&role("", "list"), &old));
        assert!(!only_owners_change(&old, &old), "nothing is changed: it is judged as any write");
    }
}
