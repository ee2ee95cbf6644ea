//! Scheduling constraints: node selectors, affinities and topology spread.

use std::collections::HashMap;

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::small_set::SmallSet;
use super::{check, selector};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(crate) fn validate(affinity: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(node) = affinity.get("nodeAffinity") {
        validate_node_affinity(node, &path.field("nodeAffinity"), errors);
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        if let Some(pods) = affinity.get(key) {
            validate_pod_affinity(pods, &path.field(key), errors);
        }
    }
}

fn validate_node_affinity(affinity: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(required) = affinity.get(REQUIRED) {
        validate_node_selector(required, &path.field(REQUIRED), errors);
    }
    let preferred = path.field(PREFERRED);
    for (index, term) in affinity.list(PREFERRED).iter().enumerate() {
        let path = preferred.index(index);
        validate_weight(term, &path, errors);
        // Invalid label values in preferred terms are harmless and accepted.
        validate_node_term(term.at("preference"), false, &path.field("preference"), errors);
    }
}

fn validate_weight(term: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let weight = term.int("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.field("weight"), weight, "must be in the range 1-100");
    }
}

/// A NodeSelector, also of other kinds.
pub(crate) fn validate_node_selector(node_selector: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("nodeSelectorTerms");
    let terms = node_selector.list("nodeSelectorTerms");
    if terms.is_empty() {
        return errors.required(&path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        validate_node_term(term, true, &path.index(index), errors);
    }
}

fn validate_node_term(term: &Tree, judge_values: bool, path: &Path<'_>, errors: &mut Errors) {
    let expressions = path.field("matchExpressions");
    for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
        validate_node_requirement(requirement, judge_values, &expressions.index(index), errors);
    }
    let fields = path.field("matchFields");
    for (index, requirement) in term.list("matchFields").iter().enumerate() {
        validate_node_field(requirement, &fields.index(index), errors);
    }
}

fn validate_node_requirement(requirement: &Tree, judge_values: bool, path: &Path<'_>, errors: &mut Errors) {
    let values = requirement.list("values");
    let at = path.field("values");
    match requirement.str("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(&at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.required(&at, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        operator => errors.invalid(&path.field("operator"), operator, "not a valid selector operator"),
    }
    selector::validate_label_name(requirement.str("key"), &path.field("key"), errors);
    if judge_values {
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            errors.invalid_all(&at.index(index), value, validation::label_value(value));
        }
    }
}

/// Only `metadata.name` is supported as a node field.
fn validate_node_field(requirement: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let values = requirement.list("values");
    let at = path.field("values");
    match requirement.str("operator") {
        "In" | "NotIn" if values.len() != 1 => {
            errors.required(&at, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector");
        }
        "In" | "NotIn" => {}
        operator => errors.invalid(&path.field("operator"), operator, "not a valid selector operator"),
    }
    let key = requirement.str("key");
    if key != "metadata.name" {
        return errors.invalid(&path.field("key"), key, "not a valid field selector key");
    }
    for (index, value) in values.iter().enumerate() {
        check::dns_subdomain(value.as_str().unwrap_or(""), &at.index(index), errors);
    }
}

fn validate_pod_affinity(affinity: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let required = path.field(REQUIRED);
    for (index, term) in affinity.list(REQUIRED).iter().enumerate() {
        validate_pod_term(term, &required.index(index), errors);
    }
    let preferred = path.field(PREFERRED);
    for (index, term) in affinity.list(PREFERRED).iter().enumerate() {
        let path = preferred.index(index);
        validate_weight(term, &path, errors);
        validate_pod_term(term.at("podAffinityTerm"), &path.field("podAffinityTerm"), errors);
    }
}

fn validate_pod_term(term: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for key in ["labelSelector", "namespaceSelector"] {
        selector::validate_label_selector(term.at(key), &path.field(key), errors);
    }
    for name in term.list("namespaces") {
        check::dns_label(name.as_str().unwrap_or(""), &path.field("namespace"), errors);
    }
    validate_label_keys(term, path, errors);
    let topology = term.str("topologyKey");
    if topology.is_empty() {
        errors.required(&path.field("topologyKey"), "can not be empty");
    }
    selector::validate_label_name(topology, &path.field("topologyKey"), errors);
}

/// Label keys whose values come from the pod. They require a selector, and keys must be unique.
fn validate_label_keys(term: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (match_keys, mismatch_keys) = (term.list("matchLabelKeys"), term.list("mismatchLabelKeys"));
    for (key, list) in [("matchLabelKeys", match_keys), ("mismatchLabelKeys", mismatch_keys)] {
        let path = path.field(key);
        if !list.is_empty() && !term.has("labelSelector") {
            errors.forbidden(&path, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in list.iter().enumerate() {
            selector::validate_label_name(key.as_str().unwrap_or(""), &path.index(index), errors);
        }
    }
    validate_keys_are_not_selected(term, match_keys, path, errors);
    let mismatched: SmallSet<&str> = mismatch_keys.iter().filter_map(Tree::as_str).collect();
    let both = |key: &Tree| key.as_str().is_some_and(|key| mismatched.contains(&key));
    for (index, key) in match_keys.iter().enumerate().filter(|(_, key)| both(key)) {
        let path = path.field("matchLabelKeys");
        errors.invalid(&path.index(index), key, "exists in both matchLabelKeys and mismatchLabelKeys");
    }
}

/// The selector already has an expression for each key, so a duplicate was written by the user.
fn validate_keys_are_not_selected(term: &Tree, keys: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    if keys.is_empty() {
        return;
    }
    let places: HashMap<&str, usize> =
        keys.iter().enumerate().filter_map(|(index, key)| key.as_str().map(|key| (key, index))).collect();
    let labels = term.map("labelSelector.matchLabels");
    let mut selected: SmallSet<&str> = labels.keys().collect();
    for expression in term.list("labelSelector.matchExpressions") {
        let key = expression.str("key");
        let again = !selected.insert(key);
        if let Some(index) = places.get(key).copied().filter(|_| again) {
            errors.invalid(&path.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];

pub(crate) fn validate_topology_spread(constraints: &[Tree], path: &Path<'_>, errors: &mut Errors) {
    let mut later: SmallSet<(&str, &str)> = SmallSet::new();
    // Of two equal constraints the earlier is reported, so the list is read from the end.
    let mut repeated: Vec<bool> = constraints.iter().rev().map(|one| !later.insert(spread_key(one))).collect();
    repeated.reverse();
    for (index, (constraint, repeated)) in constraints.iter().zip(repeated).enumerate() {
        validate_constraint(constraint, repeated, &path.index(index), errors);
    }
}

fn spread_key(constraint: &Tree) -> (&str, &str) {
    (constraint.str("topologyKey"), constraint.str("whenUnsatisfiable"))
}

fn validate_constraint(constraint: &Tree, repeated: bool, path: &Path<'_>, errors: &mut Errors) {
    let skew = constraint.int("maxSkew").unwrap_or(0);
    if skew <= 0 {
        errors.invalid(&path.field("maxSkew"), skew, check::NOT_POSITIVE);
    }
    let (topology, action) = spread_key(constraint);
    if topology.is_empty() {
        errors.required(&path.field("topologyKey"), "can not be empty");
    }
    if !ACTIONS.contains(&action) {
        errors.not_supported(&path.field("whenUnsatisfiable"), action, ACTIONS);
    }
    if repeated {
        errors.duplicate(&path.field("{topologyKey, whenUnsatisfiable}"), format!("{{{topology}, {action}}}"));
    }
    if let Some(domains) = constraint.int("minDomains") {
        validate_min_domains(domains, action, &path.field("minDomains"), errors);
    }
    for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        check::one_of(constraint, key, &["Honor", "Ignore"], path, errors);
    }
    validate_spread_label_keys(constraint, &path.field("matchLabelKeys"), errors);
    selector::validate_label_selector(constraint.at("labelSelector"), &path.field("labelSelector"), errors);
}

fn validate_min_domains(domains: i64, action: &str, path: &Path<'_>, errors: &mut Errors) {
    if domains <= 0 {
        errors.invalid(path, domains, check::NOT_POSITIVE);
    }
    if action != "DoNotSchedule" {
        let text = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(path, domains, &text);
    }
}

fn validate_spread_label_keys(constraint: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let keys = constraint.list("matchLabelKeys");
    if !keys.is_empty() && !constraint.has("labelSelector") {
        errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    let labels = constraint.map("labelSelector.matchLabels");
    let expressions = constraint.list("labelSelector.matchExpressions");
    let selected: SmallSet<&str> = labels.keys().chain(expressions.iter().map(|one| one.str("key"))).collect();
    for (index, key) in keys.iter().enumerate() {
        let key = key.as_str().unwrap_or("");
        selector::validate_label_name(key, &path.index(index), errors);
        if selected.contains(&key) {
            errors.invalid(&path.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}
