//! `--prune`: deletes what apply created and the files no longer have.

use std::collections::BTreeSet;

use http::Method;

use super::Plan;
use crate::commands::common::{DryRun, LAST_APPLIED, delete_options};
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result, message};
use crate::objects::{Info, ListQuery, list_pages, split_list};
use crate::transport::Request;

/// The types that are pruned by default, as upstream has them.
const DEFAULT: &[(&str, &str)] = &[
    ("v1", "ConfigMap"),
    ("v1", "Endpoints"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolume"),
];

/// The types that are pruned: those of `--prune-allowlist`, or the default ones.
pub(crate) async fn prune_types(context: &Context) -> Result<Vec<Resource>> {
    let mut types = Vec::new();
    let list = context.flags.list("prune-allowlist");
    if list.is_empty() {
        if context.flags.changed("namespace") {
            context.note(
                "Deprecated: kubectl apply will no longer prune non-namespaced resources by default when used with the \
                 --namespace flag in a future release. To preserve the current behaviour, list the resources you want to \
                 target explicitly in the --prune-allowlist flag.",
            );
        }
        for (version, kind) in DEFAULT {
            types.extend(context.resource_of(version, kind).await.ok());
        }
        return Ok(types);
    }
    for text in list {
        let parts: Vec<&str> = text.split('/').collect();
        let [group, version, kind] = parts[..] else {
            return message(format!("invalid GroupVersionKind format: {text}, please follow <group/version/kind>"));
        };
        let version = if group == "core" { version.to_string() } else { format!("{group}/{version}") };
        types.push(context.resource_of(&version, kind).await?);
    }
    Ok(types)
}

pub(super) async fn prune(
    context: &Context,
    plan: &Plan,
    visited: &BTreeSet<String>,
    namespaces: &BTreeSet<String>,
) -> Result<()> {
    let types = prune_types(context).await?;
    let (inside, outside): (Vec<&Resource>, Vec<&Resource>) = types.iter().partition(|one| one.is_namespaced);
    for namespace in namespaces {
        for resource in &inside {
            prune_type(context, plan, visited, resource, namespace)
                .await
                .map_err(|error| failed(error, "namespaced", resource))?;
        }
    }
    for resource in &outside {
        prune_type(context, plan, visited, resource, "")
            .await
            .map_err(|error| failed(error, "nonNamespaced", resource))?;
    }
    Ok(())
}

fn failed(error: Error, scope: &str, resource: &Resource) -> Error {
    let api_version = resource.api_version();
    error.without_reason().with_context(&format!("error pruning {scope} object {api_version}, Kind={}", resource.kind))
}

async fn prune_type(
    context: &Context,
    plan: &Plan,
    visited: &BTreeSet<String>,
    resource: &Resource,
    namespace: &str,
) -> Result<()> {
    for info in find_pruned(context, visited, resource, namespace).await? {
        delete_pruned(context, plan, &info).await?;
    }
    Ok(())
}

/// The objects of a type that apply has created and this command has not visited.
pub(crate) async fn find_pruned(
    context: &Context,
    visited: &BTreeSet<String>,
    resource: &Resource,
    namespace: &str,
) -> Result<Vec<Info>> {
    let query = ListQuery { selector: context.flags.str("selector").to_string(), ..ListQuery::default() };
    let mut gone = Vec::new();
    list_pages(context, resource, namespace, &query, async |page| {
        gone.extend(split_list(resource, page).into_iter().filter(|info| {
            info.object.at("metadata.annotations").get(LAST_APPLIED).is_some()
                && !visited.contains(info.object.str("metadata.uid"))
        }));
        Ok(())
    })
    .await?;
    Ok(gone)
}

/// Deletes an object that is no longer applied, and prints it.
pub(super) async fn delete_pruned(context: &Context, plan: &Plan, info: &Info) -> Result<()> {
    if plan.dry_run != DryRun::Client {
        let grace = context.flags.int("grace-period");
        let propagation = crate::commands::delete::propagation(context)?;
        let options = delete_options(propagation, (grace >= 0).then_some(grace), plan.dry_run);
        let request = Request::new(Method::DELETE, info.path()).json(&options);
        context.client().await?.bytes(&request).await?;
    }
    plan.printer.print_result(context, &info.object, &format!("pruned{}", plan.dry_run.suffix()))
}
