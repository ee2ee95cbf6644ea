//! Roles, with one line for each resource, and bindings.

use api::Tree;

use super::values::texts;
use super::writer::{Writer, put};

#[derive(Debug, Clone, PartialEq, Default)]
struct Rule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    urls: Vec<String>,
}

pub(super) fn role(w: &mut Writer, object: &Tree) {
    head(w, object);
    w.write(0, "PolicyRule:\n");
    w.write(1, "Resources\tNon-Resource URLs\tResource Names\tVerbs\n");
    w.write(1, "---------\t-----------------\t--------------\t-----\n");
    for rule in compact(object.list("rules")) {
        let list = |items: &[String]| format!("[{}]", items.join(" "));
        let (urls, names) = (list(&rule.urls), list(&rule.names));
        put!(w, 1, "{}\t{urls}\t{names}\t{}\n", qualified(&rule), list(&rule.verbs));
    }
}

/// `pods.group/status`.
fn qualified(rule: &Rule) -> String {
    let Some(resource) = rule.resources.first() else { return String::new() };
    let (name, rest) = resource.split_once('/').map_or((resource.as_str(), None), |(name, rest)| (name, Some(rest)));
    let group = rule.groups.first().filter(|group| !group.is_empty());
    let name = group.map_or_else(|| name.to_string(), |group| format!("{name}.{group}"));
    rest.map_or(name.clone(), |rest| format!("{name}/{rest}"))
}

/// One rule for each resource and name with all of its verbs, in the order of upstream's text of a rule.
fn compact(rules: &[Tree]) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for single in rules.iter().flat_map(break_down) {
        let is_same = |known: &&mut Rule| {
            known.urls.is_empty()
                && single.urls.is_empty()
                && (&known.groups, &known.resources, &known.names) == (&single.groups, &single.resources, &single.names)
        };
        match out.iter_mut().find(is_same) {
            Some(known) => {
                let new: Vec<String> = single.verbs.into_iter().filter(|verb| !known.verbs.contains(verb)).collect();
                known.verbs.extend(new);
            }
            None => out.push(single),
        }
    }
    out.sort_by_cached_key(|rule| {
        format!(
            "Verbs:[{}],APIGroups:[{}],Resources:[{}],ResourceNames:[{}],NonResourceURLs:[{}],",
            rule.verbs.join(" "),
            rule.groups.join(" "),
            rule.resources.join(" "),
            rule.names.join(" "),
            rule.urls.join(" ")
        )
    });
    out
}

fn break_down(rule: &Tree) -> Vec<Rule> {
    let (verbs, names) = (texts(rule, "verbs"), texts(rule, "resourceNames"));
    let names: Vec<Vec<String>> =
        if names.is_empty() { vec![Vec::new()] } else { names.into_iter().map(|name| vec![name]).collect() };
    let mut out = Vec::new();
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for verb in &verbs {
                out.extend(names.iter().map(|names| Rule {
                    verbs: vec![verb.clone()],
                    groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    names: names.clone(),
                    urls: Vec::new(),
                }));
            }
        }
    }
    for url in texts(rule, "nonResourceURLs") {
        let of_verb = |verb: &String| Rule { verbs: vec![verb.clone()], urls: vec![url.clone()], ..Rule::default() };
        out.extend(verbs.iter().map(of_verb));
    }
    out
}

fn head(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
}

pub(super) fn binding(w: &mut Writer, object: &Tree) {
    head(w, object);
    w.write(0, "Role:\n");
    put!(w, 1, "Kind:\t{}\n", object.str("roleRef.kind"));
    put!(w, 1, "Name:\t{}\n", object.str("roleRef.name"));
    w.write(0, "Subjects:\n");
    w.write(1, "Kind\tName\tNamespace\n");
    w.write(1, "----\t----\t---------\n");
    for subject in object.list("subjects") {
        put!(w, 1, "{}\t{}\t{}\n", subject.str("kind"), subject.str("name"), subject.str("namespace"));
    }
}
