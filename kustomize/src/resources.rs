//! The resources that have been accumulated, in order, with unique identities.

use crate::error::Error;
use crate::id::ResId;
use crate::resource::{Behavior, Resource};

const MAX_RESOURCES: usize = 100_000;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Resources {
    pub(crate) list: Vec<Resource>,
}

impl Resources {
    pub(crate) fn append(&mut self, resource: Resource) -> Result<(), Error> {
        let id = resource.id();
        if self.list.iter().any(|known| known.id().is_same(&id)) {
            return Err(Error::DuplicateId(id.to_string()));
        }
        if self.list.len() >= MAX_RESOURCES {
            return Err(Error::TooManyResources(MAX_RESOURCES));
        }
        self.list.push(resource);
        Ok(())
    }

    pub(crate) fn append_all(&mut self, other: Resources) -> Result<(), Error> {
        other.list.into_iter().try_for_each(|resource| self.append(resource))
    }

    pub(crate) fn find_any(&self, matches: impl Fn(&ResId) -> bool) -> Vec<usize> {
        let has_match = |resource: &Resource| resource.all_ids().iter().any(&matches);
        (0..self.list.len()).filter(|at| has_match(&self.list[*at])).collect()
    }

    /// The resource that has or had an identity.
    pub(crate) fn find_one(&self, id: &ResId) -> Result<usize, Error> {
        match self.find_any(|known| known.is_same(id)).as_slice() {
            [one] => Ok(*one),
            [] => Err(Error::NoMatch { id: id.to_string() }),
            _ => Err(Error::SeveralMatches { id: id.to_string() }),
        }
    }

    /// Adds a generated resource, or merges it into the one that exists.
    pub(crate) fn absorb(&mut self, mut resource: Resource) -> Result<(), Error> {
        let id = resource.id();
        let found = self.find_any(|known| known.is_same(&id));
        let merges = matches!(resource.behavior, Behavior::Merge | Behavior::Replace);
        match found.as_slice() {
            [] if merges => Err(Error::NothingToMerge(go_syntax(&id))),
            [] => self.append(resource),
            [_] if !merges => Err(Error::Exists { id: go_syntax(&id) }),
            [at] => {
                let old = &self.list[*at];
                let is_merge = resource.behavior == Behavior::Merge;
                resource.take_metadata(old);
                if is_merge {
                    resource.merge_data(old, "data");
                    resource.merge_data(old, "binaryData");
                    resource.origin = old.origin.clone().or(resource.origin);
                }
                self.list[*at] = resource;
                Ok(())
            }
            several => {
                let ids: Vec<String> = several.iter().map(|at| self.list[*at].id().to_string()).collect();
                Err(Error::SeveralToMerge { found: ids.join(", "), id: id.to_string() })
            }
        }
    }

    pub(crate) fn drop_empty(&mut self) {
        self.list
            .retain(|resource| !resource.tree.is_null() && resource.tree.as_map().is_some_and(|map| !map.is_empty()));
    }
}

/// Go's `%#v` of an identity.
fn go_syntax(id: &ResId) -> String {
    use api::quote::go_quote as quote;
    format!(
        "resid.ResId{{Gvk:resid.Gvk{{Group:{}, Version:{}, Kind:{}, isClusterScoped:{}}}, Name:{}, Namespace:{}}}",
        quote(&id.gvk.group),
        quote(&id.gvk.version),
        quote(&id.gvk.kind),
        id.gvk.is_cluster_scoped(),
        quote(&id.name),
        quote(&id.namespace)
    )
}
