//! VolumeAttachment.

use api::Tree;
use api::field::{Errors, Path};
use api::validation::dns1123_subdomain;

use crate::checks::validate_driver_name;
use crate::gojson;
use crate::kind::{Kind, Lifecycle, StatusRules, Subresource, Verb, column};
use crate::{cells, prepare};

pub(crate) static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("Attacher", "string", "name", 0),
        column("PV", "string", "", 0),
        column("Node", "string", "", 0),
        column("Attached", "boolean", "", 0),
        column("Age", "string", "", 0),
    ],
    prepare_create: prepare::no_status,
    prepare_update: prepare::keep_status,
    validate,
    validate_update,
    reset: &["status"],
    status: Some(StatusRules {
        prepare: prepare::keep_all_but_status,
        validate: |object, _, errors| validate_status(object, errors),
        reset: &["spec", "metadata"],
    }),
    unconditional_update: false,
    cells,
    lifecycle: Lifecycle::RETURNS_DELETED,
    ..Kind::cluster("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", "volumeattachment")
};

const MAX_METADATA_BYTES: usize = 256 << 10;
const MAX_MESSAGE_BYTES: usize = 1024;

fn validate(object: &Tree, errors: &mut Errors) {
    if object.str("spec.attacher").is_empty() {
        errors.required(&Path::root("spec.attacher"), "");
    }
    validate_source(object.at("spec.source"), errors);
    let node = object.str("spec.nodeName");
    errors.invalid_all(&Path::root("spec.nodeName"), node, dns1123_subdomain(node));
    validate_status(object, errors);
    if !object.str("spec.attacher").is_empty() {
        validate_driver_name(object.str("spec.attacher"), &Path::root("spec.attacher"), errors);
    }
    let volume = object.str("spec.source.persistentVolumeName");
    if object.at("spec.source").has("persistentVolumeName") {
        errors.invalid_all(&Path::root("spec.source.persistentVolumeName"), volume, dns1123_subdomain(volume));
    }
}

fn validate_source(source: &Tree, errors: &mut Errors) {
    let path = Path::root("spec.source");
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), source.has("persistentVolumeName")) {
        (false, false) => errors.required(&path, detail),
        (true, true) => errors.forbidden(&path, detail),
        (false, true) if source.str("persistentVolumeName").is_empty() => {
            errors.required(&path.field("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        (false, true) => {}
        (true, false) => crate::core::persistent_volume::validate_inline_spec(
            source.at("inlineVolumeSpec"),
            &path.field("inlineVolumeSpec"),
            errors,
        ),
    }
}

fn validate_status(object: &Tree, errors: &mut Errors) {
    let metadata = object.map("status.attachmentMetadata");
    let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > MAX_METADATA_BYTES {
        errors.too_long(&Path::root("status.attachmentMetadata"), MAX_METADATA_BYTES);
    }
    for path in ["status.attachError.message", "status.detachError.message"] {
        if object.str(path).len() > MAX_MESSAGE_BYTES {
            errors.too_long(&Path::root(path), MAX_METADATA_BYTES);
        }
    }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    validate(object, errors);
    if object.at("spec") != old.at("spec") {
        errors.invalid(&Path::root("spec"), gojson::null(), "field is immutable");
    }
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    vec![
        cells::name(object),
        Tree::from(object.str("spec.attacher")),
        Tree::from(object.str("spec.source.persistentVolumeName")),
        Tree::from(object.str("spec.nodeName")),
        Tree::Bool(object.bool("status.attached")),
        cells::age(object, now),
    ]
}
