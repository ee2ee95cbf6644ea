//! Whether rules cover all permissions of other rules.

use api::Str;

use super::super::Rule;
use super::super::rules::{has, has_or_all, url_matches};

/// The parts of the required rules that the other rules do not grant.
pub(crate) fn uncovered(own: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted.iter().flat_map(break_down).filter(|part| !covers(own, part)).collect()
}

/// Splits a rule into rules with one verb, one resource and at most one name each.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_covered_part_by_part() {
        let rule = |text: &str| Rule::read(&crate::authorization::rbac::policy::rule(text));
        let check = |own: &[&str], wanted: &str, want: &[&str]| {
            let own: Vec<Rule> = own.iter().map(|text| rule(text)).collect();
            let left = uncovered(&own, &[rule(wanted)]);
            let want: Vec<Rule> = want.iter().map(|text| rule(text)).collect();
            assert_eq!(left, want, "{wanted}");
        };
        check(&["get list : core : pods"], "get : core : pods", &[]);
        check(&["* : * : *"], "get delete : apps core : pods/log", &[]);
        check(&["get : core : pods"], "get delete : core : pods", &["delete : core : pods"]);
        check(&["get : core : */log"], "get : core : pods/log", &[]);
        check(&["get : core : pods : a b"], "get : core : pods : a", &[]);
        check(&["get : core : pods : a"], "get : core : pods", &["get : core : pods"]);
        check(&[], "get list : core : pods : a", &["get : core : pods : a", "list : core : pods : a"]);
        check(&["get url /a/*"], "get url /a/b", &[]);
        check(&["* : * : *"], "* url *", &["* url *"]);
    }
}
