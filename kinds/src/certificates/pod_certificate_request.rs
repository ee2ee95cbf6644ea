//! PodCertificateRequest.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::{dns1123_subdomain, qualified_name};

use crate::conditions::validate_conditions;
use crate::gojson;
use crate::kind::{Kind, StatusRules, Subresource, Verb, column, selectable};
use crate::podspec::volume::projected::validate_signer_name;
use crate::{cells, prepare};

pub(crate) static KIND: Kind = Kind {
    upstream_version: Some("v1beta1"),
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("PodName", "string", "", 0),
        column("ServiceAccountName", "string", "", 0),
        column("NodeName", "string", "", 0),
        column("SignerName", "string", "", 0),
        column("State", "string", "", 0),
        column("UnverifiedUserAnnotations", "string", "", 0),
    ],
    selectable: &[selectable("spec.signerName"), selectable("spec.podName"), selectable("spec.nodeName")],
    set_defaults: |object| object.child("spec").set_default("maxExpirationSeconds", DEFAULT_SECONDS),
    prepare_create: prepare::no_status,
    prepare_update: prepare::keep_status,
    validate,
    validate_update,
    reset: &["status"],
    status: Some(StatusRules { prepare: prepare::keep_spec, validate: validate_status_update, reset: &["spec"] }),
    unconditional_update: false,
    cells,
    ..Kind::namespaced(
        "certificates.k8s.io",
        "v1",
        "PodCertificateRequest",
        "podcertificaterequests",
        "podcertificaterequest",
    )
};

const DEFAULT_SECONDS: i64 = 86_400;
const MIN_SECONDS: i64 = 3600;
const MAX_SECONDS: i64 = 91 * 86_400;
/// The longest validity of certificates from built-in signers.
const MAX_KUBERNETES_SECONDS: i64 = 86_400;
const MAX_UID_BYTES: usize = 128;
const MAX_ANNOTATION_BYTES: usize = 256 << 10;
/// At most one of these conditions ends a request.
const ENDS: &[&str] = &["Issued", "Denied", "Failed"];

fn validate(object: &Tree, errors: &mut Errors) {
    let (spec, path) = (object.at("spec"), Path::root("spec"));
    validate_signer_name(spec.str("signerName"), &path.field("signerName"), errors);
    for (name, uid) in [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")] {
        let text = spec.str(name);
        errors.invalid_all(&path.field(name), text, dns1123_subdomain(text));
        match spec.str(uid) {
            "" => errors.invalid(&path.field(uid), "", "must not be empty"),
            text if text.len() > MAX_UID_BYTES => errors.too_long(&path.field(uid), MAX_UID_BYTES),
            _ => {}
        }
    }
    validate_expiration(spec, &path.field("maxExpirationSeconds"), errors);
    validate_annotations(spec, &path.field("unverifiedUserAnnotations"), errors);
    if spec.str("stubPKCS10Request").is_empty() {
        errors.required(&path.field("stubPKCS10Request"), "");
    }
}

fn validate_expiration(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let Some(seconds) = spec.int("maxExpirationSeconds") else { return errors.required(path, "must be set") };
    let most = if spec.str("signerName").starts_with("kubernetes.io/") { MAX_KUBERNETES_SECONDS } else { MAX_SECONDS };
    if !(MIN_SECONDS..=most).contains(&seconds) {
        errors.invalid(path, seconds, &format!("must be in the range [{MIN_SECONDS}, {most}]"));
    }
}

fn validate_annotations(spec: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in spec.map("unverifiedUserAnnotations").iter() {
        errors.invalid_all(path, key, qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > MAX_ANNOTATION_BYTES {
        errors.too_long(path, MAX_ANNOTATION_BYTES);
    }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    if object.at("spec") != old.at("spec") {
        errors.invalid(&Path::root("spec"), gojson::null(), "field is immutable");
    }
}

/// The status of an ended request is immutable.
fn validate_status_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    let path = Path::root("status");
    validate_conditions(object.list("status.conditions"), &path.field("conditions"), errors);
    if end(old).is_some() && object.at("status") != old.at("status") {
        return errors.invalid(
            &path,
            gojson::null(),
            "immutable after PodCertificateRequest is issued, denied, or failed",
        );
    }
    let ends =
        object.list("status.conditions").iter().filter(|condition| ENDS.contains(&condition.str("type"))).count();
    if ends > 1 {
        let detail = "Exactly one of the \"Issued\", \"Denied\", or \"Failed\" conditions may be present";
        errors.invalid(&path.field("conditions"), gojson::null(), detail);
    }
    let issued = end(object) == Some("Issued");
    for field in ["certificateChain", "notBefore", "beginRefreshAt", "notAfter"] {
        match object.at("status").has(field) {
            false if issued => errors.required(&path.field(field), "must be set if the condition is \"Issued\""),
            true if !issued => errors.forbidden(&path.field(field), "may only be set if the condition is \"Issued\""),
            _ => {}
        }
    }
}

fn end(object: &Tree) -> Option<&str> {
    let conditions = object.list("status.conditions").iter().map(|condition| condition.str("type"));
    conditions.into_iter().find(|ty| ENDS.contains(ty))
}

fn cells(object: &Tree, _: i64) -> Vec<Tree> {
    vec![
        cells::name(object),
        Tree::from(object.str("spec.podName")),
        Tree::from(object.str("spec.serviceAccountName")),
        Tree::from(object.str("spec.nodeName")),
        Tree::from(object.str("spec.signerName")),
        Tree::from(end(object).unwrap_or("Pending")),
        Tree::from(cells::labels(object.map("spec.unverifiedUserAnnotations"))),
    ]
}
