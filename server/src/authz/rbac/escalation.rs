//! Nobody can give what they do not have: who writes a role must hold all of its rules, who binds one
//! all of the role's, unless they may `escalate` or `bind` by name.

use std::borrow::Cow;

use api::status::Status;
use api::{Str, Tree};
use kinds::User;

use super::super::rules::{has, has_or_all, url_matches};
use super::super::union::{aggregate, is_master};
use super::super::{Attributes, Rule};
use super::GROUP;
use crate::write::Scope;

/// Judges a write to one of the four kinds; every other one passes.
pub async fn check(scope: &Scope<'_>, name: &str, object: &Tree, old: Option<&Tree>) -> Result<(), Status> {
    let kind = scope.resource.kind;
    if kind.group != GROUP || is_master(scope.user) || old.is_some_and(|old| only_owners_change(object, old)) {
        return Ok(());
    }
    let refused = match kind.kind {
        "Role" | "ClusterRole" => role(scope, name, object, old).await,
        "RoleBinding" | "ClusterRoleBinding" => binding(scope, object).await?,
        _ => None,
    };
    match refused {
        None => Ok(()),
        Some(why) => Err(Status::forbidden(kind.group, kind.plural, name, &why)),
    }
}

/// The garbage collector must be able to finish what others own.
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
    let asked = if old.is_some() { name } else { "" };
    if may(scope, "escalate", scope.resource.kind.plural, asked).await {
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
    match scope.server.rbac.role_rules(reference, scope.namespace) {
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
    scope.server.authz.wait(&attributes).await.is_allowed()
}

/// What the writer does not hold, as a text.
fn missing(scope: &Scope<'_>, wanted: &[Rule]) -> Option<String> {
    let (own, errors) = scope.server.rbac.rules_of(scope.user, scope.namespace);
    let uncovered: Vec<Rule> = wanted.iter().flat_map(break_down).filter(|rule| !covers(&own, rule)).collect();
    (!uncovered.is_empty()).then(|| describe(scope.user, uncovered, errors))
}

fn everything() -> [Rule; 2] {
    let all = || vec![Str::const_new("*")];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), urls: all(), ..Rule::default() },
    ]
}

/// The rule as many that each have one verb, one resource and at most one name.
fn break_down(rule: &Rule) -> Vec<Rule> {
    let mut parts = Vec::new();
    let one = |word: &Str| vec![word.clone()];
    for (group, resource) in rule.groups.iter().flat_map(|group| rule.resources.iter().map(move |r| (group, r))) {
        for verb in &rule.verbs {
            let part = Rule { verbs: one(verb), groups: one(group), resources: one(resource), ..Rule::default() };
            match rule.names.is_empty() {
                true => parts.push(part),
                false => parts.extend(rule.names.iter().map(|name| Rule { names: one(name), ..part.clone() })),
            }
        }
    }
    for url in &rule.urls {
        parts.extend(rule.verbs.iter().map(|verb| Rule { verbs: one(verb), urls: one(url), ..Rule::default() }));
    }
    parts
}

/// Whether one of the rules covers a part.
fn covers(own: &[Rule], part: &Rule) -> bool {
    own.iter().any(|rule| {
        part.verbs.iter().all(|verb| has_or_all(&rule.verbs, verb))
            && part.groups.iter().all(|group| has_or_all(&rule.groups, group))
            && part.resources.iter().all(|resource| covers_resource(rule, resource))
            && part.urls.iter().all(|url| rule.urls.iter().any(|own| url_matches(own, url)))
            && (rule.names.is_empty() || (!part.names.is_empty() && part.names.iter().all(|n| has(&rule.names, n))))
    })
}

fn covers_resource(rule: &Rule, resource: &str) -> bool {
    let part = resource.split_once('/').map(|(_, part)| format!("*/{part}"));
    has_or_all(&rule.resources, resource) || part.is_some_and(|part| has(&rule.resources, &part))
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

/// Parts that differ in their verb alone become one again.
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
    fn rules_are_covered_part_by_part() {
        let rule = |text: &str| Rule::read(&crate::bootstrap::rbac::rule(text));
        let check = |own: &[&str], wanted: &str, want: &[&str]| {
            let own: Vec<Rule> = own.iter().map(|text| rule(text)).collect();
            let left = break_down(&rule(wanted)).into_iter().filter(|part| !covers(&own, part)).collect();
            let mut lines: Vec<String> = compact(left).iter().map(shown).collect();
            lines.sort();
            assert_eq!(lines, want, "{wanted}");
        };
        check(&["get list : core : pods"], "get : core : pods", &[]);
        check(&["* : * : *"], "get delete : apps core : pods/log", &[]);
        check(
            &["get : core : pods"],
            "get delete : core : pods",
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#],
        );
        check(&["get : core : */log"], "get : core : pods/log", &[]);
        check(&["get : core : pods : a b"], "get : core : pods : a", &[]);
        check(
            &["get : core : pods : a"],
            "get : core : pods",
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        );
        check(
            &[],
            "get list : core : pods : a",
            &[r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get" "list"]}"#],
        );
        check(&["get url /a/*"], "get url /a/b", &[]);
        check(&["* : * : *"], "* url *", &[r#"{NonResourceURLs:["*"], Verbs:["*"]}"#]);
    }

    #[test]
    fn what_the_collector_changes_needs_no_rights() {
        let role = |meta: &str, verb: &str| {
            crate::admission::tests::json(&format!(r#"{{"metadata":{{{meta}}},"rules":[{{"verbs":["{verb}"]}}]}}"#))
        };
        let old = role(r#""finalizers":["a"]"#, "get");
        assert!(only_owners_change(&role("", "get"), &old));
        assert!(!only_owners_change(&role("", "list"), &old));
        assert!(!only_owners_change(&old, &old), "nothing is changed: it is judged as any write");
    }
}
