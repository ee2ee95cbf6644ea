//! Converts custom resources between versions. Without a webhook only the apiVersion changes, and the storage does that
//! itself. With a webhook, objects are sent to it before they are returned, and before they are stored.

mod cache;
mod review;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::status::{Cause, Details, Status};
use kinds::custom::Conversion;
use stdx::sync::Mutex;

use crate::outbound::callout::{Logins, Target};
use crate::registry::Registry;
use crate::registry::write::Outcome;
use crate::storage::cache::Item;
use crate::storage::kind::CustomVersion;
use crate::storage::resource::Resource;
use review::ConversionError;

/// Upstream's limit for a conversion.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of webhooks with open connections.
const MAX_TARGETS: usize = 256;

/// The webhooks of definitions, by name, with the generation of the definition.
#[derive(Default)]
pub(crate) struct Webhooks {
    /// Conversions for the comparison of managed fields.
    pub(crate) cache: cache::ConversionCache,
    targets: Mutex<HashMap<String, (i64, Arc<Target>)>>,
}

impl Webhooks {
    fn target(&self, custom: &CustomVersion, config: &Tree) -> Result<Arc<Target>, ConversionError> {
        let (name, generation) = (custom.definition.name.as_str(), custom.definition.generation);
        let mut targets = self.targets.lock();
        if let Some((_, target)) = targets.get(name).filter(|(known, _)| *known == generation) {
            return Ok(target.clone());
        }
        let target =
            Target::new(config, &Logins::default()).map_err(|error| ConversionError::Target(Arc::new(error)))?;
        let target = Arc::new(target);
        if targets.len() >= MAX_TARGETS {
            targets.clear();
        }
        targets.insert(name.to_string(), (generation, target.clone()));
        Ok(target)
    }
}

/// Whether an object of this apiVersion needs a webhook to be returned in the resource's version.
fn is_foreign(resource: &Resource, api_version: &str) -> bool {
    let is_webhook = |custom: &Arc<CustomVersion>| matches!(custom.definition.conversion, Conversion::Webhook { .. });
    resource.kind.definition().is_some_and(is_webhook) && api_version != resource.api_version()
}

/// Whether objects of the resource may need a webhook.
pub(crate) fn has_webhook(resource: &Resource) -> bool {
    is_foreign(resource, "")
}

/// A stored object in the resource's version.
pub(crate) async fn read(registry: &Registry, resource: &Resource, item: &Arc<Item>) -> Result<Tree, Status> {
    if !has_webhook(resource) {
        return Ok(resource.read(item));
    }
    let objects = read_items(registry, resource, std::slice::from_ref(item)).await;
    let unreadable = |error: ConversionError| Status::internal(conversion_error(resource, item, "", &error));
    objects.map_err(unreadable)?.pop().ok_or_else(|| resource.not_found(item.name()))
}

/// Stored objects in the resource's version, converted together.
pub(crate) async fn read_all(
    registry: &Registry,
    resource: &Resource,
    items: &[Arc<Item>],
) -> Result<Vec<Tree>, Status> {
    if !has_webhook(resource) {
        return Ok(items.iter().map(|item| resource.read(item)).collect());
    }
    read_items(registry, resource, items).await.map_err(|error| {
        let kind = &resource.kind;
        let first =
            items.first().map_or_else(String::new, |item| conversion_error(resource, item, "/registry", &error));
        let more = if items.len() > 1 { format!(" (and {} more)", items.len() - 1) } else { String::new() };
        let (plural, group) = (kind.plural(), kind.group());
        let text = format!("failed to read one or more {plural}.{group} from the storage: {first}{more}");
        let mut status = Status::new(500, "StorageReadError", text);
        let cause = |item: &Arc<Item>| Cause {
            reason: "UnexpectedServerResponse".to_string(),
            message: conversion_error(resource, item, "/registry", &error),
            field: format!("/registry/{}/{}", kind.storage(), item.key),
        };
        status.details = Some(Details {
            name: "list".to_string(),
            group: group.to_string(),
            kind: plural.to_string(),
            causes: items.iter().map(cause).collect(),
            ..Details::default()
        });
        status
    })
}

/// The words of upstream's store.
fn conversion_error(resource: &Resource, item: &Item, prefix: &str, error: &ConversionError) -> String {
    let (storage, key, revision) = (resource.kind.storage(), &item.key, item.revision);
    format!(
        "StorageError: corrupt object, Code: 7, Key: {prefix}/{storage}/{key}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {error}"
    )
}

async fn read_items(
    registry: &Registry,
    resource: &Resource,
    items: &[Arc<Item>],
) -> Result<Vec<Tree>, ConversionError> {
    let mut trees: Vec<Tree> = items.iter().map(|item| resource.read_stored(item)).collect();
    let foreign: Vec<usize> =
        (0..trees.len()).filter(|at| is_foreign(resource, trees[*at].str("apiVersion"))).collect();
    let objects: Vec<Tree> = foreign.iter().map(|at| trees[*at].take()).collect();
    for (at, object) in foreign.into_iter().zip(convert(registry, resource, objects, resource.api_version()).await?) {
        trees[at] = object;
    }
    trees.iter_mut().for_each(|tree| resource.shape_read(tree));
    Ok(trees)
}

/// The object of a write in the version of the response, which a webhook may have to convert it to.
pub(crate) async fn show(registry: &Registry, resource: &Resource, outcome: Outcome) -> Result<Outcome, Status> {
    match &outcome {
        Outcome::Stored(item) if has_webhook(resource) => Ok(Outcome::Imagined(read(registry, resource, item).await?)),
        _ => Ok(outcome),
    }
}

/// Converts an object to its storage version; None if it has that version, or if its conversion needs no webhook.
pub(crate) async fn store(registry: &Registry, resource: &Resource, object: &Tree) -> Result<Option<Tree>, Status> {
    let Some(custom) = resource.kind.definition().filter(|custom| !custom.version.storage && has_webhook(resource))
    else {
        return Ok(None);
    };
    let converted = convert(registry, resource, vec![object.clone()], &custom.schemas.storage_version()).await;
    let converted = converted.map_err(|error| Status::new(500, "", error.to_string()))?;
    Ok(converted.into_iter().next())
}

/// Converts an object as if it had been stored and read: the result contains the changes of the webhook.
pub(crate) async fn restore(
    registry: &Registry,
    resource: &Resource,
    stored: Option<Tree>,
    object: Tree,
) -> Result<Tree, Status> {
    let Some(stored) = stored else { return Ok(object) };
    let converted = convert(registry, resource, vec![stored], resource.api_version()).await;
    let converted = converted.map_err(|error| Status::new(500, "", error.to_string()))?;
    Ok(converted.into_iter().next().unwrap_or(object))
}

/// Fetches the conversions that the comparison of an object's managed fields has missed; true if there were any.
pub(crate) async fn fetch_missing(registry: &Registry, resource: &Resource, object: &Tree) -> bool {
    if !has_webhook(resource) {
        return false;
    }
    let missing = registry.conversions.cache.take_missing(object.str("metadata.uid"));
    for one in &missing {
        let converted = convert(registry, resource, vec![one.object.clone()], &one.to).await;
        let failed =
            |error: &ConversionError| tracing::warn!(%error, "failed to convert an object for its managed fields");
        let converted = converted.inspect_err(failed).ok().and_then(|converted| converted.into_iter().next());
        registry.conversions.cache.add(one, converted);
    }
    !missing.is_empty()
}

/// Sends objects to the webhook of the resource.
pub(crate) async fn convert(
    registry: &Registry,
    resource: &Resource,
    objects: Vec<Tree>,
    to: &str,
) -> Result<Vec<Tree>, ConversionError> {
    let Some(custom) = resource.kind.definition().filter(|_| !objects.is_empty()) else { return Ok(objects) };
    let Conversion::Webhook { client_config, review_versions } = &custom.definition.conversion else {
        return Ok(objects);
    };
    let from = objects.first().map_or("", |object| object.str("apiVersion")).to_string();
    let kind = resource.kind.kind().to_string();
    let failed =
        |why: ConversionError| ConversionError::Webhook { from: from.clone(), kind: kind.clone(), why: Box::new(why) };
    let version = review::version(review_versions).ok_or_else(|| failed(ConversionError::Versions))?;
    let target = registry.conversions.target(custom, client_config).map_err(failed)?;
    let uid = crate::common::ids::uid();
    let body = api::json::encode(&review::build_review(&objects, to, version, &uid), None);
    let response = target.post_json(&registry.dialer, body, TIMEOUT).await;
    let response = response.map_err(|error| failed(ConversionError::Call(error)))?;
    if !response.is_success() {
        return Err(failed(ConversionError::Response(response.code)));
    }
    let converted = review::read(&response.body, version, &uid).map_err(failed)?;
    review::accept(objects, converted, to, &from, &kind)
}
