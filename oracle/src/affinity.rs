//! InterPodAffinity.

use api::Tree;
use api::selector::Selector;

use super::{Case, MAX_SCORE, Verdict, by_name, label};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn terms<'a>(pod: &'a Tree, kind: &str, when: &str) -> &'a [Tree] {
    pod.at("spec.affinity").at(kind).list(when)
}

/// Whether a term of `owner` matches `pod`.
fn term_matches(case: &Case<'_>, owner: &Tree, term: &Tree, pod: &Tree) -> bool {
    let selector = Selector::from_object(term.at("labelSelector")).unwrap_or_else(|_| Selector::nothing());
    in_namespace(case, owner, term, pod.str("metadata.namespace")) && selector.matches_map(pod.map("metadata.labels"))
}

/// Uses the owner's namespace if the term has none.
fn in_namespace(case: &Case<'_>, owner: &Tree, term: &Tree, namespace: &str) -> bool {
    let names = term.list("namespaces");
    if names.is_empty() && !term.has("namespaceSelector") {
        return owner.str("metadata.namespace") == namespace;
    }
    let selector = Selector::from_object(term.at("namespaceSelector")).unwrap_or_else(|_| Selector::nothing());
    let object = by_name(&case.world.namespaces, namespace).unwrap_or(&Tree::Null);
    names.iter().any(|name| name.as_str() == Some(namespace)) || selector.matches_map(object.map("metadata.labels"))
}

/// Every assigned pod with its node.
fn placed<'a>(case: &Case<'a>) -> impl Iterator<Item = (&'a Tree, &'a Tree)> {
    let world = case.world;
    world.nodes.iter().flat_map(|node| world.pods_on(node.str("metadata.name")).map(move |pod| (pod, node)))
}

/// Whether two nodes are in the same domain of the key.
fn share_domain(a: &Tree, b: &Tree, key: &str) -> bool {
    label(a, key).is_some() && label(a, key) == label(b, key)
}

pub(crate) fn filter(case: &Case<'_>, node: &Tree) -> Verdict {
    if !satisfies_affinity(case, node) {
        return Verdict::unresolvable("node(s) didn't match pod affinity rules");
    }
    if !satisfies_anti_affinity(case, node) {
        return Verdict::unschedulable("node(s) didn't match pod anti-affinity rules");
    }
    Verdict::fits_or(!is_repelled(case, node), || {
        Verdict::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
    })
}

/// For every required term a pod in the node's domain matches all terms. The first pod of a group may be alone.
fn satisfies_affinity(case: &Case<'_>, node: &Tree) -> bool {
    let terms = terms(case.pod, "podAffinity", REQUIRED);
    if terms.iter().any(|term| label(node, term.str("topologyKey")).is_none()) {
        return false;
    }
    let all_mean = |pod: &Tree| terms.iter().all(|term| term_matches(case, case.pod, term, pod));
    let company: Vec<&Tree> = placed(case).filter(|(pod, _)| all_mean(pod)).map(|(_, other)| other).collect();
    let here = |term: &Tree| company.iter().any(|other| share_domain(node, other, term.str("topologyKey")));
    let nowhere = company.iter().all(|other| terms.iter().all(|term| label(other, term.str("topologyKey")).is_none()));
    terms.iter().all(here) || (nowhere && all_mean(case.pod))
}

/// No pod in the node's domain matches an anti-affinity term.
fn satisfies_anti_affinity(case: &Case<'_>, node: &Tree) -> bool {
    let apart = |term: &Tree| {
        let mut near = placed(case).filter(|(_, other)| share_domain(node, other, term.str("topologyKey")));
        !near.any(|(pod, _)| term_matches(case, case.pod, term, pod))
    };
    terms(case.pod, "podAntiAffinity", REQUIRED).iter().all(apart)
}

/// A pod in the node's domain has an anti-affinity term that matches this one.
fn is_repelled(case: &Case<'_>, node: &Tree) -> bool {
    let avoided_by = |(pod, other): (&Tree, &Tree)| {
        let near = |term: &&Tree| share_domain(node, other, term.str("topologyKey"));
        terms(pod, "podAntiAffinity", REQUIRED).iter().filter(near).any(|term| term_matches(case, pod, term, case.pod))
    };
    placed(case).any(avoided_by)
}

pub(crate) fn score(case: &Case<'_>, nodes: &[&Tree]) -> Option<Vec<i64>> {
    let has_own = ["podAffinity", "podAntiAffinity"].iter().any(|kind| !terms(case.pod, kind, PREFERRED).is_empty());
    if case.settings.ignore_preferred_terms_of_existing_pods && !has_own {
        return None;
    }
    let wishes = preferences(case);
    if wishes.is_empty() {
        return None;
    }
    let sum = |node: &&Tree| {
        let near = wishes.iter().filter(|wish| share_domain(node, wish.node, wish.key));
        near.map(|wish| wish.weight).sum::<i64>()
    };
    let sums: Vec<i64> = nodes.iter().map(sum).collect();
    let (least, most) = (sums.iter().min().copied()?, sums.iter().max().copied()?);
    let scale = |sum: i64| if most == least { 0.0 } else { (sum - least) as f64 / (most - least) as f64 };
    Some(sums.into_iter().map(|sum| (MAX_SCORE as f64 * scale(sum)) as i64).collect())
}

/// A weight for every node in the domain of `node`.
struct Preference<'a> {
    node: &'a Tree,
    key: &'a str,
    weight: i64,
}

fn preferences<'a>(case: &Case<'a>) -> Vec<Preference<'a>> {
    let mut wishes = Vec::new();
    for (pod, node) in placed(case) {
        let mut wish = |owner: &Tree, other: &Tree, term: &'a Tree, weight: i64| {
            let key = term.str("topologyKey");
            if label(node, key).is_some() && term_matches(case, owner, term, other) {
                wishes.push(Preference { node, key, weight });
            }
        };
        for (kind, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
            for weighted in terms(case.pod, kind, PREFERRED) {
                wish(case.pod, pod, weighted.at("podAffinityTerm"), sign * weighted.int("weight").unwrap_or(0));
            }
            for weighted in terms(pod, kind, PREFERRED) {
                wish(pod, case.pod, weighted.at("podAffinityTerm"), sign * weighted.int("weight").unwrap_or(0));
            }
        }
        let hard = case.settings.hard_pod_affinity_weight;
        for term in terms(pod, "podAffinity", REQUIRED).iter().filter(|_| hard > 0) {
            wish(pod, case.pod, term, hard);
        }
    }
    wishes
}
