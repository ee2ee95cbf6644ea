//! CertificateSigningRequest.

use std::collections::HashMap;

use api::field::{Errors, Path, Value};
use api::{Tree, base64, time};
use thiserror::Error;

use crate::kind::{Context, Kind, StatusRules, Subresource, Verb, column, keep_old, selectable};
use crate::pem;
use crate::podspec::small_set::SmallSet;
use crate::podspec::volume::projected::validate_signer_name;
use crate::{cells, gojson, names, prepare};

/// CertificateSigningRequest.
pub static KIND: Kind = Kind {
    short_names: &["csr"],
    subresources: &[
        Subresource { name: "approval", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[
        column("Name", "string", "name", 0),
        column("Age", "string", "", 0),
        column("SignerName", "string", "", 0),
        column("Requestor", "string", "", 0),
        column("RequestedDuration", "string", "", 0),
        column("Condition", "string", "", 0),
    ],
    selectable: &[selectable("spec.signerName")],
    validate_name: names::any,
    prepare_create,
    prepare_update,
    validate,
    validate_update: |object, old, errors| validate_any_update(object, old, Endpoint::Main, errors),
    reset: &["spec", "status"],
    status: Some(StatusRules {
        prepare: prepare_status,
        validate: |object, old, errors| validate_any_update(object, old, Endpoint::Status, errors),
        reset: &["spec"],
    }),
    cells,
    ..Kind::cluster(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "certificatesigningrequest",
    )
};

/// The rules of the approval subresource, which only writes conditions.
pub static APPROVAL: StatusRules = StatusRules {
    prepare: prepare_approval,
    validate: |object, old, errors| validate_any_update(object, old, Endpoint::Approval, errors),
    reset: &["spec", "status.certificate"],
};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const MIN_SECONDS: i64 = 600;
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const CONDITIONS: Path<'static> = Path::root("status.conditions");
const CERTIFICATE: Path<'static> = Path::root("status.certificate");

/// The endpoint of an update.
#[derive(Clone, Copy, PartialEq)]
enum Endpoint {
    Main,
    Status,
    Approval,
}

/// The requestor is set from the authenticated user, never from the object.
fn prepare_create(object: &mut Tree, context: &Context<'_>) {
    object.remove("status");
    let (spec, user) = (object.child("spec"), context.user);
    for (field, value) in [("username", &user.name), ("uid", &user.uid)] {
        spec.remove(field);
        if !value.is_empty() {
            spec.set(field, value);
        }
    }
    for field in ["groups", "extra"] {
        spec.remove(field);
    }
    if !user.groups.is_empty() {
        spec.set("groups", user.groups.iter().map(Tree::from).collect::<Vec<_>>());
    }
    if !user.extra.is_empty() {
        spec.set("extra", user.extra.clone());
    }
}

fn prepare_update(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_spec(object, old, context);
    prepare::keep_status(object, old, context);
}

/// Approvals and denials are kept; adding or removing one is rejected by validation.
fn prepare_status(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_spec(object, old, context);
    for ty in ["Approved", "Denied"] {
        keep_conditions(object, old, ty);
    }
    set_condition_times(object, old, context);
}

fn prepare_approval(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    prepare::keep_spec(object, old, context);
    keep_old(object.child("status"), old.at("status"), "certificate");
    set_condition_times(object, old, context);
}

/// Restores the stored conditions of a type if their number is unchanged.
fn keep_conditions(object: &mut Tree, old: &Tree, ty: &str) {
    let stored = conditions(old, ty);
    if stored.len() != conditions(object, ty).len() {
        return;
    }
    let written = object.list_mut("status.conditions").iter_mut().filter(|condition| condition.str("type") == ty);
    for (condition, stored) in written.zip(stored) {
        *condition = stored.clone();
    }
}

fn set_condition_times(object: &mut Tree, old: &Tree, context: &Context<'_>) {
    let now = time::format_seconds(context.now);
    let mut stored: HashMap<(&str, &str), &Tree> = HashMap::new();
    for condition in old.list("status.conditions").iter().filter(|condition| condition.has("lastTransitionTime")) {
        let key = (condition.str("type"), condition.str("status"));
        stored.entry(key).or_insert(condition.at("lastTransitionTime"));
    }
    for condition in object.list_mut("status.conditions") {
        condition.set_default("lastUpdateTime", now.clone());
        let since = stored.get(&(condition.str("type"), condition.str("status"))).map(|time| (*time).clone());
        condition.set_default("lastTransitionTime", since.unwrap_or_else(|| Tree::from(now.clone())));
    }
}

fn conditions<'a>(object: &'a Tree, ty: &str) -> Vec<&'a Tree> {
    object.list("status.conditions").iter().filter(|condition| condition.str("type") == ty).collect()
}

fn validate(object: &Tree, errors: &mut Errors) {
    validate_with(object, None, errors);
}

/// Stored values are not validated again.
fn validate_with(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    if old.is_none() {
        validate_request(object.at("spec"), errors);
    }
    validate_usages(object, old, errors);
    validate_signer(object, old, errors);
    let seconds = object.int("spec.expirationSeconds");
    if let Some(seconds) = seconds.filter(|seconds| *seconds < MIN_SECONDS) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&Path::root("spec.expirationSeconds"), seconds, detail);
    }
    validate_conditions(object, errors);
    let stored = old.map_or("", |old| old.str("status.certificate"));
    if object.str("status.certificate") != stored
        && let Err(problem) = check_certificate(object.str("status.certificate"))
    {
        errors.invalid(&CERTIFICATE, "<certificate data>", &problem.to_string());
    }
}

fn validate_request(spec: &Tree, errors: &mut Errors) {
    let text = base64::decode(spec.str("request")).unwrap_or_default();
    let block = pem::blocks(&String::from_utf8_lossy(&text)).into_iter().next();
    let problem = match block {
        Some(block) if block.label == "CERTIFICATE REQUEST" && pem::is_signed(&block.der) => return,
        Some(block) if block.label == "CERTIFICATE REQUEST" => "asn1: structure error: malformed certificate request",
        _ => "PEM block type must be CERTIFICATE REQUEST",
    };
    let shown = if spec.str("request").is_empty() { gojson::null() } else { Value::from(spec.str("request")) };
    errors.invalid(&Path::root("spec.request"), shown, problem);
}

fn validate_usages(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let (usages, path) = (object.list("spec.usages"), Path::root("spec.usages"));
    if usages.is_empty() {
        errors.required(&path, "");
    }
    if old.is_some_and(|old| old.at("spec.usages") == object.at("spec.usages")) {
        return;
    }
    let mut seen = SmallSet::new();
    for (index, usage) in usages.iter().enumerate() {
        let text = usage.as_str().unwrap_or("");
        if !USAGES.contains(&text) {
            errors.not_supported(&path.index(index), text, USAGES);
        }
        if !seen.insert(text) {
            errors.duplicate(&path.index(index), text);
        }
    }
}

fn validate_signer(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let (signer, path) = (object.str("spec.signerName"), Path::root("spec.signerName"));
    if signer == LEGACY_SIGNER {
        if old.is_none_or(|old| old.str("spec.signerName") != LEGACY_SIGNER) {
            errors.invalid(&path, signer, "the legacy signerName is not allowed via this API version");
        }
    } else if signer.is_empty() {
        errors.required(&path, "");
    } else {
        validate_signer_name(signer, &path, errors);
    }
}

fn validate_conditions(object: &Tree, errors: &mut Errors) {
    let all = object.list("status.conditions");
    let mut seen = SmallSet::new();
    for (index, condition) in all.iter().enumerate() {
        let path = CONDITIONS.index(index);
        let (ty, status) = (condition.str("type"), condition.str("status"));
        if ty.is_empty() {
            errors.required(&path.field("type"), "");
        }
        let supported: &[&str] = match ty {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if status.is_empty() {
            errors.required(&path.field("status"), "");
        } else if !supported.contains(&status) {
            errors.not_supported(&path.field("status"), status, supported);
        }
        if !seen.insert(ty) {
            errors.duplicate(&path.field("type"), ty);
        }
    }
    if !conditions(object, "Approved").is_empty() && !conditions(object, "Denied").is_empty() {
        let [approved, denied] = ["Approved", "Denied"].map(|ty| format!("conditions[{{\"type\": \"{ty}\"}}]"));
        let detail = format!("must specify at most one of: `{approved}`, `{denied}`");
        errors.invalid(&CONDITIONS, format!("{{{approved}, {denied}}}"), &detail);
    }
}

/// Why the certificate of a status is refused.
#[derive(Debug, Error)]
enum CertificateError {
    #[error("must contain at least one CERTIFICATE PEM block")]
    NoBlock,
    #[error("only CERTIFICATE PEM blocks are allowed, found {0:?}")]
    Label(String),
    #[error("no PEM block headers are permitted")]
    Headers,
    #[error("x509: malformed certificate")]
    Malformed,
}

fn check_certificate(encoded: &str) -> Result<(), CertificateError> {
    if encoded.is_empty() {
        return Ok(());
    }
    let text = base64::decode(encoded).unwrap_or_default();
    let blocks = pem::blocks(&String::from_utf8_lossy(&text));
    if blocks.is_empty() {
        return Err(CertificateError::NoBlock);
    }
    for block in blocks {
        if block.label != "CERTIFICATE" {
            return Err(CertificateError::Label(block.label));
        }
        if block.has_headers {
            return Err(CertificateError::Headers);
        }
        if !pem::is_signed(&block.der) {
            return Err(CertificateError::Malformed);
        }
    }
    Ok(())
}

fn validate_any_update(object: &Tree, old: &Tree, endpoint: Endpoint, errors: &mut Errors) {
    validate_with(object, Some(old), errors);
    for ty in ["Approved", "Denied", "Failed"] {
        if conditions(object, ty).len() < conditions(old, ty).len() {
            errors.forbidden(&CONDITIONS, &format!("updates may not remove a condition of type \"{ty}\""));
        }
    }
    if endpoint != Endpoint::Approval {
        validate_no_approval(object, old, errors);
    }
    let (new, stored) = (object.str("status.certificate"), old.str("status.certificate"));
    if new != stored && endpoint != Endpoint::Status {
        errors.forbidden(&CERTIFICATE, "updates may not set certificate content");
    } else if new != stored && !stored.is_empty() {
        errors.forbidden(&CERTIFICATE, "updates may not modify existing certificate content");
    }
}

fn validate_no_approval(object: &Tree, old: &Tree, errors: &mut Errors) {
    for ty in ["Approved", "Denied"] {
        let (new, stored) = (conditions(object, ty), conditions(old, ty));
        if new.len() > stored.len() {
            errors.forbidden(&CONDITIONS, &format!("updates may not add a condition of type \"{ty}\""));
        } else if new.len() == stored.len() && new != stored {
            errors.forbidden(&CONDITIONS, &format!("updates may not modify a condition of type \"{ty}\""));
        }
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let duration = match object.int("spec.expirationSeconds") {
        Some(seconds) => time::human_duration(seconds),
        None => "<none>".to_string(),
    };
    vec![
        cells::name(object),
        cells::age(object, now),
        cells::text_or(object, "spec.signerName", "<none>"),
        Tree::from(object.str("spec.username")),
        Tree::from(duration),
        Tree::from(condition_text(object)),
    ]
}

fn condition_text(object: &Tree) -> String {
    let has = |ty: &str| !conditions(object, ty).is_empty();
    let mut text = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_string();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if !object.str("status.certificate").is_empty() {
        text.push_str(",Issued");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn request(conditions: Tree) -> Tree {
        tree! { "spec" => tree! { "signerName" => "e.com/s", "usages" => list!["any"] }, "status" => tree! { "conditions" => conditions } }
    }

    fn approved() -> Tree {
        tree! { "type" => "Approved", "status" => "True" }
    }

    fn check(new: Tree, old: Tree, endpoint: Endpoint, want: &[&str]) {
        let mut errors = Errors::new();
        validate_any_update(&new, &old, endpoint, &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
    }

    #[test]
    fn approvals_are_set_once_by_the_subresource() {
        let (with, without) = (|| request(list![approved()]), || request(list![]));
        check(with(), without(), Endpoint::Approval, &[]);
        check(
            with(),
            without(),
            Endpoint::Status,
            &["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""],
        );
        check(
            without(),
            with(),
            Endpoint::Approval,
            &["status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""],
        );
    }

    #[test]
    fn certificates_are_written_once() {
        let mut new = request(list![]);
        new.child("status").set("certificate", "eA==");
        check(
            new,
            request(list![]),
            Endpoint::Status,
            &[
                "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block",
            ],
        );
    }
}
