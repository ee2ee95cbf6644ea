//! The kustomization file.

use api::{Str, Tree, yaml};

use crate::error::Error;
use crate::fields::Reader;
use crate::files::Loader;

pub(crate) const KIND: &str = "Kustomization";
pub(crate) const COMPONENT: &str = "Component";
const VERSION: &str = "kustomize.config.k8s.io/v1beta1";
const COMPONENT_VERSION: &str = "kustomize.config.k8s.io/v1alpha1";
const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

const FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "openapi",
    "namePrefix",
    "nameSuffix",
    "namespace",
    "commonLabels",
    "labels",
    "commonAnnotations",
    "patchesStrategicMerge",
    "patchesJson6902",
    "patches",
    "images",
    "imageTags",
    "replacements",
    "replicas",
    "vars",
    "sortOptions",
    "resources",
    "components",
    "crds",
    "bases",
    "configMapGenerator",
    "secretGenerator",
    "helmGlobals",
    "helmCharts",
    "helmChartInflationGenerator",
    "generatorOptions",
    "configurations",
    "generators",
    "transformers",
    "validators",
    "buildMetadata",
];

/// Deprecated fields, and what to use instead.
const DEPRECATED: &[(&str, &str, &str)] = &[
    ("bases", "resources", ""),
    ("commonLabels", "labels", ""),
    ("imageTags", "images", ""),
    ("patchesJson6902", "patches", ""),
    ("patchesStrategicMerge", "patches", ""),
    ("vars", "replacements", "[EXPERIMENTAL] "),
];

#[derive(Debug, Clone)]
pub(crate) struct Kustomization {
    pub(crate) tree: Tree,
    pub(crate) file_name: &'static str,
    pub(crate) kind: String,
    pub(crate) resources: Vec<String>,
    pub(crate) components: Vec<String>,
    pub(crate) build_metadata: Vec<String>,
    pub(crate) common_labels: Vec<(Str, Str)>,
}

impl Kustomization {
    /// The file of the loader's root.
    pub(crate) fn load(loader: &Loader, warnings: &mut Vec<String>) -> Result<Kustomization, Error> {
        let found: Vec<(&'static str, Vec<u8>)> =
            FILE_NAMES.into_iter().filter_map(|name| Some((name, loader.load(name).ok()?))).collect();
        let (file_name, bytes) = match found.as_slice() {
            [one] => one,
            [] => return Err(Error::MissingKustomization(loader.root().to_path_buf())),
            _ => return Err(Error::MultipleKustomizations(loader.root().to_path_buf())),
        };
        let invalid = |error: Error| error.context("invalid Kustomization");
        let tree = yaml::decode(bytes).map_err(|error| invalid(error.into()))?;
        let kustomization = Kustomization::read(tree, file_name).map_err(invalid)?;
        kustomization.add_warnings(warnings);
        kustomization.check(loader)?;
        Ok(kustomization)
    }

    fn read(tree: Tree, file_name: &'static str) -> Result<Kustomization, Error> {
        let reader = Reader::new(&tree, KIND).known(FIELDS)?;
        let mut resources = reader.texts("resources")?;
        resources.extend(reader.texts("bases")?);
        let kind = reader.text("kind")?;
        Ok(Kustomization {
            file_name,
            kind: if kind.is_empty() { KIND.to_string() } else { kind },
            resources,
            components: reader.texts("components")?,
            build_metadata: reader.texts("buildMetadata")?,
            common_labels: reader.pairs("commonLabels")?,
            tree,
        })
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.tree, KIND)
    }

    fn add_warnings(&self, warnings: &mut Vec<String>) {
        for (field, instead, prefix) in DEPRECATED {
            if self.reader().get(field).is_some() {
                warnings.push(format!(
                    "# Warning: '{field}' is deprecated. Please use '{instead}' instead. {prefix}Run 'kustomize edit fix' to \
                     update your Kustomization automatically."
                ));
            }
        }
    }

    fn check(&self, loader: &Loader) -> Result<(), Error> {
        let is_content = |key: &str| !key.eq_ignore_ascii_case("kind") && !key.eq_ignore_ascii_case("apiVersion");
        let is_set = |value: &Tree| match value {
            Tree::Null => false,
            Tree::Str(text) => !text.is_empty(),
            _ => true,
        };
        if !self.tree.as_map().is_some_and(|map| map.iter().any(|(key, value)| is_content(key) && is_set(value))) {
            return Err(Error::EmptyKustomization);
        }
        let mut problems = Vec::new();
        if self.kind != KIND && self.kind != COMPONENT {
            problems.push(format!("kind should be {KIND} or {COMPONENT}"));
        }
        let version = self.reader().text("apiVersion")?;
        let required = if self.kind == COMPONENT { COMPONENT_VERSION } else { VERSION };
        if !version.is_empty() && version != required {
            problems.push(format!("apiVersion for {} should be {required}", self.kind));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::WrongKind { directory: loader.root().to_path_buf(), problems: problems.join("\n") })
    }
}
