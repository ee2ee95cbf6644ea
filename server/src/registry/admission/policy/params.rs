//! The params of a binding: the objects that parametrize its policy, from the watch caches.

use std::sync::Arc;

use api::Tree;
use api::selector::{self, Selector};
use api::status::Status;

use super::compiled::{Binding, ParamKind, Policy};
use crate::registry::admission::Attributes;
use crate::registry::conversion;
use crate::storage::cache::Item;
use crate::storage::resource::Resource;

/// Params that cannot be used. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParamError {
    #[error("failed to find resource referenced by paramKind: '{0}'")]
    UnknownKind(String),
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    ClusterScoped,
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    Missing,
    #[error(transparent)]
    Selector(#[from] selector::Error),
    #[error("{0}")]
    Conversion(Status),
}

/// The resource of a policy's params; None if the policy has none.
pub(super) fn find_resource<E>(
    attributes: &Attributes<'_>,
    policy: &Policy<E>,
) -> Result<Option<Arc<Resource>>, ParamError> {
    let Some(ParamKind { group, version, kind }) = &policy.param_kind else { return Ok(None) };
    let found = attributes.registry.storage.resources.find_kind(group, version, kind);
    let found = found.filter(|resource| resource.cache.is_some());
    found.map(Some).ok_or_else(|| ParamError::UnknownKind(format!("{group}/{version}, Kind={kind}")))
}

/// The params of a binding, one evaluation each: null if the policy uses none. An empty list means that the policy does
/// not apply.
pub(super) async fn collect(
    attributes: &Attributes<'_>,
    resource: Option<&Resource>,
    binding: &Binding,
) -> Result<Vec<Tree>, ParamError> {
    let reference = &binding.param_ref;
    let Some(resource) = resource.filter(|_| !reference.is_null()) else { return Ok(vec![Tree::Null]) };
    let namespace = namespace_of_params(resource, reference.str("namespace"), request_namespace(attributes))?;
    let items = select(resource, reference, namespace)?;
    let mut params = Vec::with_capacity(items.len());
    for item in &items {
        let read = conversion::read(attributes.registry, resource, item).await;
        params.push(read.map_err(ParamError::Conversion)?);
    }
    if params.is_empty() && reference.str("parameterNotFoundAction") == "Deny" {
        return Err(ParamError::Missing);
    }
    Ok(params)
}

/// The namespace of the request; for a Namespace object its own name.
fn request_namespace<'a>(attributes: &'a Attributes<'_>) -> &'a str {
    if attributes.is_kind("", "Namespace") { attributes.name } else { attributes.namespace }
}

fn namespace_of_params<'a>(resource: &Resource, own: &'a str, of_request: &'a str) -> Result<&'a str, ParamError> {
    match (resource.kind.namespaced, own, of_request) {
        (true, "", "") => Err(ParamError::NoNamespace),
        (true, "", namespace) | (true, namespace, _) => Ok(namespace),
        (false, "", _) => Ok(""),
        (false, _, _) => Err(ParamError::ClusterScoped),
    }
}

fn select(resource: &Resource, reference: &Tree, namespace: &str) -> Result<Vec<Arc<Item>>, ParamError> {
    let Some(cache) = &resource.cache else { return Ok(Vec::new()) };
    match reference.str("name") {
        "" => {
            let selector = Selector::from_object(reference.at("selector"))?;
            let matches = |item: &Arc<Item>| selector.matches_map(item.tree().map("metadata.labels"));
            Ok(cache.items_in(namespace).into_iter().filter(matches).collect())
        }
        name => Ok(cache.get(&resource.key(namespace, name)).into_iter().collect()),
    }
}
