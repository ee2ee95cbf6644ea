//! Selectors of resources: regular expressions for group, version, kind, name and namespace, and label selectors.

use std::fmt;

use api::Tree;
use api::selector::Selector;
use regex_automata::nfa::thompson::pikevm::PikeVM;

use crate::config::gvk_of;
use crate::error::Error;
use crate::fields::map_text;
use crate::id::{Gvk, ResId};
use crate::resource::Resource;
use crate::resources::Resources;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Target {
    pub(crate) id: ResId,
    pub(crate) labels: String,
    pub(crate) annotations: String,
}

impl Target {
    pub(crate) fn read(tree: &Tree) -> Target {
        Target {
            id: read_id(tree),
            labels: map_text(tree, "labelSelector"),
            annotations: map_text(tree, "annotationSelector"),
        }
    }

    pub(crate) fn compile(&self) -> Result<Compiled, Error> {
        Ok(Compiled {
            group: Pattern::new(&self.id.gvk.group)?,
            version: Pattern::new(&self.id.gvk.version)?,
            kind: Pattern::new(&self.id.gvk.kind)?,
            name: Pattern::new(&self.id.name)?,
            namespace: Pattern::new(&self.id.namespace)?,
            labels: Selector::parse(&self.labels)?,
            annotations: Selector::parse(&self.annotations)?,
        })
    }

    /// The indexes of the selected resources.
    pub(crate) fn select(&self, resources: &Resources) -> Result<Vec<usize>, Error> {
        let compiled = self.compile()?;
        Ok((0..resources.list.len()).filter(|at| compiled.selects(&resources.list[*at])).collect())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:a={}:l={}", self.id, self.annotations, self.labels)
    }
}

pub(crate) fn read_id(tree: &Tree) -> ResId {
    ResId { gvk: gvk_of(tree), name: map_text(tree, "name"), namespace: map_text(tree, "namespace") }
}

/// An anchored regular expression; an empty one matches everything.
struct Pattern(Option<PikeVM>);

impl Pattern {
    fn new(text: &str) -> Result<Pattern, Error> {
        if text.is_empty() {
            return Ok(Pattern(None));
        }
        let vm = PikeVM::new(&format!("^(?:{text})$")).map_err(|error| Error::Regex(error.to_string()))?;
        Ok(Pattern(Some(vm)))
    }

    fn matches(&self, text: &str) -> bool {
        self.0.as_ref().is_none_or(|vm| vm.is_match(&mut vm.create_cache(), text))
    }
}

pub(crate) struct Compiled {
    group: Pattern,
    version: Pattern,
    kind: Pattern,
    name: Pattern,
    namespace: Pattern,
    labels: Selector,
    annotations: Selector,
}

impl Compiled {
    /// Whether it selects a resource by its original or its current identity.
    fn selects(&self, resource: &Resource) -> bool {
        let ids = [resource.original_id(), resource.id()];
        ids.iter().any(|id| self.namespace.matches(id.effective_namespace()))
            && ids.iter().any(|id| self.name.matches(&id.name))
            && self.matches_gvk(&ids[1].gvk)
            && self.matches_metadata(&resource.tree)
    }

    fn matches_gvk(&self, gvk: &Gvk) -> bool {
        self.group.matches(&gvk.group) && self.version.matches(&gvk.version) && self.kind.matches(&gvk.kind)
    }

    pub(crate) fn matches_id(&self, id: &ResId) -> bool {
        self.matches_gvk(&id.gvk) && self.name.matches(&id.name) && self.namespace.matches(id.effective_namespace())
    }

    pub(crate) fn matches_metadata(&self, tree: &Tree) -> bool {
        self.labels.matches_map(tree.map("metadata.labels"))
            && self.annotations.matches_map(tree.map("metadata.annotations"))
    }
}
