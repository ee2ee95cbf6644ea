//! ConfigMaps and Secrets from literals, files and environment files.

use api::{Str, Tree, base64};

use crate::error::Error;
use crate::fields::Reader;
use crate::files::Loader;
use crate::resource::{Behavior, Resource};

#[derive(Debug, Clone, Default)]
struct GeneratorOptions {
    labels: Vec<(Str, Str)>,
    annotations: Vec<(Str, Str)>,
    disables_hash: bool,
    is_immutable: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Generator {
    kind: &'static str,
    name: String,
    namespace: String,
    behavior: Behavior,
    secret_type: String,
    environments: Vec<String>,
    literals: Vec<String>,
    files: Vec<String>,
    options: GeneratorOptions,
}

const FIELDS: &[&str] = &[
    "name",
    "namespace",
    "behavior",
    "type",
    "env",
    "envs",
    "literals",
    "files",
    "options",
    "metadata",
    "kind",
    "apiVersion",
];

impl Generator {
    pub(crate) fn read(args: &Tree, kind: &'static str, global: Option<&Tree>) -> Result<Generator, Error> {
        let go = if kind == "Secret" { "SecretArgs" } else { "ConfigMapArgs" };
        let reader = Reader::new(args, go).known(FIELDS)?;
        let mut environments = reader.texts("envs")?;
        environments.extend(Some(reader.text("env")?).filter(|env| !env.is_empty()));
        let mut options = read_options(reader.get("options"))?;
        if let Some(global) = global {
            override_options(&mut options, read_options(Some(global))?);
        }
        Ok(Generator {
            kind,
            name: reader.text("name")?,
            namespace: reader.text("namespace")?,
            behavior: Behavior::parse(&reader.text("behavior")?),
            secret_type: reader.text("type")?,
            environments,
            literals: reader.texts("literals")?,
            files: reader.texts("files")?,
            options,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn generate(&self, loader: &Loader) -> Result<Resource, Error> {
        if self.name.is_empty() {
            return Err(Error::NamelessGenerator);
        }
        let mut tree = api::tree! { "apiVersion" => "v1", "kind" => self.kind };
        tree.child("metadata").set("name", &self.name);
        if !self.namespace.is_empty() {
            tree.child("metadata").set("namespace", &self.namespace);
        }
        if self.kind == "Secret" {
            tree.set("type", if self.secret_type.is_empty() { "Opaque" } else { &self.secret_type });
        }
        let mut keys = std::collections::BTreeSet::new();
        for (key, value) in self.pairs(loader)? {
            if !keys.insert(key.clone()) {
                return Err(Error::RepeatedKey { name: self.name.clone(), key });
            }
            self.set_value(&mut tree, &key, value);
        }
        for (field, pairs) in [("labels", &self.options.labels), ("annotations", &self.options.annotations)] {
            for (key, value) in pairs {
                tree.child("metadata").child(field).set(key, value.clone());
            }
        }
        if self.options.is_immutable {
            tree.set("immutable", true);
        }
        let needs_hash = !self.options.disables_hash;
        Ok(Resource { behavior: self.behavior, needs_hash, ..Resource::new(tree) })
    }

    fn set_value(&self, tree: &mut Tree, key: &str, value: Vec<u8>) {
        let set = |tree: &mut Tree, field: &str, value: String| tree.child(field).set(key, value);
        match String::from_utf8(value) {
            Ok(text) if self.kind == "ConfigMap" => set(tree, "data", text),
            Ok(text) => set(tree, "data", encode_base64(text.as_bytes())),
            Err(error) if self.kind == "ConfigMap" => set(tree, "binaryData", encode_base64(error.as_bytes())),
            Err(error) => set(tree, "data", encode_base64(error.as_bytes())),
        }
    }

    fn pairs(&self, loader: &Loader) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let list = |items: &[String]| format!("[{}]", items.join(" "));
        let loading = |error: Error| error.context("loading KV pairs");
        let mut pairs = Vec::new();
        for path in &self.environments {
            let context =
                |error: Error| loading(error.context(format!("env source files: {}", list(&self.environments))));
            let bytes = loader.load(path).map_err(context)?;
            pairs.extend(environment(&bytes).map_err(context)?);
        }
        for literal in &self.literals {
            let context = |error: Error| loading(error.context(format!("literal sources {}", list(&self.literals))));
            pairs.push(parse_literal(literal).map_err(context)?);
        }
        for source in &self.files {
            let context = |error: Error| loading(error.context(format!("file sources: {}", list(&self.files))));
            let (key, path) = parse_file_source(source).map_err(context)?;
            pairs.push((key, loader.load(&path).map_err(context)?));
        }
        Ok(pairs)
    }
}

/// A generator of `generators`.
pub(crate) fn from_config(tree: &Tree) -> Result<Generator, Error> {
    let kind = match (tree.str("apiVersion"), tree.str("kind")) {
        ("builtin", "ConfigMapGenerator") => "ConfigMap",
        ("builtin", "SecretGenerator") => "Secret",
        ("builtin", "HelmChartInflationGenerator") => return Err(Error::HelmChart(tree.str("name").to_string())),
        ("builtin", other) => return Err(Error::UnknownBuiltin(format!("{other}.builtin.[noGrp]"))),
        (version, kind) => return Err(Error::ExternalPlugin(format!("{version}/{kind}"))),
    };
    let mut generator = Generator::read(tree, kind, None)?;
    let metadata = tree.at("metadata");
    if generator.name.is_empty() {
        generator.name = metadata.str("name").to_string();
    }
    if generator.namespace.is_empty() {
        generator.namespace = metadata.str("namespace").to_string();
    }
    Ok(generator)
}

fn read_options(tree: Option<&Tree>) -> Result<GeneratorOptions, Error> {
    let Some(tree) = tree else { return Ok(GeneratorOptions::default()) };
    let fields = ["labels", "annotations", "disableNameSuffixHash", "immutable"];
    let reader = Reader::new(tree, "GeneratorOptions").known(&fields)?;
    Ok(GeneratorOptions {
        labels: reader.pairs("labels")?,
        annotations: reader.pairs("annotations")?,
        disables_hash: reader.bool("disableNameSuffixHash")?,
        is_immutable: reader.bool("immutable")?,
    })
}

/// The options of the kustomization apply where those of the generator say nothing.
fn override_options(local: &mut GeneratorOptions, global: GeneratorOptions) {
    let add = |local: &mut Vec<(Str, Str)>, global: Vec<(Str, Str)>| {
        let missing = global.into_iter().filter(|(key, _)| !local.iter().any(|(known, _)| known == key));
        let missing: Vec<_> = missing.collect();
        local.extend(missing);
    };
    add(&mut local.labels, global.labels);
    add(&mut local.annotations, global.annotations);
    local.disables_hash |= global.disables_hash;
    local.is_immutable |= global.is_immutable;
}

/// Lines of 70 characters, each with a line end if there are several.
fn encode_base64(bytes: &[u8]) -> String {
    const LINE: usize = 70;
    let text = base64::encode(bytes);
    if text.len() < LINE {
        return text;
    }
    let lines = text.as_bytes().chunks(LINE);
    lines.map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect()
}

fn environment(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut out = Vec::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = std::str::from_utf8(line).map_err(|_| Error::EnvironmentUtf8(at))?;
        let line = line.strip_suffix('\r').unwrap_or(line).trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if !key.is_empty() {
            out.push((key.to_string(), value.as_bytes().to_vec()));
        }
    }
    Ok(out)
}

fn parse_literal(source: &str) -> Result<(String, Vec<u8>), Error> {
    let pair = source.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| Error::Literal(source.to_string()))?;
    let unquoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    Ok((key.to_string(), unquoted.unwrap_or(value).as_bytes().to_vec()))
}

/// `path` or `key=path`.
fn parse_file_source(source: &str) -> Result<(String, String), Error> {
    use api::quote::go_quote as quote;
    match source.split_once('=') {
        None => Ok((source.rsplit('/').next().unwrap_or(source).to_string(), source.to_string())),
        Some((_, path)) if path.contains('=') => Err(Error::AmbiguousSource(quote(source))),
        Some(("", path)) => Err(Error::MissingKey { path: quote(path), source_text: quote(source) }),
        Some((key, "")) => Err(Error::MissingPath { key: quote(key), source_text: quote(source) }),
        Some((key, path)) => Ok((key.to_string(), path.to_string())),
    }
}
