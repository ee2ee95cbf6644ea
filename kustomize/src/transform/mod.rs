//! Transformers: those of the fields of a kustomization in kustomize's order, and those of `transformers`.

mod affix;
mod images;
mod namespace;
mod patches;
mod replacement;

use api::{Str, Tree, yaml};

use crate::config::{Config, field_specs};
use crate::error::Error;
use crate::field_spec::{self, Creates, FieldSpec};
use crate::fields::Reader;
use crate::files::Loader;
use crate::resources::Resources;
use crate::sort;

use images::Image;
use namespace::Namespace;
use patches::{JsonPatch, Patch, StrategicPatches};
use replacement::Replacement;

pub(crate) enum Transformer {
    Strategic(StrategicPatches),
    Patch(Box<Patch>),
    Namespace(Namespace),
    Prefix {
        text: String,
        specs: Vec<FieldSpec>,
    },
    Suffix {
        text: String,
        specs: Vec<FieldSpec>,
    },
    /// Labels or annotations.
    Entries {
        pairs: Vec<(Str, Str)>,
        specs: Vec<FieldSpec>,
    },
    Json(JsonPatch),
    Replicas {
        name: String,
        count: i64,
        specs: Vec<FieldSpec>,
    },
    Image {
        image: Image,
        specs: Vec<FieldSpec>,
    },
    Replacements(Vec<Replacement>),
    Hash,
    Sort(Tree),
    Value {
        value: String,
        specs: Vec<FieldSpec>,
    },
}

impl Transformer {
    pub(crate) fn apply(&self, resources: &mut Resources) -> Result<(), Error> {
        match self {
            Transformer::Strategic(patches) => patches.apply(resources),
            Transformer::Patch(patch) => patch.apply(resources),
            Transformer::Namespace(namespace) => namespace.apply(resources),
            Transformer::Prefix { text, specs } => affix::prefix(resources, text, specs),
            Transformer::Suffix { text, specs } => affix::suffix(resources, text, specs),
            Transformer::Entries { pairs, specs } => set_entries(resources, pairs, specs),
            Transformer::Json(patch) => patch.apply(resources),
            Transformer::Replicas { name, count, specs } => set_replicas(resources, name, *count, specs),
            Transformer::Image { image, specs } => image.apply(resources, specs),
            Transformer::Replacements(replacements) => {
                replacements.iter().try_for_each(|replacement| replacement.apply(resources))
            }
            Transformer::Hash => {
                resources.list.iter_mut().for_each(|resource| resource.needs_hash = true);
                Ok(())
            }
            Transformer::Sort(options) => sort::sort(resources, Some(options)),
            Transformer::Value { value, specs } => add_value(resources, value, specs),
        }
    }
}

type Named = (&'static str, Transformer);

/// The transformers of a kustomization's fields, with the kinds that kustomize knows them by.
pub(crate) fn from_fields(
    reader: &Reader,
    common_labels: &[(Str, Str)],
    config: &Config,
    loader: &Loader,
) -> Result<Vec<Named>, Error> {
    let mut out: Vec<Named> = Vec::new();
    let strategic = reader.texts("patchesStrategicMerge")?;
    if !strategic.is_empty() {
        let patches = StrategicPatches::load(&strategic, loader)?;
        out.push(("PatchStrategicMergeTransformer", Transformer::Strategic(patches)));
    }
    for patch in reader.list("patches")? {
        out.push(("PatchTransformer", Transformer::Patch(Box::new(Patch::read(patch, loader)?))));
    }
    let namespace = reader.text("namespace")?;
    if !namespace.is_empty() {
        let namespace = Namespace::new(namespace, config.namespace.clone());
        out.push(("NamespaceTransformer", Transformer::Namespace(namespace)));
    }
    let (prefix, suffix) = (reader.text("namePrefix")?, reader.text("nameSuffix")?);
    if !prefix.is_empty() {
        out.push(("PrefixTransformer", Transformer::Prefix { text: prefix, specs: config.name_prefix.clone() }));
    }
    if !suffix.is_empty() {
        out.push(("SuffixTransformer", Transformer::Suffix { text: suffix, specs: config.name_suffix.clone() }));
    }
    add_labels(&mut out, reader, common_labels, config)?;
    let annotations = reader.pairs("commonAnnotations")?;
    if !annotations.is_empty() {
        let specs = config.common_annotations.clone();
        out.push(("AnnotationsTransformer", Transformer::Entries { pairs: annotations, specs }));
    }
    for patch in reader.list("patchesJson6902")? {
        out.push(("PatchJson6902Transformer", Transformer::Json(JsonPatch::read(patch, "patch", loader)?)));
    }
    for replica in reader.list("replicas")? {
        out.push(("ReplicaCountTransformer", read_replicas(replica, config.replicas.clone())?));
    }
    for field in ["images", "imageTags"] {
        for image in reader.list(field)? {
            let image = Image::read(image)?;
            out.push(("ImageTagTransformer", Transformer::Image { image, specs: config.images.clone() }));
        }
    }
    let replacements = reader.list("replacements")?;
    if !replacements.is_empty() {
        let replacements = Replacement::read_all(replacements, loader)?;
        out.push(("ReplacementTransformer", Transformer::Replacements(replacements)));
    }
    Ok(out)
}

fn add_labels(
    out: &mut Vec<Named>,
    reader: &Reader,
    common_labels: &[(Str, Str)],
    config: &Config,
) -> Result<(), Error> {
    const FIELDS: &[&str] = &["pairs", "includeSelectors", "includeTemplates", "fields"];
    let labels = reader.list("labels")?;
    for label in labels {
        let label = Reader::new(label, "Label").known(FIELDS)?;
        let mut specs = crate::config::read_specs(label.list("fields")?);
        let failed = |error: Error| error.context("failed to merge labels");
        field_spec::merge(&mut specs, &config.labels).map_err(failed)?;
        if label.bool("includeSelectors")? {
            field_spec::merge(&mut specs, &config.common_labels).map_err(failed)?;
        } else {
            if label.bool("includeTemplates")? {
                let failed = |error: Error| error.context("failed to merge template fieldSpec");
                field_spec::merge(&mut specs, &config.template_labels).map_err(failed)?;
            }
            field_spec::merge(&mut specs, &[FieldSpec::new("metadata/labels", true)]).map_err(failed)?;
        }
        out.push(("LabelTransformer", Transformer::Entries { pairs: label.pairs("pairs")?, specs }));
    }
    if !labels.is_empty() || !common_labels.is_empty() {
        let (pairs, specs) = (common_labels.to_vec(), config.common_labels.clone());
        out.push(("LabelTransformer", Transformer::Entries { pairs, specs }));
    }
    Ok(())
}

fn read_replicas(tree: &Tree, specs: Vec<FieldSpec>) -> Result<Transformer, Error> {
    let reader = Reader::new(tree, "Replica").known(&["name", "count"])?;
    let count = reader.get("count").and_then(Tree::as_int).unwrap_or(0);
    Ok(Transformer::Replicas { name: reader.text("name")?, count, specs })
}

/// A transformer of `transformers`.
pub(crate) fn from_config(tree: &Tree, loader: &Loader) -> Result<Transformer, Error> {
    if tree.str("apiVersion") != "builtin" {
        return Err(Error::ExternalPlugin(format!("{}/{}", tree.str("apiVersion"), tree.str("kind"))));
    }
    let reader = Reader::new(tree, "Plugin");
    let specs = field_specs(&reader)?;
    Ok(match tree.str("kind") {
        "AnnotationsTransformer" => Transformer::Entries { pairs: reader.pairs("annotations")?, specs },
        "LabelTransformer" => Transformer::Entries { pairs: reader.pairs("labels")?, specs },
        "PrefixTransformer" => Transformer::Prefix { text: reader.text("prefix")?, specs },
        "SuffixTransformer" => Transformer::Suffix { text: reader.text("suffix")?, specs },
        "NamespaceTransformer" => Transformer::Namespace(Namespace::read(tree, specs)?),
        "PatchTransformer" => Transformer::Patch(Box::new(Patch::read_config(tree, loader)?)),
        "PatchJson6902Transformer" => Transformer::Json(JsonPatch::read(tree, "jsonOp", loader)?),
        "PatchStrategicMergeTransformer" => {
            Transformer::Strategic(StrategicPatches::read(&reader.texts("paths")?, &reader.text("patches")?, loader)?)
        }
        "ReplicaCountTransformer" => read_replicas(tree.at("replica"), specs)?,
        "ImageTagTransformer" => Transformer::Image { image: Image::read(tree.at("imageTag"))?, specs },
        "ReplacementTransformer" => {
            Transformer::Replacements(Replacement::read_all(reader.list("replacements")?, loader)?)
        }
        "HashTransformer" => Transformer::Hash,
        "SortOrderTransformer" => Transformer::Sort(tree.at("sortOptions").clone()),
        "LegacyOrderTransformer" => Transformer::Sort(api::tree! { "order" => "legacy" }),
        "ValueAddTransformer" => Transformer::Value {
            value: reader.text("value")?,
            specs: crate::config::read_specs(reader.list("targets")?),
        },
        _ => return Err(Error::UnknownBuiltin(crate::id::Gvk::of(tree).to_string())),
    })
}

/// The value must be a map, which the message shows as YAML if it is not.
pub(super) fn check_map(value: &Tree) -> Result<(), Error> {
    let actual = match value {
        Tree::Map(_) | Tree::Null => return Ok(()),
        Tree::List(_) => "SequenceNode",
        _ => "ScalarNode",
    };
    let contents = String::from_utf8_lossy(&yaml::encode(value)).into_owned();
    Err(Error::NodeKind { expected: "MappingNode", actual, contents })
}

pub(super) fn check_scalar(value: &Tree) -> Result<(), Error> {
    let actual = match value {
        Tree::Map(_) => "MappingNode",
        Tree::List(_) => "SequenceNode",
        _ => return Ok(()),
    };
    let contents = String::from_utf8_lossy(&yaml::encode(value)).into_owned();
    Err(Error::NodeKind { expected: "ScalarNode", actual, contents })
}

fn set_entries(resources: &mut Resources, pairs: &[(Str, Str)], specs: &[FieldSpec]) -> Result<(), Error> {
    for resource in &mut resources.list {
        for (key, text) in pairs {
            for spec in specs {
                spec.apply(&mut resource.tree, Creates::Map, &mut |value| {
                    check_map(value)?;
                    value.set(key, text.clone());
                    Ok(())
                })?;
            }
        }
    }
    Ok(())
}

fn set_replicas(resources: &mut Resources, name: &str, count: i64, specs: &[FieldSpec]) -> Result<(), Error> {
    let mut was_found = false;
    for spec in specs {
        for at in resources.find_any(|id| id.name == name && id.gvk.is_selected_by(&spec.gvk)) {
            was_found = true;
            spec.apply(&mut resources.list[at].tree, Creates::Scalar, &mut |value| {
                *value = Tree::Int(count);
                Ok(())
            })?;
        }
    }
    if was_found {
        return Ok(());
    }
    let kinds: Vec<String> = specs.iter().map(|spec| spec.gvk.to_string()).collect();
    Err(Error::NoReplicas { name: name.to_string(), kinds: kinds.join(" ") })
}

fn add_value(resources: &mut Resources, text: &str, specs: &[FieldSpec]) -> Result<(), Error> {
    for resource in &mut resources.list {
        for spec in specs {
            let spec = FieldSpec { create: true, ..spec.clone() };
            spec.apply(&mut resource.tree, Creates::Scalar, &mut |value| {
                *value = Tree::from(text);
                Ok(())
            })?;
        }
    }
    Ok(())
}
