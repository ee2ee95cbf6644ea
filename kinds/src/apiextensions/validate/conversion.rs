//! How objects are converted between the versions of a definition.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::{Options, validate_one_of};
use crate::admissionregistration::webhook::validate_client;
use crate::custom::is_true;

pub(super) fn is_review_version(version: &Tree) -> bool {
    matches!(version.as_str(), Some("v1" | "v1beta1"))
}

pub(super) fn validate(spec: &Tree, options: &Options<'_>, path: &Path<'_>, errors: &mut Errors) {
    let conversion = spec.at("conversion");
    if !matches!(conversion, Tree::Map(_)) {
        return;
    }
    let strategy = conversion.str("strategy");
    if strategy != "None" && spec.bool("preserveUnknownFields") {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(&path.field("strategy"), strategy, why);
    }
    validate_one_of(strategy, &["None", "Webhook"], &path.field("strategy"), errors);
    let versions = conversion.at("webhook.conversionReviewVersions");
    let config = conversion.at("webhook.clientConfig");
    let (config_path, versions_path) = (path.field("webhookClientConfig"), path.field("conversionReviewVersions"));
    if strategy == "Webhook" {
        match config {
            Tree::Map(_) => validate_client(config, &config_path, errors),
            _ => errors.required(&config_path, "required when strategy is set to Webhook"),
        }
        validate_ca_bundle(config, options, &config_path.field("caBundle"), errors);
        validate_review_versions(versions, options, &versions_path, errors);
        return;
    }
    let why = "should not be set when strategy is not set to Webhook";
    if matches!(config, Tree::Map(_)) {
        errors.forbidden(&config_path, why);
    }
    if versions.as_list().is_some_and(|versions| !versions.is_empty()) {
        errors.forbidden(&versions_path, why);
    }
}

/// An invalid bundle may be set as long as nothing is served, and stay.
fn validate_ca_bundle(config: &Tree, options: &Options<'_>, path: &Path<'_>, errors: &mut Errors) {
    let Some(old) = options.old.filter(|old| is_true(old, "Established")) else { return };
    let is_valid = |bundle: &str| {
        let text = api::base64::decode(bundle).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        text.is_some_and(|text| text.contains("-----BEGIN CERTIFICATE-----"))
    };
    let (bundle, before) = (config.str("caBundle"), old.str("spec.conversion.webhook.clientConfig.caBundle"));
    if !bundle.is_empty() && !is_valid(bundle) && (before.is_empty() || is_valid(before)) {
        let why = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.invalid(path, bundle, why);
    }
}

fn validate_review_versions(versions: &Tree, options: &Options<'_>, path: &Path<'_>, errors: &mut Errors) {
    let list = versions.as_list().unwrap_or(&[]);
    if list.is_empty() {
        return errors.required(path, "");
    }
    for (index, version) in list.iter().enumerate() {
        let text = version.as_str().unwrap_or("");
        if list[..index].contains(version) {
            errors.invalid(&path.index(index), text, "duplicate version");
            continue;
        }
        errors.invalid_all(&path.index(index), text, validation::dns1035_label(text));
    }
    if options.requires_review_version && !list.iter().any(is_review_version) {
        errors.invalid(path, versions, "must include at least one of v1, v1beta1");
    }
}
