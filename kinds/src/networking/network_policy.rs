//! NetworkPolicy.

use api::field::{Errors, Path};
use api::{Tree, list, validation};

use crate::checks::StoredValues;
use crate::kind::{Kind, column};
use crate::podspec::validate_label_selector;
use crate::{cells, checks, strategy};

const SPEC: Path<'static> = Path::root("spec");

pub(crate) static KIND: Kind = Kind {
    short_names: &["netpol"],
    set_defaults,
    prepare_create: strategy::create,
    prepare_update: strategy::update,
    validate,
    validate_update,
    warnings,
    columns: &[
        column("Name", "string", "name", 0),
        column("Pod-Selector", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    cells: row,
    ..Kind::namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "networkpolicy")
};

/// The rules of each direction, and the field of their peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

fn set_defaults(policy: &mut Tree) {
    let spec = policy.child("spec");
    for (direction, _) in DIRECTIONS {
        for rule in spec.list_mut(direction) {
            for port in rule.list_mut("ports") {
                port.set_default("protocol", "TCP");
            }
        }
    }
    if spec.list("policyTypes").is_empty() {
        let types = if spec.list("egress").is_empty() { list!["Ingress"] } else { list!["Ingress", "Egress"] };
        spec.set("policyTypes", types);
    }
}

fn validate(policy: &Tree, errors: &mut Errors) {
    validate_spec(policy.at("spec"), &StoredValues::new(), errors);
}

fn validate_update(policy: &Tree, old: &Tree, errors: &mut Errors) {
    validate_spec(policy.at("spec"), &networks(old), errors);
}

/// Every network in a policy.
fn networks(policy: &Tree) -> StoredValues<'_> {
    let mut found = StoredValues::new();
    for (_, block, _) in blocks(policy) {
        found.insert(block.str("cidr"));
        found.extend(block.list("except").iter().filter_map(Tree::as_str));
    }
    found
}

/// Every ipBlock, with its direction and index.
fn blocks(policy: &Tree) -> Vec<(String, &Tree, usize)> {
    let mut found = Vec::new();
    for (direction, peers) in DIRECTIONS {
        for (rule_index, rule) in policy.at("spec").list(direction).iter().enumerate() {
            for (index, peer) in rule.list(peers).iter().enumerate().filter(|(_, peer)| peer.has("ipBlock")) {
                let path = format!("spec.{direction}[{rule_index}].{peers}[{index}].ipBlock");
                found.push((path, peer.at("ipBlock"), index));
            }
        }
    }
    found
}

fn validate_spec(spec: &Tree, stored: &StoredValues<'_>, errors: &mut Errors) {
    validate_label_selector(spec.at("podSelector"), &SPEC.field("podSelector"), errors);
    for (direction, peers) in DIRECTIONS {
        for (index, rule) in spec.list(direction).iter().enumerate() {
            let direction_path = SPEC.field(direction);
            let path = direction_path.index(index);
            for (index, port) in rule.list("ports").iter().enumerate() {
                validate_port(port, &path.field("ports").index(index), errors);
            }
            for (index, peer) in rule.list(peers).iter().enumerate() {
                validate_peer(peer, stored, &path.field(peers).index(index), errors);
            }
        }
    }
    validate_types(spec, errors);
}

fn validate_types(spec: &Tree, errors: &mut Errors) {
    let types = spec.list("policyTypes");
    let path = SPEC.field("policyTypes");
    if types.len() > 2 {
        return errors.invalid(&path, spec.at("policyTypes"), "may not specify more than two policyTypes");
    }
    for (index, item) in types.iter().enumerate() {
        if !matches!(item.as_str(), Some("Ingress" | "Egress")) {
            errors.not_supported(&path.index(index), item, &["Ingress", "Egress"]);
        }
    }
}

fn validate_port(port: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(protocol) = port.at("protocol").as_str()
        && !matches!(protocol, "TCP" | "UDP" | "SCTP")
    {
        errors.not_supported(&path.field("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let end_path = path.field("endPort");
    match (port.at("port"), port.int("endPort")) {
        (Tree::Int(number), end) => {
            checks::port_number(*number, &path.field("port"), errors);
            let Some(end) = end else { return };
            if end < *number {
                errors.invalid(&end_path, end, "must be greater than or equal to `port`");
            }
            checks::port_number(end, &end_path, errors);
        }
        (Tree::Str(name), end) => {
            if let Some(end) = end {
                errors.invalid(&end_path, end, "may not be specified when `port` is non-numeric");
            }
            errors.invalid_all(&path.field("port"), name, validation::port_name(name));
        }
        (_, Some(end)) => errors.invalid(&end_path, end, "may not be specified when `port` is not specified"),
        _ => {}
    }
}

fn validate_peer(peer: &Tree, stored: &StoredValues<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut peers = 0;
    for key in ["podSelector", "namespaceSelector"].into_iter().filter(|key| peer.has(key)) {
        peers += 1;
        validate_label_selector(peer.at(key), &path.field(key), errors);
    }
    if peer.has("ipBlock") {
        validate_block(peer.at("ipBlock"), stored, &path.field("ipBlock"), errors);
        if peers > 0 {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
    } else if peers == 0 {
        errors.required(path, "must specify a peer");
    }
}

fn validate_block(block: &Tree, stored: &StoredValues<'_>, path: &Path<'_>, errors: &mut Errors) {
    let cidr = block.str("cidr");
    if cidr.is_empty() {
        return errors.required(&path.field("cidr"), "");
    }
    checks::cidr(cidr, stored, &path.field("cidr"), errors);
    let Some(network) = validation::parse_cidr(cidr) else { return };
    for (index, except) in block.list("except").iter().enumerate() {
        let except = except.as_str().unwrap_or("");
        let except_path = path.field("except");
        checks::cidr(except, stored, &except_path.index(index), errors);
        if validation::parse_cidr(except)
            .is_some_and(|inner| inner.prefix() == network.prefix() || !network.contains_net(&inner))
        {
            errors.invalid(&except_path.index(index), except, "must be a strict subset of `cidr`");
        }
    }
}

fn warnings(policy: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (path, block, _) in blocks(policy) {
        warnings.extend(validation::cidr_warnings(&format!("{path}.cidr"), block.str("cidr")));
        for (index, except) in block.list("except").iter().enumerate() {
            let path = format!("{path}.except[{index}]");
            warnings.extend(validation::cidr_warnings(&path, except.as_str().unwrap_or("")));
        }
    }
    warnings
}

fn row(policy: &Tree, now: i64) -> Vec<Tree> {
    let selector = cells::label_selector(policy.at("spec.podSelector"));
    vec![cells::name(policy), Tree::from(selector), cells::age(policy, now)]
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn check(rule: Tree, want: &[&str]) {
        let mut policy = tree! { "spec" => tree! { "podSelector" => tree! {}, "ingress" => list![rule] } };
        set_defaults(&mut policy);
        let mut errors = Errors::new();
        validate(&policy, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn peers_and_ports() {
        let block = |except: &str| {
            let block = tree! { "cidr" => "10.0.0.0/8", "except" => list![except] };
            tree! { "from" => list![tree! { "ipBlock" => block }] }
        };
        check(block("10.1.0.0/16"), &[]);
        check(
            block("11.0.0.0/9"),
            &[
                "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/9\": must be a strict subset of `cidr`",
            ],
        );
        check(tree! { "from" => list![tree! {}] }, &["spec.ingress[0].from[0]: Required value: must specify a peer"]);
        check(
            tree! { "ports" => list![tree! { "port" => 80, "endPort" => 70 }] },
            &["spec.ingress[0].ports[0].endPort: Invalid value: 70: must be greater than or equal to `port`"],
        );
    }
}
