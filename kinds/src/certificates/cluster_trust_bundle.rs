//! ClusterTrustBundle.

use std::collections::BTreeMap;

use api::Tree;
use api::field::{Errors, Path};

use crate::cells;
use crate::kind::{Kind, column, selectable};
use crate::meta::validate_immutable;
use crate::names;
use crate::pem;
use crate::podspec::volume::projected::validate_signer_name;

pub(crate) static KIND: Kind = Kind {
    upstream_version: Some("v1beta1"),
    columns: &[column("Name", "string", "name", 0), column("SignerName", "string", "", 0)],
    selectable: &[selectable("spec.signerName")],
    validate_name: names::any,
    validate: |object, errors| validate(object, None, errors),
    validate_update: |object, old, errors| {
        validate(object, Some(old), errors);
        let path = Path::root("spec.signerName");
        validate_immutable(object.at("spec.signerName"), old.at("spec.signerName"), &path, errors);
    },
    unconditional_update: false,
    cells,
    ..Kind::cluster("certificates.k8s.io", "v1", "ClusterTrustBundle", "clustertrustbundles", "clustertrustbundle")
};

const MAX_BYTES: usize = 1024 * 1024;
const HIDDEN: &str = "<value omitted>";

fn validate(object: &Tree, old: Option<&Tree>, errors: &mut Errors) {
    validate_name(object, errors);
    let signer = object.str("spec.signerName");
    if !signer.is_empty() {
        validate_signer_name(signer, &Path::root("spec.signerName"), errors);
    }
    // Certificate rules may have become stricter since a bundle was stored.
    if old.is_none_or(|old| old.at("spec.trustBundle") != object.at("spec.trustBundle")) {
        validate_bundle(object.str("spec.trustBundle"), &Path::root("spec.trustBundle"), errors);
    }
}

/// The name of a bundle with a signer starts with the signer's name.
fn validate_name(object: &Tree, errors: &mut Errors) {
    let (name, signer) = (object.str("metadata.name"), object.str("spec.signerName"));
    let path = Path::root("metadata.name");
    if signer.is_empty() {
        if name.contains(':') {
            let detail = "ClusterTrustBundle without signer name must not have \":\" in its name";
            errors.invalid(&path, name, detail);
        } else {
            errors.invalid_all(&path, name, names::dns_subdomain(name, false));
        }
        return;
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => errors.invalid_all(&path, name, names::dns_subdomain(rest, false)),
        None => {
            let detail = format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
            errors.invalid(&path, name, &detail);
        }
    }
}

fn validate_bundle(bundle: &str, path: &Path<'_>, errors: &mut Errors) {
    if bundle.len() > MAX_BYTES {
        return errors.too_long(path, MAX_BYTES);
    }
    let (blocks, before) = (pem::blocks(bundle), errors.len());
    for (index, block) in blocks.iter().enumerate() {
        let problem = match block {
            block if block.label != "CERTIFICATE" => format!("entry {index} has bad block type: {}", block.label),
            block if block.has_headers => format!("entry {index} has PEM block headers"),
            block if !pem::is_signed(&block.der) => {
                format!("entry {index} does not parse as X.509: x509: malformed certificate")
            }
            _ => continue,
        };
        errors.invalid(path, HIDDEN, &problem);
    }
    if errors.len() > before {
        return;
    }
    if blocks.is_empty() {
        errors.invalid(path, HIDDEN, "at least one trust anchor must be provided");
    }
    let mut places: BTreeMap<&[u8], Vec<String>> = BTreeMap::new();
    for (index, block) in blocks.iter().enumerate() {
        places.entry(&block.der).or_default().push(index.to_string());
    }
    for same in places.values().filter(|same| same.len() > 1) {
        errors.invalid(path, HIDDEN, &format!("duplicate trust anchor (indices [{}])", same.join(" ")));
    }
}

fn cells(object: &Tree, _: i64) -> Vec<Tree> {
    vec![cells::name(object), cells::text_or(object, "spec.signerName", "<none>")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn bundle_names_start_with_the_signer() {
        let check = |name: &str, signer: &str, want: usize| {
            let mut errors = Errors::new();
            let object = tree! { "metadata" => tree! { "name" => name }, "spec" => tree! { "signerName" => signer } };
            validate_name(&object, &mut errors);
            assert_eq!(errors.len(), want, "{name} {signer}");
        };
        check("a", "", 0);
        check("e.com:s:a", "", 1);
        check("e.com:s:a", "e.com/s", 0);
        check("a", "e.com/s", 1);
    }
}
