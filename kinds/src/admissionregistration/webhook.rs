//! The webhooks of both configuration kinds.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::{dns1035_label, dns1123_subdomain, fully_qualified_name, port_number};

use super::rules;
use super::stored::StoredExpressions;
use crate::podspec::small_set::SmallSet;

const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const FORM: &str = "; desired format: https://host[/path]";

pub(super) fn set_defaults(object: &mut Tree) {
    for webhook in object.list_mut("webhooks") {
        webhook.set_default("failurePolicy", "Fail");
        webhook.set_default("timeoutSeconds", 10);
        rules::set_match_defaults(webhook);
        rules::set_rule_defaults(webhook.list_mut("rules"));
        if let Some(service) = webhook.at_mut("clientConfig.service") {
            service.set_default("port", 443);
        }
    }
}

pub(crate) fn set_mutating_defaults(object: &mut Tree) {
    set_defaults(object);
    for webhook in object.list_mut("webhooks") {
        webhook.set_default("reinvocationPolicy", "Never");
    }
}

pub(super) fn validate(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    let webhooks = object.list("webhooks");
    let stored = StoredExpressions::of(old);
    let path = Path::root("webhooks");
    let mut seen = SmallSet::new();
    for (index, webhook) in webhooks.iter().enumerate() {
        let path = path.index(index);
        validate_webhook(webhook, &path, errors);
        if !has_stored_conditions(webhooks, old) {
            rules::validate_match_conditions(webhook, &stored, &path, errors);
        }
        validate_versions(webhook, &path.field("admissionReviewVersions"), errors);
        let name = webhook.str("name");
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
    }
}

/// Whether no match condition has changed.
fn has_stored_conditions(webhooks: &[Tree], old: Option<&Tree>) -> bool {
    let Some(old) = old.map(|old| old.list("webhooks")).filter(|old| old.len() == webhooks.len()) else { return false };
    webhooks.iter().zip(old).all(|(webhook, old)| webhook.at("matchConditions") == old.at("matchConditions"))
}

fn validate_webhook(webhook: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match webhook.str("name") {
        "" => errors.required(&path.field("name"), ""),
        name => errors.invalid_all(&path.field("name"), name, fully_qualified_name(name)),
    }
    for (index, rule) in webhook.list("rules").iter().enumerate() {
        rules::validate_rule(rule, &path.field("rules").index(index), errors);
    }
    rules::validate_one_of(webhook, "failurePolicy", rules::FAILURE_POLICIES, path, errors);
    rules::validate_match_policy(webhook, path, errors);
    if !webhook.has("sideEffects") {
        errors.required(&path.field("sideEffects"), "must specify one of None, NoneOnDryRun");
    }
    rules::validate_one_of(webhook, "sideEffects", SIDE_EFFECTS, path, errors);
    let seconds = webhook.int("timeoutSeconds");
    if let Some(seconds) = seconds.filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.field("timeoutSeconds"), seconds, detail);
    }
    rules::validate_selectors(webhook, path, errors);
    rules::validate_one_of(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    validate_client(webhook.at("clientConfig"), &path.field("clientConfig"), errors);
}

pub(crate) fn validate_client(client: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match (client.at("url").as_str(), client.get("service")) {
        (Some(url), None) => validate_url(url, &path.field("url"), errors),
        (None, Some(service)) => validate_service(service, &path.field("service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn validate_url(url: &str, path: &Path<'_>, errors: &mut Errors) {
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or("") };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if scheme != "https" {
        errors.invalid(path, scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid(path, host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

fn validate_service(service: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for field in ["name", "namespace"] {
        if service.str(field).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
    let port = service.int("port").unwrap_or(0);
    let messages = port_number(port);
    if !messages.is_empty() {
        errors.invalid(&path.field("port"), port, &format!("port is not valid: {}", messages.join(",")));
    }
    validate_url_path(service.str("path"), &path.field("path"), errors);
}

fn validate_url_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(text, "" | "/") {
        return;
    }
    if text == "//" {
        return errors.invalid(path, text, "segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        errors.invalid(path, text, "must start with a '/'");
    }
    let inner = text.get(1..).unwrap_or("");
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    for (index, step) in inner.split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(path, text, &format!("segment[{index}] may not be empty"));
            continue;
        }
        for message in dns1123_subdomain(step) {
            errors.invalid(path, text, &format!("segment[{index}]: {message}"));
        }
    }
}

fn validate_versions(webhook: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let versions = webhook.list("admissionReviewVersions");
    if versions.is_empty() {
        return errors.required(path, "must specify one of v1, v1beta1");
    }
    let mut seen = SmallSet::new();
    for (index, version) in versions.iter().enumerate() {
        let text = version.as_str().unwrap_or("");
        if !seen.insert(text) {
            errors.invalid(&path.index(index), text, "duplicate version");
            continue;
        }
        errors.invalid_all(&path.index(index), text, dns1035_label(text));
    }
    if !versions.iter().any(|version| matches!(version.as_str(), Some("v1" | "v1beta1"))) {
        errors.invalid(path, webhook.at("admissionReviewVersions"), "must include at least one of v1, v1beta1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn check(field: &str, value: impl Into<Tree>, want: &[&str]) {
        let client = tree! { "url" => "https://e.com" };
        let mut webhook = tree! {
            "name" => "a.b.c",
            "sideEffects" => "None",
            "admissionReviewVersions" => list!["v1"],
            "clientConfig" => client,
        };
        webhook.set(field, value);
        let mut object = tree! { "webhooks" => list![webhook] };
        set_mutating_defaults(&mut object);
        let mut errors = Errors::new();
        validate(&object, None, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, want, "{field}");
    }

    #[test]
    fn policies_have_known_values() {
        check("name", "a.b.c", &[]);
        check(
            "failurePolicy",
            "",
            &["webhooks[0].failurePolicy: Unsupported value: \"\": supported values: \"Fail\", \"Ignore\""],
        );
        check(
            "matchPolicy",
            "",
            &["webhooks[0].matchPolicy: Unsupported value: \"\": supported values: \"Equivalent\", \"Exact\""],
        );
        check(
            "reinvocationPolicy",
            "",
            &["webhooks[0].reinvocationPolicy: Unsupported value: \"\": supported values: \"IfNeeded\", \"Never\""],
        );
        check(
            "sideEffects",
            "",
            &["webhooks[0].sideEffects: Unsupported value: \"\": supported values: \"None\", \"NoneOnDryRun\""],
        );
        check(
            "sideEffects",
            Tree::Null,
            &["webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"],
        );
        check(
            "admissionReviewVersions",
            list!["v1", "v1"],
            &["webhooks[0].admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version"],
        );
    }

    #[test]
    fn urls_are_plain() {
        let check = |url: &str, want: usize| {
            let mut errors = Errors::new();
            validate_url(url, &Path::root("u"), &mut errors);
            assert_eq!(errors.len(), want, "{url}");
        };
        check("https://e.com/x", 0);
        check("http://e.com", 1);
        check("https://u:p@e.com?x=1", 2);
        check("https://", 1);
        check("https://e.com#f", 1);
        check("", 2);
    }
}
