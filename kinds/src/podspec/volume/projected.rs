//! Projected volumes: several sources in one directory.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::local;
use crate::podspec::small_set::SmallSet;
use crate::podspec::{check, selector};

pub(crate) fn validate(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::file_mode(source, "defaultMode", path, errors);
    let sources = path.field("sources");
    let mut paths = ProjectedPaths { seen: SmallSet::new(), at: path };
    for (index, source) in source.list("sources").iter().enumerate() {
        validate_source(source, &mut paths, &sources.index(index), errors);
    }
}

/// The projected files; paths must be unique. Errors have the path of the volume.
struct ProjectedPaths<'a> {
    seen: SmallSet<&'a str>,
    at: &'a Path<'a>,
}

impl<'a> ProjectedPaths<'a> {
    /// `shown` is the value in the error.
    fn add(&mut self, path: &'a str, shown: &str, errors: &mut Errors) {
        if !self.seen.insert(path) {
            errors.invalid(self.at, shown, "conflicting duplicate paths");
        }
    }
}

fn validate_source<'a>(source: &'a Tree, paths: &mut ProjectedPaths<'a>, path: &Path<'_>, errors: &mut Errors) {
    for key in ["secret", "configMap"] {
        if let Some(source) = source.get(key) {
            validate_keys(source, paths, &path.field(key), errors);
        }
    }
    if let Some(downward) = source.get("downwardAPI") {
        for file in downward.list("items") {
            local::downward_api_file(file, &path.field("downwardAPI"), errors);
            let file = file.str("path");
            if !file.is_empty() {
                paths.add(file, file, errors);
            }
        }
    }
    if let Some(token) = source.get("serviceAccountToken") {
        validate_token(token, paths.at, &path.field("serviceAccountToken"), errors);
    }
    if let Some(bundle) = source.get("clusterTrustBundle") {
        validate_trust_bundle(bundle, paths, &path.field("clusterTrustBundle"), errors);
    }
    if let Some(certificate) = source.get("podCertificate") {
        validate_certificate(certificate, paths, &path.field("podCertificate"), errors);
    }
    if source.as_map().is_some_and(|map| map.len() > 1) {
        errors.forbidden(path, "may not specify more than 1 volume type per source");
    }
}

fn validate_keys<'a>(source: &'a Tree, paths: &mut ProjectedPaths<'a>, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "name", path, errors);
    let items = path.field("items");
    for (index, item) in source.list("items").iter().enumerate() {
        local::key_to_path(item, &items.index(index), errors);
        let file = item.str("path");
        if !file.is_empty() {
            paths.add(file, source.str("name"), errors);
        }
    }
}

/// The path of a token is validated at the volume.
fn validate_token(token: &Tree, volume: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let seconds = token.int("expirationSeconds").unwrap_or(0);
    if seconds < 600 {
        errors.invalid(&path.field("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(
            &path.field("expirationSeconds"),
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    match token.str("path") {
        "" => errors.required(&volume.field("path"), ""),
        file => check::local_non_reserved(file, &volume.field("path"), errors),
    }
}

fn validate_trust_bundle<'a>(bundle: &'a Tree, paths: &mut ProjectedPaths<'a>, path: &Path<'_>, errors: &mut Errors) {
    let (name, signer) = (bundle.get("name"), bundle.get("signerName"));
    match (name.and_then(Tree::as_str), signer.and_then(Tree::as_str)) {
        (Some(_), Some(_)) => errors.invalid(path, bundle, "only one of name and signerName may be used"),
        (Some(name), None) => validate_bundle_name(name, bundle, path, errors),
        (None, Some(signer)) => {
            validate_signer_name(signer, &path.field("signerName"), errors);
            selector::validate_label_selector(bundle.at("labelSelector"), &path.field("labelSelector"), errors);
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    let file = bundle.str("path");
    check::required(bundle, "path", path, errors);
    check::local_non_reserved(file, &path.field("path"), errors);
    paths.add(file, file, errors);
}

fn validate_bundle_name(name: &str, bundle: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(&path.field("name"), "must be a valid object name");
    }
    for message in bundle_name_messages(name) {
        let text = format!("not a valid clustertrustbundlename: {message}");
        errors.invalid(&path.field("name"), name, &text);
    }
    if let Some(selector) = bundle.get("labelSelector") {
        let text = "labelSelector must be unset if name is specified";
        errors.invalid(&path.field("labelSelector"), selector, text);
    }
}

/// The name of a bundle with a signer starts with the signer's name.
fn bundle_name_messages(name: &str) -> Vec<String> {
    let own = match name.split(':').collect::<Vec<_>>()[..] {
        [_, _, own] => own,
        [_] => name,
        _ => return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_string()],
    };
    validation::dns1123_subdomain(own)
}

/// `example.com/signer`: a domain of at least two labels and a path.
pub(crate) fn validate_signer_name(signer: &str, path: &Path<'_>, errors: &mut Errors) {
    if signer.is_empty() {
        return errors.required(path, "");
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, name] = parts[..] else {
        return errors.invalid(
            path,
            signer,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
    };
    let labels: Vec<&str> = domain.split('.').collect();
    for label in &labels {
        for message in validation::dns1123_label(label) {
            errors.invalid(path, domain, &format!("validating label \"{label}\": {message}"));
        }
    }
    if labels.len() < 2 {
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots");
    }
    for label in name.split('.') {
        for message in validation::dns1123_label(label) {
            errors.invalid(path, name, &format!("validating label \"{label}\": {message}"));
        }
    }
}

const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

const HOUR_SECONDS: i64 = 3600;
const DAYS_91_SECONDS: i64 = 91 * 24 * HOUR_SECONDS;

fn validate_certificate<'a>(
    certificate: &'a Tree,
    paths: &mut ProjectedPaths<'a>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    validate_signer_name(certificate.str("signerName"), &path.field("signerName"), errors);
    let key_type = certificate.str("keyType");
    if !KEY_TYPES.contains(&key_type) {
        errors.not_supported(&path.field("keyType"), key_type, KEY_TYPES);
    }
    if let Some(seconds) = certificate.int("maxExpirationSeconds") {
        validate_expiration(seconds, &path.field("maxExpirationSeconds"), errors);
    }
    let mut any = false;
    for key in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let file = certificate.get(key).and_then(Tree::as_str).unwrap_or("");
        if !file.is_empty() {
            any = true;
            check::local_non_reserved(file, &path.field(key), errors);
            paths.add(file, file, errors);
        }
    }
    if !any {
        let text = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, text);
    }
}

fn validate_expiration(seconds: i64, path: &Path<'_>, errors: &mut Errors) {
    if seconds < HOUR_SECONDS {
        errors.invalid(path, seconds, &format!("if provided, maxExpirationSeconds must be >= {HOUR_SECONDS}"));
    }
    if seconds > DAYS_91_SECONDS {
        errors.invalid(path, seconds, &format!("if provided, maxExpirationSeconds must be <= {DAYS_91_SECONDS}"));
    }
}
