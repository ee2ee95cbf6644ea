//! PriorityLevelConfiguration.

use api::Tree;
use api::field::{Errors, Path};

use super::rules;
use crate::kind::{Kind, StatusRules, Subresource, Verb, bump_generation, column};
use crate::{cells, prepare};

pub(crate) static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Type", "string", "", 0),
        column("NominalConcurrencyShares", "string", "", 0),
        column("Queues", "string", "", 0),
        column("HandSize", "string", "", 0),
        column("QueueLengthLimit", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    set_defaults,
    prepare_create: rules::prepare_create,
    prepare_update: |object, old, context| {
        prepare::keep_status(object, old, context);
        bump_generation(object, old, &["spec"]);
    },
    validate,
    validate_update: |object, _, errors| validate(object, errors),
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare::keep_all_but_status,
        validate: |object, _, errors| rules::validate_status(object, errors),
        reset: &["spec", "metadata"],
    }),
    cells,
    ..Kind::cluster(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        "prioritylevelconfiguration",
    )
};

const MAX_QUEUES: i64 = 10_000_000;
/// The number of hash bits for shuffle sharding.
const MAX_HASH_BITS: u32 = 60;

fn set_defaults(object: &mut Tree) {
    let spec = object.child("spec");
    if let Some(exempt) = spec.get_mut("exempt") {
        exempt.set_default("nominalConcurrencyShares", 0);
        exempt.set_default("lendablePercent", 0);
    }
    if let Some(limited) = spec.get_mut("limited") {
        limited.set_default("nominalConcurrencyShares", 30);
        limited.set_default("lendablePercent", 0);
        if let Some(queuing) = limited.at_mut("limitResponse.queuing") {
            set_queuing_defaults(queuing);
        }
    }
}

fn set_queuing_defaults(queuing: &mut Tree) {
    for (field, value) in [("queues", 64), ("queueLengthLimit", 50), ("handSize", 8)] {
        if queuing.int(field).unwrap_or(0) == 0 {
            queuing.set(field, value);
        }
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    let (spec, path) = (object.at("spec"), Path::root("spec"));
    let ty = spec.str("type");
    if (object.str("metadata.name") == "exempt") != (ty == "Exempt") {
        errors.invalid(&path.field("type"), ty, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    if !matches!(ty, "Exempt" | "Limited") {
        errors.not_supported(&path.field("type"), ty, &["Exempt", "Limited"]);
    }
    match spec.get("limited") {
        Some(limited) if ty == "Limited" => validate_limited(limited, &path.field("limited"), errors),
        Some(_) => errors.forbidden(&path.field("limited"), ""),
        None if ty == "Limited" => errors.required(&path.field("limited"), ""),
        None => {}
    }
    match spec.get("exempt") {
        Some(exempt) if ty == "Exempt" => validate_shares(exempt, &path.field("exempt"), errors),
        Some(_) => errors.forbidden(&path.field("exempt"), ""),
        None => {}
    }
    rules::validate_status(object, errors);
}

fn validate_shares(level: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = level.int("nominalConcurrencyShares").filter(|shares| *shares < 0) {
        errors.invalid(&path.field("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    if let Some(percent) = level.int("lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        errors.invalid(&path.field("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn validate_limited(limited: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = limited.int("nominalConcurrencyShares").filter(|shares| *shares < 0) {
        errors.invalid(&path.field("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    validate_response(limited.at("limitResponse"), &path.field("limitResponse"), errors);
    if let Some(percent) = limited.int("lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        errors.invalid(&path.field("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
    if let Some(percent) = limited.int("borrowingLimitPercent").filter(|percent| *percent < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&path.field("borrowingLimitPercent"), percent, detail);
    }
}

fn validate_response(response: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let ty = response.str("type");
    if !matches!(ty, "Queue" | "Reject") {
        errors.not_supported(&path.field("type"), ty, &["Queue", "Reject"]);
    }
    match response.get("queuing") {
        Some(queuing) if ty == "Queue" => validate_queuing(queuing, &path.field("queuing"), errors),
        Some(_) => errors.forbidden(&path.field("queuing"), ""),
        None if ty == "Queue" => errors.required(&path.field("queuing"), ""),
        None => {}
    }
}

fn validate_queuing(queuing: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for field in ["queueLengthLimit", "queues"] {
        let value = queuing.int(field).unwrap_or(0);
        if value <= 0 {
            errors.invalid(&path.field(field), value, "must be positive");
        }
    }
    let (queues, hand) = (queuing.int("queues").unwrap_or(0), queuing.int("handSize").unwrap_or(0));
    if queues > MAX_QUEUES {
        errors.invalid(&path.field("queues"), queues, &format!("must not be greater than {MAX_QUEUES}"));
    }
    let path = path.field("handSize");
    if hand <= 0 {
        errors.invalid(&path, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&path, hand, &format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        errors.invalid(&path, hand, &detail);
    }
}

/// The bits needed to deal an ordered hand from a deck.
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    let bits: f64 = (0..hand.min(64)).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as u32
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let number = |path: &str| object.int(path).map_or_else(|| Tree::from("<none>"), Tree::Int);
    vec![
        cells::name(object),
        Tree::from(object.str("spec.type")),
        number("spec.limited.nominalConcurrencyShares"),
        number("spec.limited.limitResponse.queuing.queues"),
        number("spec.limited.limitResponse.queuing.handSize"),
        number("spec.limited.limitResponse.queuing.queueLengthLimit"),
        cells::age(object, now),
    ]
}
