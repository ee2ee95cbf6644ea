//! A directory with its kustomization: accumulates its resources, and runs its generators and transformers.

use std::path::Path;

use api::Tree;

use crate::config::Config;
use crate::document;
use crate::error::Error;
use crate::files::{Files, Loader};
use crate::generate::{self, Generator};
use crate::kustomization::{COMPONENT, Kustomization};
use crate::origin::{self, Origin};
use crate::references;
use crate::resource::Resource;
use crate::resources::Resources;
use crate::transform::{self, Transformer};
use crate::vars::{self, Var};
use crate::{Built, Options, hash, sort};

const ORIGIN_ANNOTATION: &str = "config.kubernetes.io/origin";
const TRANSFORMATIONS_ANNOTATION: &str = "alpha.config.kubernetes.io/transformations";
const LOCAL_CONFIG: &str = "config.kubernetes.io/local-config";
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "kustomize-(devel)");

/// What has been accumulated so far.
#[derive(Debug, Clone, Default)]
struct Accumulator {
    resources: Resources,
    config: Config,
    vars: Vec<Var>,
}

struct Target<'f> {
    loader: Loader<'f>,
    kustomization: Kustomization,
    /// Only tracked if `buildMetadata` requests it.
    origin: Option<Origin>,
    build_metadata: Vec<String>,
}

pub(crate) fn build(files: &dyn Files, directory: &Path, options: Options) -> Result<Built, Error> {
    let mut warnings = Vec::new();
    let loader = Loader::new(files, directory, options.loads_from_anywhere)?;
    let kustomization = Kustomization::load(&loader, &mut warnings)?;
    let build_metadata = kustomization.build_metadata.clone();
    let origin = (!build_metadata.is_empty()).then(Origin::default);
    let target = Target { loader, kustomization, origin, build_metadata: build_metadata.clone() };
    let mut accumulated = target.accumulate(Accumulator::default(), &mut warnings)?;
    add_hashes(&mut accumulated.resources)?;
    references::fix(&mut accumulated.resources, &accumulated.config.name_references)?;
    vars::resolve(&mut accumulated.resources, &accumulated.vars, &accumulated.config.var_references)?;
    let mut resources = accumulated.resources;
    resources.list.retain(|resource| !is_local(resource));
    let sort_options = target.kustomization.reader().get("sortOptions");
    sort::sort(&mut resources, sort_options)?;
    let has = |option: &str| build_metadata.iter().any(|known| known == option);
    let adds_label = options.adds_managed_by_label || has("managedByLabel");
    let finish =
        |resource: Resource| finish(resource, has("originAnnotations"), has("transformerAnnotations"), adds_label);
    Ok(Built { resources: resources.list.into_iter().map(finish).collect(), warnings })
}

fn is_local(resource: &Resource) -> bool {
    let annotation = resource.tree.at("metadata.annotations").get(LOCAL_CONFIG).and_then(Tree::as_str);
    annotation.is_some_and(|value| value != "false")
}

fn add_hashes(resources: &mut Resources) -> Result<(), Error> {
    for resource in resources.list.iter_mut().filter(|resource| resource.needs_hash) {
        let name = format!("{}-{}", resource.name(), hash::hash(&resource.tree)?);
        resource.store_previous_id();
        resource.set_name(&name);
    }
    Ok(())
}

fn finish(resource: Resource, with_origin: bool, with_transformations: bool, with_label: bool) -> Tree {
    let mut tree = resource.tree;
    let mut annotate = |key: &str, value: String| tree.child("metadata.annotations").set(key, value);
    if let Some(origin) = resource.origin.filter(|_| with_origin) {
        annotate(ORIGIN_ANNOTATION, origin.annotation());
    }
    if with_transformations && !resource.transformations.is_empty() {
        annotate(TRANSFORMATIONS_ANNOTATION, origin::annotation_of(&resource.transformations));
    }
    if with_label {
        tree.child("metadata.labels").set(MANAGED_BY.0, MANAGED_BY.1);
    }
    if tree.at("metadata.annotations").as_map().is_some_and(api::Map::is_empty) {
        tree.remove_at("metadata.annotations");
    }
    tree
}

impl Target<'_> {
    fn accumulate(&self, into: Accumulator, warnings: &mut Vec<String>) -> Result<Accumulator, Error> {
        let reader = self.kustomization.reader();
        let mut all = self
            .accumulate_resources(into, &self.kustomization.resources, warnings)
            .map_err(|error| error.context("accumulating resources"))?;
        let config = Config::load(&self.loader, &reader.texts("configurations")?)?;
        all.config.merge(&config).map_err(|error| error.context("merging config"))?;
        let crds = reader.texts("crds")?;
        let context = |error: Error| error.context(format!("loading CRDs [{}]", crds.join(" ")));
        all.config.merge_definitions(&self.loader, &crds).map_err(context)?;
        self.run_generators(&mut all, warnings)?;
        all = self.accumulate_components(all, warnings).map_err(|error| error.context("accumulating components"))?;
        for (transformer, origin) in self.transformers(&all.config, warnings)? {
            transformer.apply(&mut all.resources)?;
            add_transformation(&mut all.resources, origin.as_ref());
            all.resources.drop_empty();
        }
        self.run_validators(&mut all, warnings)?;
        vars::merge(&mut all.vars, &mut all.resources, vars::read(reader.list("vars")?)?)
            .map_err(|error| error.context("merging vars"))?;
        Ok(all)
    }

    fn accumulate_resources(
        &self,
        mut all: Accumulator,
        paths: &[String],
        warnings: &mut Vec<String>,
    ) -> Result<Accumulator, Error> {
        for path in paths {
            let Err(file_error) = self.accumulate_file(&mut all, path) else { continue };
            if matches!(&file_error, Error::Context { source, .. } if matches!(**source, Error::Remote(_))) {
                return Err(file_error);
            }
            let text = format!("accumulation err='{file_error}'");
            match self.loader.enter(path) {
                Err(Error::Remote(path)) => return Err(Error::Remote(path)),
                Err(_) if file_error.is_malformed_yaml() => return Err(file_error),
                Err(error) => return Err(error.context(text)),
                Ok(loader) => {
                    let child = self
                        .accumulate_directory(Accumulator::default(), path, loader, false, warnings)
                        .map_err(|error| error.context(text))?;
                    merge(&mut all, child)
                        .map_err(|error| error.context(format!("recursed merging from path '{path}'")))?;
                }
            }
        }
        Ok(all)
    }

    fn accumulate_file(&self, all: &mut Accumulator, path: &str) -> Result<(), Error> {
        let context = |error: Error| error.context(format!("accumulating resources from '{path}'"));
        let bytes = self.loader.load(path).map_err(context)?;
        let mut resources = document::resources(&bytes).map_err(|error| context(malformed(error, path)))?;
        for resource in &mut resources {
            resource.origin = self.origin.as_ref().map(|origin| origin.append(path));
        }
        let merging = |error: Error| error.context(format!("merging resources from '{path}'"));
        all.resources.append_all(unique(resources).map_err(context)?).map_err(merging)
    }

    fn accumulate_components(&self, mut all: Accumulator, warnings: &mut Vec<String>) -> Result<Accumulator, Error> {
        for path in &self.kustomization.components {
            let loader = match self.loader.enter(path) {
                Err(Error::Remote(path)) => return Err(Error::Remote(path)),
                other => other.map_err(|error| Error::ComponentLoader(Box::new(error)))?,
            };
            all = self
                .accumulate_directory(all, path, loader, true, warnings)
                .map_err(|error| Error::ComponentDirectory(Box::new(error)))?;
        }
        Ok(all)
    }

    /// A component continues with what has been accumulated, a base starts anew.
    fn accumulate_directory(
        &self,
        into: Accumulator,
        path: &str,
        loader: crate::files::Loader,
        is_component: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Accumulator, Error> {
        let root = loader.root().display().to_string();
        let kustomization = Kustomization::load(&loader, warnings)
            .map_err(|error| error.context(format!("couldn't make target for path '{root}'")))?;
        match (is_component, kustomization.kind == COMPONENT) {
            (true, false) => {
                return Err(Error::NotAComponent { expected: COMPONENT, path: root, actual: kustomization.kind });
            }
            (false, true) => return Err(Error::UnexpectedComponent { kind: COMPONENT, path: root }),
            _ => {}
        }
        let origin = self.origin.as_ref().map(|origin| origin.append(path));
        let child = Target { loader, kustomization, origin, build_metadata: self.build_metadata.clone() };
        child
            .accumulate(into, warnings)
            .map_err(|error| error.context(format!("recursed accumulation of path '{root}'")))
    }

    fn run_generators(&self, all: &mut Accumulator, warnings: &mut Vec<String>) -> Result<(), Error> {
        let reader = self.kustomization.reader();
        let charts = ["helmCharts", "helmChartInflationGenerator"];
        let mut charts = charts.into_iter().flat_map(|field| reader.list(field).unwrap_or_default());
        if let Some(chart) = charts.next() {
            let name = if chart.str("name").is_empty() { chart.str("chartName") } else { chart.str("name") };
            return Err(Error::HelmChart(name.to_string()));
        }
        let global = reader.get("generatorOptions");
        for (field, kind) in [("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")] {
            for args in reader.list(field)? {
                let generator =
                    Generator::read(args, kind, global).map_err(|error| error.context("invalid Kustomization"))?;
                let kind = format!("{kind}Generator");
                let origin = self.origin.as_ref().map(|own| own.configured(self.kustomization.file_name, &kind));
                self.generate(all, &generator, origin)?;
            }
        }
        for config in self.plugin_configs("generators", warnings)? {
            let generator = generate::from_config(&config.tree)?;
            self.generate(all, &generator, config.origin)?;
        }
        Ok(())
    }

    fn generate(&self, all: &mut Accumulator, generator: &Generator, origin: Option<Origin>) -> Result<(), Error> {
        let mut resource = generator.generate(&self.loader)?;
        resource.origin = origin;
        all.resources
            .absorb(resource)
            .map_err(|error| error.context(format!("merging from generator {}", generator.name())))
    }

    /// The configurations of generators or transformers, inline or from files and directories.
    fn plugin_configs(&self, field: &str, warnings: &mut Vec<String>) -> Result<Vec<Resource>, Error> {
        let mut all = Accumulator::default();
        for entry in self.kustomization.reader().texts(field)? {
            match document::resources(entry.as_bytes()) {
                Ok(inline) if !inline.is_empty() => all.resources.append_all(unique(inline)?)?,
                _ => all = self.accumulate_resources(all, &[entry], warnings)?,
            }
        }
        for resource in &mut all.resources.list {
            let name =
                (resource.tree.str("apiVersion").to_string(), resource.kind().to_string(), resource.name().to_string());
            if let Some(own) = &self.origin {
                let file = resource.origin.as_ref().map(|origin| origin.path.clone());
                let configured_in = file.unwrap_or_else(|| own.append(self.kustomization.file_name).path);
                resource.origin = Some(Origin { path: String::new(), configured_in, configured_by: Some(name) });
            }
        }
        Ok(all.resources.list)
    }

    /// The transformers of the fields in kustomize's order, then those of `transformers`.
    fn transformers(
        &self,
        config: &Config,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<(Transformer, Option<Origin>)>, Error> {
        let reader = self.kustomization.reader();
        let mut out = Vec::new();
        for (kind, transformer) in
            transform::from_fields(&reader, &self.kustomization.common_labels, config, &self.loader)?
        {
            let origin = self.origin.as_ref().map(|own| own.configured(self.kustomization.file_name, kind));
            out.push((transformer, origin));
        }
        for resource in self.plugin_configs("transformers", warnings)? {
            out.push((transform::from_config(&resource.tree, &self.loader)?, resource.origin));
        }
        Ok(out)
    }

    /// A validator is a transformer that must not change anything.
    fn run_validators(&self, all: &mut Accumulator, warnings: &mut Vec<String>) -> Result<(), Error> {
        for resource in self.plugin_configs("validators", warnings)? {
            let mut copy = all.resources.clone();
            transform::from_config(&resource.tree, &self.loader)?.apply(&mut copy)?;
            let trees = |resources: &Resources| resources.list.iter().map(|one| one.tree.clone()).collect::<Vec<_>>();
            if trees(&copy) != trees(&all.resources) {
                return Err(Error::ModifyingValidator);
            }
        }
        Ok(())
    }
}

fn add_transformation(resources: &mut Resources, origin: Option<&Origin>) {
    let Some(origin) = origin else { return };
    for resource in &mut resources.list {
        match resource.origin {
            None => resource.origin = Some(origin.clone()),
            Some(_) => resource.transformations.push(origin.clone()),
        }
    }
}

fn merge(all: &mut Accumulator, child: Accumulator) -> Result<(), Error> {
    all.resources.append_all(child.resources)?;
    all.config.merge(&child.config)?;
    vars::merge_sets(&mut all.vars, child.vars)
}

fn unique(resources: Vec<Resource>) -> Result<Resources, Error> {
    let mut out = Resources::default();
    resources.into_iter().try_for_each(|resource| out.append(resource))?;
    Ok(out)
}

fn malformed(error: Error, path: &str) -> Error {
    match error {
        Error::Yaml(source) => Error::MalformedYaml { path: path.to_string(), source },
        error => error,
    }
}
