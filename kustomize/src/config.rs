//! Which fields transformers change, by default and by `configurations`.

use api::{Tree, yaml};

use crate::error::Error;
use crate::field_spec::{self, FieldSpec};
use crate::fields::{Reader, map_text};
use crate::files::Loader;
use crate::id::Gvk;
use crate::sort;

/// A referrer's field holds the name of a resource of this kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NameReference {
    pub(crate) target: Gvk,
    pub(crate) referrers: Vec<FieldSpec>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Config {
    pub(crate) name_prefix: Vec<FieldSpec>,
    pub(crate) name_suffix: Vec<FieldSpec>,
    pub(crate) namespace: Vec<FieldSpec>,
    pub(crate) labels: Vec<FieldSpec>,
    pub(crate) common_labels: Vec<FieldSpec>,
    pub(crate) template_labels: Vec<FieldSpec>,
    pub(crate) common_annotations: Vec<FieldSpec>,
    pub(crate) name_references: Vec<NameReference>,
    pub(crate) var_references: Vec<FieldSpec>,
    pub(crate) images: Vec<FieldSpec>,
    pub(crate) replicas: Vec<FieldSpec>,
}

/// A line is `SECTION GROUP/VERSION/KIND PATH [create]`, with `<- GROUP/VERSION/KIND` of the target of a name reference.
const DEFAULTS: &str = include_str!("defaults.txt");

const SECTIONS: &[&str] = &[
    "namePrefix",
    "nameSuffix",
    "namespace",
    "labels",
    "commonLabels",
    "templateLabels",
    "commonAnnotations",
    "varReference",
    "images",
    "replicas",
];

impl Config {
    pub(crate) fn defaults() -> Config {
        let mut config = Config::default();
        for line in DEFAULTS.lines() {
            let mut words = line.split(' ');
            let section = words.next().unwrap_or_default();
            let gvk = read_gvk(words.next().unwrap_or_default());
            let path = words.next().unwrap_or_default().to_string();
            let rest: Vec<&str> = words.collect();
            let spec = FieldSpec { gvk, path, create: rest == ["create"] };
            match (section, rest.as_slice()) {
                ("nameReference", ["<-", target]) => config.add_reference(read_gvk(target), spec),
                _ => {
                    if let Some(specs) = config.section(section) {
                        specs.push(spec);
                    }
                }
            }
        }
        config
    }

    fn add_reference(&mut self, target: Gvk, spec: FieldSpec) {
        match self.name_references.iter_mut().find(|known| known.target == target) {
            Some(known) => known.referrers.push(spec),
            None => self.name_references.push(NameReference { target, referrers: vec![spec] }),
        }
    }

    fn section(&mut self, name: &str) -> Option<&mut Vec<FieldSpec>> {
        Some(match name {
            "namePrefix" => &mut self.name_prefix,
            "nameSuffix" => &mut self.name_suffix,
            "namespace" => &mut self.namespace,
            "labels" => &mut self.labels,
            "commonLabels" => &mut self.common_labels,
            "templateLabels" => &mut self.template_labels,
            "commonAnnotations" => &mut self.common_annotations,
            "varReference" => &mut self.var_references,
            "images" => &mut self.images,
            "replicas" => &mut self.replicas,
            _ => return None,
        })
    }

    /// The defaults with the configuration files of a kustomization.
    pub(crate) fn load(loader: &Loader, paths: &[String]) -> Result<Config, Error> {
        let mut config = Config::defaults();
        for name in SECTIONS {
            if let Some(section) = config.section(name) {
                section.sort_by_cached_key(|spec| sort::gvk_order(&spec.gvk));
            }
        }
        for path in paths {
            let tree = yaml::decode(&loader.load(path)?)?;
            config.merge(&Config::read(&tree)?)?;
        }
        Ok(config)
    }

    fn read(tree: &Tree) -> Result<Config, Error> {
        let mut config = Config::default();
        for name in SECTIONS {
            let specs = read_specs(tree.list(name));
            if let Some(section) = config.section(name) {
                *section = specs;
            }
        }
        for reference in tree.list("nameReference") {
            let referrers = read_specs(reference.list("fieldSpecs"));
            config.name_references.push(NameReference { target: gvk_of(reference), referrers });
        }
        Ok(config)
    }

    pub(crate) fn merge(&mut self, other: &Config) -> Result<(), Error> {
        let mut other = other.clone();
        for name in SECTIONS {
            let incoming = other.section(name).map(std::mem::take).unwrap_or_default();
            if let Some(section) = self.section(name) {
                field_spec::merge(section, &incoming)?;
            }
        }
        for reference in other.name_references {
            match self.name_references.iter_mut().find(|known| known.target == reference.target) {
                Some(known) => field_spec::merge(&mut known.referrers, &reference.referrers)?,
                None => self.name_references.push(reference),
            }
        }
        Ok(())
    }

    /// References of custom resources, which `crds` files describe with `x-kubernetes-object-ref` extensions.
    pub(crate) fn merge_definitions(&mut self, loader: &Loader, paths: &[String]) -> Result<(), Error> {
        for path in paths {
            let tree = yaml::decode(&loader.load(path)?)?;
            for (name, definition) in tree.as_map().into_iter().flat_map(api::Map::iter) {
                let schema = definition.get("Schema").unwrap_or(definition);
                let group_version = name.rsplit('.').nth(1).unwrap_or_default();
                let kind = Gvk::new(group_version, name.rsplit('.').next().unwrap_or_default());
                self.add_definition(&tree, schema, &Gvk { kind: kind.kind, ..Gvk::default() }, "", 0)?;
            }
        }
        Ok(())
    }

    fn add_definition(&mut self, all: &Tree, schema: &Tree, gvk: &Gvk, path: &str, depth: usize) -> Result<(), Error> {
        const MAX_DEPTH: usize = 32;
        for (field, property) in schema.map("properties").iter().filter(|_| depth < MAX_DEPTH) {
            let path = if path.is_empty() { field.to_string() } else { format!("{path}/{field}") };
            let spec = |create| FieldSpec { gvk: gvk.clone(), path: path.clone(), create };
            if property.get("x-kubernetes-label-selector").is_some() {
                field_spec::merge(&mut self.common_labels, &[spec(false)])?;
            }
            if property.get("x-kubernetes-annotation").is_some() {
                field_spec::merge(&mut self.common_annotations, &[spec(false)])?;
            }
            if property.get("x-kubernetes-identity").is_some() {
                field_spec::merge(&mut self.name_prefix, &[spec(false)])?;
            }
            if let (Some(version), Some(kind)) = (
                property.get("x-kubernetes-object-ref-api-version").and_then(Tree::as_str),
                property.get("x-kubernetes-object-ref-kind").and_then(Tree::as_str),
            ) {
                let key = property.get("x-kubernetes-object-ref-name-key").and_then(Tree::as_str);
                let path = key.map_or_else(|| path.clone(), |key| format!("{path}/{key}"));
                let spec = FieldSpec { gvk: gvk.clone(), path, create: false };
                self.add_reference(Gvk::new(version, kind), spec);
            }
            let reference = property.str("$ref");
            let reference = if reference.is_empty() { property.str("items.$ref") } else { reference };
            let name = reference.rsplit('/').next().unwrap_or_default();
            let next = all.get(name).map_or(property, |definition| definition.get("Schema").unwrap_or(definition));
            self.add_definition(all, next, gvk, &path, depth + 1)?;
        }
        Ok(())
    }
}

fn read_gvk(text: &str) -> Gvk {
    let part = |at: usize| {
        let part = text.split('/').nth(at).unwrap_or_default();
        if part == "*" { String::new() } else { part.replace('|', "/") }
    };
    Gvk { group: part(0), version: part(1), kind: part(2) }
}

pub(crate) fn gvk_of(tree: &Tree) -> Gvk {
    let field = |key: &str| map_text(tree, key);
    Gvk { group: field("group"), version: field("version"), kind: field("kind") }
}

pub(crate) fn read_specs(items: &[Tree]) -> Vec<FieldSpec> {
    let read = |item: &Tree| FieldSpec { gvk: gvk_of(item), path: map_text(item, "path"), create: item.bool("create") };
    items.iter().map(read).collect()
}

/// The field specs of a transformer's configuration.
pub(crate) fn field_specs(reader: &Reader) -> Result<Vec<FieldSpec>, Error> {
    Ok(read_specs(reader.list("fieldSpecs")?))
}
