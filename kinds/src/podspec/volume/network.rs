//! Network volume sources, most of which can no longer be mounted but are still accepted.

use api::Tree;
use api::field::{Errors, Path};

use crate::podspec::check;

pub(crate) const ISCSI_TOO_LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

pub(crate) fn gce_persistent_disk(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "pdName", path, errors);
    partition(source, path, errors);
}

pub(crate) fn aws_elastic_block_store(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "volumeID", path, errors);
    partition(source, path, errors);
}

/// Zero, the whole disk, is allowed although the message states otherwise.
fn partition(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(number) = source.int("partition").filter(|number| !(0..=255).contains(number)) {
        errors.invalid(&path.field("partition"), number, &check::range_text(1, 255));
    }
}

pub(crate) fn nfs(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_all(source, &["server", "path"], path, errors);
    let export = source.str("path");
    if !export.starts_with('/') {
        errors.invalid(&path.field("path"), export, "must be an absolute path");
    }
}

pub(crate) fn iscsi(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "targetPortal", path, errors);
    let iqn = source.str("iqn");
    if iqn.is_empty() {
        errors.required(&path.field("iqn"), "");
    } else {
        iscsi_name(iqn, &path.field("iqn"), errors);
    }
    check::in_range(source, "lun", (0, 255), path, errors);
    if (source.bool("chapAuthDiscovery") || source.bool("chapAuthSession")) && !source.has("secretRef") {
        errors.required(&path.field("secretRef"), "");
    }
    if let Some(initiator) = source.get("initiatorName").and_then(Tree::as_str) {
        iscsi_name(initiator, &path.field("initiatorname"), errors);
    }
}

fn iscsi_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let right = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => is_hex_like(name, "eui", 16),
        Some("naa") => is_hex_like(name, "naa", 32),
        _ => return errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa"),
    };
    if !right {
        errors.invalid(path, name, "must be valid format");
    }
}

/// `iqn.YYYY-MM.domain:unique-name`
fn is_iqn(name: &str) -> bool {
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let parsed = (|| {
        let rest = name.strip_prefix("iqn.")?;
        let (year, rest) = rest.split_once('-')?;
        let (month, rest) = rest.split_once('.')?;
        let (domain, unique) = rest.split_once(':')?;
        Some((year, month, domain, unique))
    })();
    let Some((year, month, domain, unique)) = parsed else { return false };
    digits(year, 4)
        && digits(month, 2)
        && !domain.is_empty()
        && domain.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        && !unique.is_empty()
        && !unique.contains([',', ';', '*', '&', '$', '|'])
        && !unique.contains(char::is_whitespace)
}

fn is_hex_like(name: &str, prefix: &str, count: usize) -> bool {
    let rest = name.strip_prefix(prefix).unwrap_or("");
    rest.len() == count + 1 && rest.bytes().skip(1).all(|b| b.is_ascii_alphanumeric())
}

pub(crate) fn glusterfs(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_all(source, &["endpoints", "path"], path, errors);
}

pub(crate) fn flocker(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (name, uuid) = (source.str("datasetName"), source.str("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        errors.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        errors.invalid(&path.field("datasetName"), name, "must not contain '/'");
    }
}

pub(crate) fn rbd(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    monitors(source, path, errors);
    check::required(source, "image", path, errors);
}

pub(crate) fn cephfs(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    monitors(source, path, errors);
}

fn monitors(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if source.list("monitors").is_empty() {
        errors.required(&path.field("monitors"), "");
    }
}

pub(crate) fn cinder(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "volumeID", path, errors);
    secret_name(source, path, errors);
}

fn secret_name(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(secret) = source.get("secretRef") {
        check::required(secret, "name", &path.field("secretRef"), errors);
    }
}

pub(crate) fn quobyte(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let pairs = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.str("registry");
    if registry.is_empty() {
        errors.required(&path.field("registry"), pairs);
    } else if source.str("tenant").len() >= 65 {
        errors.required(&path.field("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_port(pair)) {
            errors.invalid(&path.field("registry"), registry, pairs);
        }
    }
    check::required(source, "volume", path, errors);
}

fn is_host_port(pair: &str) -> bool {
    match pair.rsplit_once(':') {
        Some((host, _)) => !host.contains(':') || (host.starts_with('[') && host.ends_with(']')),
        None => false,
    }
}

pub(crate) fn fc(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let (names, ids) = (source.list("targetWWNs"), source.list("wwids"));
    let at = path.field("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        errors.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if !names.is_empty() && !ids.is_empty() {
        errors.invalid(&at, source.at("targetWWNs"), "targetWWNs and wwids can not be specified simultaneously");
    }
    if !names.is_empty() {
        if !source.has("lun") {
            errors.required(&path.field("lun"), "lun is required if targetWWNs is specified");
        }
        check::in_range(source, "lun", (0, 255), path, errors);
    }
}

/// Options in the Kubernetes domains are reserved.
pub(crate) fn flex_volume(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "driver", path, errors);
    let options = path.field("options");
    for key in source.map("options").keys() {
        let domain = key.split('/').next().unwrap_or(key).to_lowercase();
        let reserved = |own: &str| domain == own || domain.strip_suffix(own).is_some_and(|rest| rest.ends_with('.'));
        if reserved("kubernetes.io") || reserved("k8s.io") {
            errors.invalid(&options.key(key), key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

pub(crate) fn azure_file(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_all(source, &["secretName", "shareName"], path, errors);
}

pub(crate) fn vsphere(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "volumePath", path, errors);
}

pub(crate) fn photon_persistent_disk(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "pdID", path, errors);
}

pub(crate) fn portworx(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required(source, "volumeID", path, errors);
}

pub(crate) fn azure_disk(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_all(source, &["diskName", "diskURI"], path, errors);
    check::one_of(source, "cachingMode", &["None", "ReadOnly", "ReadWrite"], path, errors);
    check::one_of(source, "kind", &["Dedicated", "Managed", "Shared"], path, errors);
    let uri = source.str("diskURI");
    match source.get("kind").and_then(Tree::as_str) {
        Some("Managed") if !uri.starts_with("/subscriptions/") => errors.not_supported(
            &path.field("diskURI"),
            uri,
            &["/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"],
        ),
        Some(kind) if kind != "Managed" && !uri.starts_with("https://") => errors.not_supported(
            &path.field("diskURI"),
            uri,
            &["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"],
        ),
        _ => {}
    }
}

pub(crate) fn storage_os(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match source.str("volumeName") {
        "" => errors.required(&path.field("volumeName"), ""),
        name => check::dns_label(name, &path.field("volumeName"), errors),
    }
    let namespace = source.str("volumeNamespace");
    if !namespace.is_empty() {
        check::dns_label(namespace, &path.field("volumeNamespace"), errors);
    }
    secret_name(source, path, errors);
}

pub(crate) fn scale_io(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    check::required_all(source, &["gateway", "system", "volumeName"], path, errors);
}

pub(crate) fn csi(source: &Tree, path: &Path<'_>, errors: &mut Errors) {
    csi_driver_name(source.str("driver"), &path.field("driver"), errors);
    if let Some(secret) = source.get("nodePublishSecretRef") {
        match secret.str("name") {
            "" => errors.required(&path.field("nodePublishSecretRef").field("name"), ""),
            name => check::dns_subdomain(name, &path.field("name"), errors),
        }
    }
}

pub(crate) fn csi_driver_name(driver: &str, path: &Path<'_>, errors: &mut Errors) {
    if driver.is_empty() {
        errors.required(path, "");
    }
    if driver.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.invalid_all(path, driver, api::validation::dns1123_subdomain(&driver.to_lowercase()));
}
