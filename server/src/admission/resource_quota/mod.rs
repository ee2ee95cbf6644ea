//! ResourceQuota: a write that makes a namespace use more is refused where that is too much, and charged
//! to the quotas' status in the same commit as the object itself, so that no two writes can share what
//! is left. What deletions give back is counted by the quota controller.

mod decide;
mod scopes;
mod usage;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::Tree;
use api::status::Status;
use kinds::Kind;
use store::{Expect, Write as StoreWrite};
use tokio::sync::OwnedMutexGuard;

use super::{Attributes, Operation};
use crate::Server;
use crate::cache::Item;
use crate::codec::Validation;
use crate::options::WriteOptions;
use crate::write::Scope;

const STORAGE: &str = "resourcequotas";

pub fn validate(
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(object) = object else { return Ok(()) };
    let kind = attributes.resource.kind;
    if attributes.operation == Operation::Delete || !is_counted(kind, attributes.subresource, old) {
        return Ok(());
    }
    let quotas = attributes.server.objects(STORAGE, attributes.namespace);
    decide::charges(&quotas, kind, object, old).map(|_| ()).map_err(|why| attributes.forbidden(&why))
}

/// Most kinds are counted at their creation; a few can also grow.
fn is_counted(kind: &Kind, subresource: &str, old: Option<&Tree>) -> bool {
    let grows = match (kind.group, kind.kind) {
        ("", "Service" | "PersistentVolumeClaim") => subresource.is_empty(),
        ("", "Pod") => subresource == "resize",
        _ => false,
    };
    kind.namespaced && if old.is_some() { grows } else { subresource.is_empty() }
}

/// The writes that charge an object to the quotas of its namespace, to be committed before its own.
pub fn claim(scope: &Scope<'_>, name: &str, object: &Tree, old: Option<&Tree>) -> Result<Vec<StoreWrite>, Status> {
    let kind = scope.resource.kind;
    let items = quotas(scope.server, scope.namespace);
    if items.is_empty() || scope.dry_run || !is_counted(kind, scope.subresource, old) {
        return Ok(Vec::new());
    }
    let quotas: Vec<Tree> = items.iter().map(|item| item.tree()).collect();
    let refused = |why: String| Status::forbidden(kind.group, kind.plural, name, &why);
    let charges = decide::charges(&quotas, kind, object, old).map_err(refused)?;
    charges.into_iter().map(|(at, charged)| write(scope, &items[at], &quotas[at], charged)).collect()
}

fn quotas(server: &Server, namespace: &str) -> Vec<Arc<Item>> {
    server.caches.get(STORAGE).map_or_else(Vec::new, |cache| cache.items_in(namespace))
}

fn write(scope: &Scope<'_>, item: &Item, old: &Tree, mut charged: Tree) -> Result<StoreWrite, Status> {
    let resource = scope.server.registry.find("", "v1", STORAGE).ok_or_else(Status::no_resource)?;
    let quota = Scope { resource, subresource: "status", ..*scope };
    let options = WriteOptions {
        dry_run: false,
        field_manager: "kube-apiserver".to_string(),
        validation: Validation::Ignore,
        force: false,
    };
    quota.own_fields(Some(old), &mut charged, &options);
    Ok(quota.put(item.name(), &charged, Expect::Revision(item.revision)))
}

/// Writes that are charged to the quotas of one namespace come one after the other: the second could
/// only lose against the first.
#[derive(Default)]
pub struct Turns {
    by_namespace: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// Waits for a turn, where there is anything to charge.
pub async fn turn(scope: &Scope<'_>, old: Option<&Tree>) -> Option<OwnedMutexGuard<()>> {
    let counted = is_counted(scope.resource.kind, scope.subresource, old);
    if scope.dry_run || !counted || quotas(scope.server, scope.namespace).is_empty() {
        return None;
    }
    Some(scope.server.turns.of(scope.namespace).lock_owned().await)
}

impl Turns {
    fn of(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.by_namespace.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = all.get(namespace) {
            return turn.clone();
        }
        // Namespaces where nobody waits are forgotten, so that the map stays as small as its use.
        all.retain(|_, turn| Arc::strong_count(turn) > 1);
        all.entry(namespace.to_string()).or_default().clone()
    }
}
