//! ResourceQuota: rejects a write that would exceed a quota. Otherwise the usage is charged to the status of the quotas
//! in the same commit as the object itself: two writes can never share the remaining quota. The quota controller counts
//! the usage that deletions release.

mod decide;

use std::collections::HashMap;
use std::sync::Arc;

use crate::storage::kind::Kind;
use api::Tree;
use api::status::Status;
use stdx::sync::Mutex;
use store::{Precondition, Write as StoreWrite};
use tokio::sync::OwnedMutexGuard;

use super::{Attributes, Operation};
use crate::registry::Registry;
use crate::registry::options::WriteOptions;
use crate::registry::write::Scope;
use crate::request::codec::Validation;
use crate::storage::cache::Item;

const STORAGE: &str = "resourcequotas";

pub(crate) fn validate(
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(object) = object else { return Ok(()) };
    let kind = &attributes.resource.kind;
    if attributes.operation == Operation::Delete || !is_counted(kind, attributes.subresource, old) {
        return Ok(());
    }
    let quotas = attributes.registry.storage.objects(STORAGE, attributes.namespace);
    decide::charges(&quotas, kind, object, old).map(|_| ()).map_err(|why| attributes.forbidden(why))
}

/// Most kinds are counted at their creation; a few can also grow.
fn is_counted(kind: &Kind, subresource: &str, old: Option<&Tree>) -> bool {
    let grows = match (kind.group(), kind.kind()) {
        ("", "Service" | "PersistentVolumeClaim") => subresource.is_empty(),
        ("", "Pod") => subresource == "resize",
        _ => false,
    };
    kind.namespaced && if old.is_some() { grows } else { subresource.is_empty() }
}

/// The writes that charge an object to the quotas of its namespace, to be committed before its own.
pub(crate) fn claim(
    scope: &Scope<'_>,
    name: &str,
    object: &Tree,
    old: Option<&Tree>,
) -> Result<Vec<StoreWrite>, Status> {
    let kind = &scope.resource.kind;
    let items = quotas(scope.registry, scope.namespace);
    if items.is_empty() || scope.dry_run || !is_counted(kind, scope.subresource, old) {
        return Ok(Vec::new());
    }
    let quotas: Vec<Tree> = items.iter().map(|item| item.tree()).collect();
    let refused = |why| Status::forbidden(kind.group(), kind.plural(), name, why);
    let charges = decide::charges(&quotas, kind, object, old).map_err(refused)?;
    charges.into_iter().map(|(at, charged)| write(scope, &items[at], &quotas[at], charged)).collect()
}

fn quotas(registry: &Registry, namespace: &str) -> Vec<Arc<Item>> {
    registry.storage.caches.get(STORAGE).map_or_else(Vec::new, |cache| cache.items_in(namespace))
}

fn write(scope: &Scope<'_>, item: &Item, old: &Tree, mut charged: Tree) -> Result<StoreWrite, Status> {
    let resource = scope.registry.storage.resources.find("", "v1", STORAGE).ok_or_else(Status::no_resource)?;
    let quota = Scope { resource: &resource, subresource: "status", origin: None, ..*scope };
    let options = WriteOptions {
        dry_run: false,
        field_manager: "kube-apiserver".to_string(),
        validation: Validation::Ignore,
        force: false,
    };
    quota.own_fields(Some(old), &mut charged, &options);
    Ok(quota.put(item.name(), &charged, Precondition::Revision(item.revision)))
}

/// Serializes the writes that are charged to the quotas of one namespace: concurrent ones would only conflict.
#[derive(Default)]
pub(crate) struct NamespaceLocks {
    by_namespace: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// Waits for the lock of the namespace, if the write changes the usage.
pub(crate) async fn lock_namespace(scope: &Scope<'_>, old: Option<&Tree>) -> Option<OwnedMutexGuard<()>> {
    let counted = is_counted(&scope.resource.kind, scope.subresource, old);
    if scope.dry_run || !counted || quotas(scope.registry, scope.namespace).is_empty() {
        return None;
    }
    Some(scope.registry.turns.of(scope.namespace).lock_owned().await)
}

impl NamespaceLocks {
    fn of(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.by_namespace.lock();
        if let Some(turn) = all.get(namespace) {
            return turn.clone();
        }
        // Locks without waiting writes are dropped, which keeps the map small.
        all.retain(|_, turn| Arc::strong_count(turn) > 1);
        all.entry(namespace.to_string()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;
    use crate::common::users::system_user;
    use crate::{Config, bootstrap, testing};

    async fn create(registry: &Registry, plural: &str, subresource: &str, text: &str) -> Result<(), Status> {
        let resource = registry.storage.resources.find("", "v1", plural).expect("a kind of the core group");
        let user = system_user();
        let namespace = "default";
        let scope = Scope {
            registry,
            resource: &resource,
            user: &user,
            namespace,
            subresource,
            now: registry.now(),
            dry_run: false,
            origin: None,
        };
        let options = WriteOptions {
            dry_run: false,
            field_manager: "test".to_string(),
            validation: Validation::Ignore,
            force: false,
        };
        let tree = json::decode(text.as_bytes()).expect("the test's own JSON");
        if subresource.is_empty() {
            return scope.create(tree, &options, &mut Vec::new()).await.map(|_| ());
        }
        let name = tree.str("metadata.name").to_string();
        let change = |old: &Tree| {
            let mut object = old.clone();
            object.set("status", tree.at("status").clone());
            Ok(object)
        };
        scope.update(&name, &mut Vec::new(), |old, _| change(old)).await.map(|_| ())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn writers_at_once_never_share_what_is_left() {
        let registry = testing::registry(Config::default()).await;
        let quota = r#"{"metadata":{"name":"q"},"spec":{"hard":{"configmaps":"10"}}}"#;
        create(&registry, "resourcequotas", "", quota).await.expect("the quota is made");
        let status = r#"{"metadata":{"name":"q"},"status":{"hard":{"configmaps":"10"},"used":{"configmaps":"0"}}}"#;
        create(&registry, "resourcequotas", "status", status).await.expect("the usage is counted");
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100 {
            let registry = registry.clone();
            let text = format!(r#"{{"metadata":{{"name":"m{number}"}}}}"#);
            tasks.spawn(async move { create(&registry, "configmaps", "", &text).await });
        }
        let results = tasks.join_all().await;
        let refused = results.iter().filter(|result| result.as_ref().is_err_and(|status| status.code == 403)).count();
        assert_eq!((results.iter().filter(|result| result.is_ok()).count(), refused), (10, 90));
        assert_eq!(registry.storage.objects("configmaps", "default").len(), 10);
        let quota = registry.storage.object("resourcequotas", "default/q").expect("the quota is there");
        assert_eq!(quota.str("status.used.configmaps"), "10");
    }

    #[tokio::test]
    async fn a_second_start_writes_nothing() {
        let server = testing::server(Config::default()).await;
        let before = server.registry.storage.caches.revision();
        bootstrap::run(&server).await.expect("there is nothing to make");
        assert_eq!(server.registry.storage.caches.revision(), before);
    }
}
