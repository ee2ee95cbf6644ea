//! Eviction: the deletion of a pod if its disruption budget allows it.

use std::sync::Arc;

use api::Tree;
use api::status::Status;
use kinds::User;
use kinds::core::pod::eviction::{self, Decision};

use super::success;
use crate::call::{Call, HttpResponse};
use crate::common::users::system_user;
use crate::registry::Registry;
use crate::registry::admission::{self, Operation};
use crate::registry::options::{DeleteOptions, WriteOptions};
use crate::registry::respond;
use crate::registry::verbs::delete::delete_admitted;
use crate::registry::verbs::{self, update};
use crate::registry::write::{MODIFIED, Scope};
use crate::request::codec::{ExpectedType, Validation};
use crate::storage::resource::Resource;
use crate::storage::store_status;

/// How often the decision is repeated because the pod changed.
const MAX_TRIES: usize = 20;

pub(super) async fn create(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let options = WriteOptions::parse(&call.head, "CreateOptions", false)?;
    let expected = ExpectedType::named("policy", "v1", "Eviction").ok_or_else(Status::no_resource)?;
    let mut eviction = verbs::read_adapted(call, &expected, &options, take_beta).await?;
    if eviction.str("metadata.name") != call.head.info.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let delete_options = match eviction.get("deleteOptions") {
        Some(given) if !given.is_null() => DeleteOptions::parse(&call.head.query, Some(given))?,
        _ => DeleteOptions::default(),
    };
    let dry_run = options.dry_run || delete_options.dry_run;
    let mut scope = verbs::scope(registry, resource, call, dry_run)?;
    let mut warnings = Vec::new();
    let attributes = scope.attributes(Operation::Create, &call.head.info.name);
    let mut evicted = admission::admit(&attributes, &mut eviction, &mut warnings).await;
    if evicted.is_ok() {
        scope.subresource = "";
        evicted = evict(&scope, &call.head.info.name, &delete_options, &mut warnings).await;
    }
    call.warnings.append(&mut warnings);
    evicted?;
    success(&call.head, 201)
}

/// The old version has the same fields.
fn take_beta(tree: &mut Tree) -> Result<(), Status> {
    if tree.str("apiVersion") == "policy/v1beta1" && tree.str("kind") == "Eviction" {
        tree.set("apiVersion", "policy/v1");
    }
    Ok(())
}

async fn evict(
    scope: &Scope<'_>,
    name: &str,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    for attempt in 1.. {
        let item = scope.current(name).await?;
        let pod = scope.resource.read(&item);
        let budgets = budgets(scope);
        let matching = eviction::matching(&pod, &budgets);
        let as_read = match eviction::decide(&pod, &matching, scope.now) {
            Decision::Refuse(status) => return Err(*status),
            Decision::Delete { as_read } => as_read,
            Decision::Spend { budget } => {
                consume_disruption(scope, &pod, budget.str("metadata.name")).await?;
                false
            }
        };
        let mut options = options.clone();
        let enforced = as_read && options.resource_version.is_none();
        if enforced {
            options.resource_version = Some(pod.str("metadata.resourceVersion").to_string());
        }
        match mark_and_delete(scope, name, options, warnings).await {
            // The pod has changed since the decision.
            Err(status) if status.code == 409 && enforced && attempt < MAX_TRIES => {}
            result => return result,
        }
    }
    Ok(())
}

/// The disruption budgets of the pod's namespace.
fn budgets(scope: &Scope<'_>) -> Vec<Tree> {
    let Some(cache) = scope.registry.storage.caches.get("poddisruptionbudgets") else { return Vec::new() };
    let snapshot = cache.snapshot();
    let start: Arc<str> = Arc::from(format!("{}/", scope.namespace));
    let own = snapshot.map.range(start..).map(|(_, item)| item);
    own.take_while(|item| item.namespace() == scope.namespace).map(|item| item.tree()).collect()
}

/// Subtracts one disruption from the current status of the budget.
async fn consume_disruption(scope: &Scope<'_>, pod: &Tree, name: &str) -> Result<(), Status> {
    let resource = scope
        .registry
        .storage
        .resources
        .find("policy", "v1", "poddisruptionbudgets")
        .ok_or_else(Status::no_resource)?;
    let user: User = system_user();
    let scope = Scope { resource: &resource, user: &user, subresource: "status", origin: None, ..*scope };
    let options = WriteOptions {
        dry_run: scope.dry_run,
        field_manager: "kube-apiserver".to_string(),
        validation: Validation::Ignore,
        force: false,
    };
    let change = |old: &Tree, _: &Arc<crate::storage::cache::Item>| match eviction::decide(pod, &[old], scope.now) {
        Decision::Refuse(status) => Err(*status),
        Decision::Delete { .. } => Ok(old.clone()),
        Decision::Spend { mut budget } => {
            scope.own_fields(Some(old), &mut budget, &options);
            Ok(budget)
        }
    };
    scope.update(name, &mut Vec::new(), change).await.map(|_| ())
}

/// Sets a condition on the pod with the reason, then deletes it.
async fn mark_and_delete(
    scope: &Scope<'_>,
    name: &str,
    mut options: DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if !scope.dry_run {
        let version = mark(scope, name, &options).await?;
        if options.resource_version.is_some() {
            options.resource_version = Some(version);
        }
    }
    delete_admitted(scope, name, &options, warnings).await.map(|_| ())
}

/// Gives the version that the pod has after it.
async fn mark(scope: &Scope<'_>, name: &str, options: &DeleteOptions) -> Result<String, Status> {
    for _ in 0..MAX_TRIES {
        let item = scope.newest(name).await?;
        let mut pod = scope.resource.read(&item);
        let mut wanted = Tree::map_new();
        wanted.child("metadata").set("uid", options.uid.clone().unwrap_or_default());
        wanted.child("metadata").set("resourceVersion", options.resource_version.clone().unwrap_or_default());
        update::check_version(scope.resource, &wanted, &pod, name)?;
        eviction::mark(&mut pod, scope.now);
        match scope.put_at(name, &pod, item.revision).await {
            Ok(item) => return Ok(item.revision.to_string()),
            Err(store::Error::Conflict { .. }) => {}
            Err(error) => return Err(store_status(error)),
        }
    }
    Err(Status::conflict("", "pods", name, MODIFIED))
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;
    use crate::{Config, testing};

    fn pod(name: &str) -> Tree {
        tree! {
            "kind" => "Pod", "apiVersion" => "v1",
            "metadata" => tree! {
                "name" => name, "namespace" => "default", "uid" => name, "labels" => tree! { "a" => "b" },
            },
            "spec" => tree! { "nodeName" => "n", "containers" => list![tree! { "name" => "c", "image" => "i" }] },
            "status" => tree! { "phase" => "Running", "conditions" => list![tree! { "type" => "Ready", "status" => "True" }] },
        }
    }

    fn budget(allowed: i64) -> Tree {
        tree! {
            "kind" => "PodDisruptionBudget", "apiVersion" => "policy/v1",
            "metadata" => tree! { "name" => "b", "namespace" => "default", "uid" => "b", "generation" => 1 },
            "spec" => tree! { "minAvailable" => 1, "selector" => tree! { "matchLabels" => tree! { "a" => "b" } } },
            "status" => tree! {
                "observedGeneration" => 1, "disruptionsAllowed" => allowed, "currentHealthy" => 9,
                "desiredHealthy" => 1, "expectedPods" => 9,
            },
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_pods_go_than_the_budget_allows() {
        let registry = testing::registry(Config::default()).await;
        testing::put(&registry, "policy", "v1", "poddisruptionbudgets", budget(3)).await;
        let names: Vec<String> = (0..8).map(|number| format!("p{number}")).collect();
        for name in &names {
            testing::put(&registry, "", "v1", "pods", pod(name)).await;
        }
        let mut tasks = tokio::task::JoinSet::new();
        for name in names {
            let registry = registry.clone();
            tasks.spawn(async move {
                let resource = registry.storage.resources.find("", "v1", "pods").expect("pods are served");
                let user = User::default();
                let scope = testing::scope(&registry, &resource, &user);
                evict(&scope, &name, &DeleteOptions::default(), &mut Vec::new()).await.map_err(|status| status.code)
            });
        }
        let results = tasks.join_all().await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3);
        assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(429))), "{results:?}");
        let budget = registry.storage.object("poddisruptionbudgets", "default/b").expect("the budget");
        assert_eq!(budget.int("status.disruptionsAllowed"), Some(0));
        assert_eq!(budget.map("status.disruptedPods").len(), 3);
        let pods = registry.storage.caches.get("pods").expect("a cache").snapshot().map;
        let going = |pod: &Tree| pod.at("metadata").has("deletionTimestamp");
        assert_eq!(pods.values().map(|item| item.tree()).filter(going).count(), 3);
    }
}
