//! Patches: strategic merge and JSON, inline or from files, of one resource or of all that a selector selects.

use api::json::Strict;
use api::patch::json as json_patch;
use api::quote::go_quote;
use api::{Tree, json, yaml};

use crate::document;
use crate::error::Error;
use crate::fields::{Reader, map_text};
use crate::files::Loader;
use crate::merge;
use crate::resource::Resource;
use crate::resources::Resources;
use crate::select::Target;

/// `patchesStrategicMerge`.
pub(crate) struct StrategicPatches {
    patches: Vec<Resource>,
}

impl StrategicPatches {
    /// Each entry is a patch or the path of a file.
    pub(super) fn load(entries: &[String], loader: &Loader) -> Result<StrategicPatches, Error> {
        StrategicPatches::read(entries, "", loader)
    }

    pub(super) fn read(entries: &[String], inline: &str, loader: &Loader) -> Result<StrategicPatches, Error> {
        let mut patches = Vec::new();
        for entry in entries {
            match document::resources(entry.as_bytes()) {
                Ok(inline) => patches.extend(inline),
                Err(_) => patches.extend(document::resources(&loader.load(entry)?)?),
            }
        }
        patches.extend(document::resources(inline.as_bytes())?);
        if patches.is_empty() {
            return Err(Error::EmptyPatch { files: entries.join(" "), patch: inline.to_string() });
        }
        Ok(StrategicPatches { patches })
    }

    pub(super) fn apply(&self, resources: &mut Resources) -> Result<(), Error> {
        for patch in &self.patches {
            let at = resources.find_one(&patch.original_id())?;
            apply_strategic(&mut resources.list[at], patch)?;
            resources.drop_empty();
        }
        Ok(())
    }
}

/// `patchesJson6902`.
pub(crate) struct JsonPatch {
    target: Target,
    operations: Vec<json_patch::Operation>,
}

impl JsonPatch {
    pub(super) fn read(tree: &Tree, field: &str, loader: &Loader) -> Result<JsonPatch, Error> {
        let target = Target::read(tree.at("target"));
        if target.id.name.is_empty() {
            return Err(Error::NoTargetName);
        }
        let path = map_text(tree, "path");
        let text = if path.is_empty() {
            map_text(tree, field)
        } else {
            String::from_utf8_lossy(&loader.load(&path)?).into_owned()
        };
        let operations = read_operations(&text)?;
        Ok(JsonPatch { target, operations })
    }

    pub(super) fn apply(&self, resources: &mut Resources) -> Result<(), Error> {
        for at in self.target.select(resources)? {
            apply_json(&mut resources.list[at], &self.operations)?;
        }
        Ok(())
    }
}

enum Content {
    Strategic(Vec<Resource>),
    Json(Vec<json_patch::Operation>),
}

/// An entry of `patches`.
pub(crate) struct Patch {
    /// How errors name it.
    source: String,
    target: Option<Target>,
    content: Content,
}

const FIELDS: &[&str] = &["path", "patch", "target", "options"];

impl Patch {
    pub(super) fn read(tree: &Tree, loader: &Loader) -> Result<Patch, Error> {
        Reader::new(tree, "Patch").known(FIELDS)?;
        let text = String::from_utf8_lossy(&yaml::encode(tree)).into_owned();
        let context = format!("trouble configuring builtin PatchTransformer with config: `\n{text}`");
        Patch::read_config(tree, loader).map_err(|error| error.context(context))
    }

    pub(super) fn read_config(tree: &Tree, loader: &Loader) -> Result<Patch, Error> {
        let reader = Reader::new(tree, "Patch");
        let (path, inline) = (reader.text("path")?, reader.text("patch")?);
        let inline = inline.trim();
        let text = || String::from_utf8_lossy(&yaml::encode(tree)).into_owned();
        let (content, source) = match (inline, path.as_str()) {
            ("", "") => return Err(Error::NoPatch(text())),
            (inline, "") => (inline.to_string(), format!("[patch: {}]", go_quote(inline))),
            ("", path) => {
                let failed = |source: Error| Error::PatchFile { path: path.to_string(), source: Box::new(source) };
                let bytes = loader.load(path).map_err(failed)?;
                (String::from_utf8_lossy(&bytes).into_owned(), format!("[path: {}]", go_quote(path)))
            }
            _ => return Err(Error::TwoPatches(text())),
        };
        let options = tree.at("options");
        let content = read_content(&content, options.bool("allowNameChange"), options.bool("allowKindChange"))
            .ok_or_else(|| Error::UnreadablePatch(source.clone()))?;
        Ok(Patch { source, target: reader.get("target").map(Target::read), content })
    }

    pub(super) fn apply(&self, resources: &mut Resources) -> Result<(), Error> {
        match (&self.content, &self.target) {
            (Content::Strategic(patches), None) => self.apply_by_id(resources, patches),
            (Content::Strategic(patches), Some(target)) => {
                let [patch] = patches.as_slice() else { return Err(Error::SeveralPatches(self.source.clone())) };
                for at in target.select(resources)? {
                    apply_strategic(&mut resources.list[at], patch)?;
                }
                resources.drop_empty();
                Ok(())
            }
            (Content::Json(_), None) => Err(Error::NoPatchTarget(self.source.clone())),
            (Content::Json(operations), Some(target)) => {
                for at in target.select(resources)? {
                    resources.list[at].store_previous_id();
                    apply_json(&mut resources.list[at], operations)?;
                }
                Ok(())
            }
        }
    }

    fn apply_by_id(&self, resources: &mut Resources, patches: &[Resource]) -> Result<(), Error> {
        for patch in patches {
            let id = patch.original_id();
            let failed = |source: Error| Error::UnmatchedPatch { patch: id.to_string(), source: Box::new(source) };
            let at = resources.find_one(&id).map_err(failed)?;
            apply_strategic(&mut resources.list[at], patch)?;
        }
        resources.drop_empty();
        Ok(())
    }
}

/// A text is a strategic merge patch if it has resources, and a JSON patch if it has operations.
fn read_content(text: &str, allows_name_change: bool, allows_kind_change: bool) -> Option<Content> {
    if let Ok(mut patches) = document::resources(text.as_bytes()) {
        for patch in &mut patches {
            patch.allows_name_change = allows_name_change;
            patch.allows_kind_change = allows_kind_change;
        }
        return Some(Content::Strategic(patches));
    }
    read_operations(text).ok().map(Content::Json)
}

fn read_operations(text: &str) -> Result<Vec<json_patch::Operation>, Error> {
    let bytes = if text.starts_with('[') {
        text.as_bytes().to_vec()
    } else {
        json::encode(&yaml::decode(text.as_bytes())?, None)
    };
    Ok(json_patch::decode(&bytes, &mut Strict::default())?)
}

/// A patch keeps name, kind and namespace unless it may change them.
fn apply_strategic(resource: &mut Resource, patch: &Resource) -> Result<(), Error> {
    let (id, api_kind) = (resource.id(), resource.kind().to_string());
    let had_namespace = !resource.namespace().is_empty();
    if patch.allows_name_change || patch.allows_kind_change {
        resource.store_previous_id();
    }
    // The patch has the version of its target: it may be written for several kinds.
    let mut content = patch.tree.clone();
    content.set("apiVersion", resource.tree.str("apiVersion").to_string());
    let Some(merged) = merge::merge(resource.tree.take(), &content)? else { return Ok(()) };
    resource.tree = merged;
    if !patch.allows_kind_change {
        resource.tree.set("kind", api_kind);
    }
    if !patch.allows_name_change {
        resource.set_name(&id.name);
    }
    if had_namespace {
        resource.tree.child("metadata").set("namespace", id.namespace);
    } else {
        resource.tree.remove_at("metadata.namespace");
    }
    Ok(())
}

fn apply_json(resource: &mut Resource, operations: &[json_patch::Operation]) -> Result<(), Error> {
    resource.tree = json_patch::apply(resource.tree.take(), operations)?;
    Ok(())
}
