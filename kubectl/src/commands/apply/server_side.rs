//! Server-side apply, and the move from client-side apply to it.

use api::{Tree, json, list, tree};
use http::Method;

use super::{Applied, Plan, warn_if_deleting};
use crate::commands::common::{JSON_PATCH, LAST_APPLIED};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::objects::Info;
use crate::transport::Request;

pub(super) const APPLY: &str = "application/apply-patch+yaml";
/// The manager of the annotation, so that it survives server-side apply.
const ANNOTATION_MANAGER: &str = "kubectl-last-applied";

const CONFLICT: &str = "Please review the fields above--they currently have other managers. Here\nare the ways you can resolve \
                        this warning:\n* If you intend to manage all of these fields, please re-run the apply\n  command with \
                        the `--force-conflicts` flag.\n* If you do not intend to manage all of the fields, please edit your\n  \
                        manifest to remove references to the fields that should keep their\n  current managers.\n* You may \
                        co-own fields by updating your manifest to match the existing\n  value; in this case, you'll become \
                        the manager if the other manager(s)\n  stop managing the field (remove it from their configuration).\n\
                        See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts";

pub(super) async fn apply(context: &Context, plan: &Plan, info: &Info) -> Result<Applied> {
    let sent = send(context, plan, info, &info.object, &plan.manager).await;
    let mut object = sent.map_err(|error| match &error {
        Error::Server { status, .. } if status.reason == "Conflict" => {
            Error::Message(format!("{}\n{CONFLICT}", status.message))
        }
        _ => error,
    })?;
    if plan.manager == "kubectl" {
        object = keep_annotation(context, plan, info, object).await;
    }
    if let Some(migrated) = migrate(context, plan, info, &object).await {
        object = migrated;
    }
    warn_if_deleting(context, &object);
    Ok(Applied { object, operation: "serverside-applied" })
}

async fn send(context: &Context, plan: &Plan, info: &Info, object: &Tree, manager: &str) -> Result<Tree> {
    let sub = context.flags.str("subresource");
    let path = if sub.is_empty() { info.path() } else { format!("{}/{sub}", info.path()) };
    let request = Request::new(Method::PATCH, path)
        .query("fieldManager", manager)
        .query("fieldValidation", plan.validation)
        .query(
            "force",
            if manager == ANNOTATION_MANAGER {
                String::new()
            } else {
                context.flags.bool("force-conflicts").to_string()
            },
        )
        .body(APPLY, json::encode(object, None));
    context.client().await?.tree(&plan.dry_run.apply(request)).await
}

fn owns_annotation(entry: &Tree) -> bool {
    entry.at("fieldsV1.f:metadata.f:annotations").as_map().is_some_and(|map| map.contains(&format!("f:{LAST_APPLIED}")))
}

/// Makes a manager of its own own the annotation.
async fn keep_annotation(context: &Context, plan: &Plan, info: &Info, object: Tree) -> Tree {
    let Some(annotation) = object.at("metadata.annotations").get(LAST_APPLIED).cloned() else { return object };
    let managers = object.list("metadata.managedFields");
    if managers.iter().any(|entry| entry.str("operation") == "Apply" && owns_annotation(entry)) {
        return object;
    }
    let mut metadata = tree! { "name" => &info.name, "annotations" => tree! { LAST_APPLIED => annotation } };
    if !info.namespace.is_empty() {
        metadata.set("namespace", &info.namespace);
    }
    let only =
        tree! { "apiVersion" => info.resource.api_version(), "kind" => &info.resource.kind, "metadata" => metadata };
    match send(context, plan, info, &only, ANNOTATION_MANAGER).await {
        Ok(object) => object,
        Err(error) => {
            context.note(&format!(
                "Warning: failed to migrate {LAST_APPLIED} for Server-Side Apply. This is non-fatal and will be retried next \
                 time you apply. Error: {error}"
            ));
            object
        }
    }
}

/// Gives the fields of client-side apply to the manager of server-side apply, and applies again.
async fn migrate(context: &Context, plan: &Plan, info: &Info, object: &Tree) -> Option<Tree> {
    let patch = migration(object, &plan.manager)?;
    let request = Request::new(Method::PATCH, info.path())
        .query("fieldManager", &plan.manager)
        .query("fieldValidation", plan.validation)
        .body(JSON_PATCH, json::encode(&patch, None));
    let client = context.client().await.ok()?;
    if let Err(error) = client.tree(&plan.dry_run.apply(request)).await {
        context.note(&format!(
            "Warning: server rejected managed fields migration to Server-Side Apply. This is non-fatal and will be retried \
             next time you apply. Error: {error}"
        ));
        return None;
    }
    match send(context, plan, info, &info.object, &plan.manager).await {
        Ok(object) => Some(object),
        Err(error) => {
            context.note(&format!(
                "Warning: failed to re-apply configuration after performing Server-Side Apply migration. This is non-fatal and \
                 will be retried next time you apply. Error: {error}"
            ));
            None
        }
    }
}

/// The patch of the managers, if client-side apply still manages fields.
fn migration(object: &Tree, manager: &str) -> Option<Tree> {
    let managers = object.list("metadata.managedFields");
    let is_client_side = |entry: &Tree| {
        entry.str("operation") == "Update" && entry.str("subresource").is_empty() && owns_annotation(entry)
    };
    let old = managers.iter().find(|entry| is_client_side(entry))?;
    let mut fields = old.at("fieldsV1").clone();
    let mut kept: Vec<Tree> = Vec::new();
    for entry in managers {
        if is_client_side(entry) {
            continue;
        }
        if entry.str("operation") == "Apply" && entry.str("manager") == manager && entry.str("subresource").is_empty() {
            fields = union(fields, entry.at("fieldsV1"));
            continue;
        }
        kept.push(entry.clone());
    }
    let mut own = old.clone();
    own.set("manager", manager);
    own.set("operation", "Apply");
    own.set("fieldsV1", fields);
    kept.push(own);
    Some(list![
        tree! { "op" => "replace", "path" => "/metadata/managedFields", "value" => kept },
        tree! { "op" => "replace", "path" => "/metadata/resourceVersion", "value" => object.str("metadata.resourceVersion") },
    ])
}

fn union(a: Tree, b: &Tree) -> Tree {
    match (a, b) {
        (Tree::Map(mut a), Tree::Map(b)) => {
            for (key, value) in b.iter() {
                let joined = match a.remove(key) {
                    Some(old) => union(old, value),
                    None => value.clone(),
                };
                a.insert(key, joined);
            }
            Tree::Map(a)
        }
        (Tree::Null, b) => b.clone(),
        (a, _) => a,
    }
}
