//! Client-side apply.

use api::{Tree, json};
use http::Method;

use super::{Applied, Plan, warn_if_deleting};
use crate::commands::common::{DryRun, LAST_APPLIED, STRATEGIC, delete_options, patch_kind, with_last_applied};
use crate::commands::diff3::{conflicts, three_way, two_way};
use crate::commands::wait::{Deletion, wait_for_deletion};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::objects::{Info, get_object};
use crate::transport::Request;

/// How often a patch is computed again after a conflict.
const MAX_RETRIES: usize = 5;

pub(super) async fn apply(context: &Context, plan: &Plan, info: &Info) -> Result<Applied> {
    let modified = with_last_applied(&info.object);
    let current = match get_object(context, &info.resource, &info.namespace, &info.name, "").await {
        Ok(current) => current,
        Err(error) if error.is_not_found() => return create(context, plan, info, modified).await,
        Err(error) => {
            return Err(error.with_context(&format!(
                "error when retrieving current configuration of:\n{}\nfrom server for: {}",
                describe(info),
                api::field::go_quote(&info.source)
            )));
        }
    };
    if current.at("metadata.annotations").get(LAST_APPLIED).is_none() {
        context.note(&format!(
            "Warning: resource {} is missing the {LAST_APPLIED} annotation which is required by kubectl apply. kubectl apply \
             should only be used on resources created declaratively by either kubectl create --save-config or kubectl apply. \
             The missing annotation will be patched automatically.",
            resource_name(info)
        ));
    }
    let (body, object) = patch(context, plan, info, &modified, current).await?;
    warn_if_deleting(context, &object);
    let operation = if body == b"{}" { "unchanged" } else { "configured" };
    Ok(Applied { object, operation })
}

/// `deployments/web`, as upstream's warnings name an object.
fn resource_name(info: &Info) -> String {
    format!("{}/{}", info.resource.plural, info.name)
}

fn describe(info: &Info) -> String {
    format!(
        "Resource: \"{}, Resource={}\", GroupVersionKind: \"{}, Kind={}\"\nName: \"{}\", Namespace: \"{}\"",
        info.resource.api_version(),
        info.resource.plural,
        info.resource.api_version(),
        info.resource.kind,
        info.name,
        info.namespace
    )
}

async fn create(context: &Context, plan: &Plan, info: &Info, mut object: Tree) -> Result<Applied> {
    prune_nulls(&mut object);
    if plan.dry_run != DryRun::Client {
        let request = Request::new(Method::POST, info.resource.path(&info.namespace))
            .query("fieldManager", &plan.manager)
            .query("fieldValidation", plan.validation)
            .json(&object);
        let created = context.client().await?.tree(&plan.dry_run.apply(request)).await;
        object = created.map_err(|error| {
            error.with_context(&format!("error when creating {}", api::field::go_quote(&info.source)))
        })?;
    }
    Ok(Applied { object, operation: "created" })
}

fn prune_nulls(tree: &mut Tree) {
    match tree {
        Tree::Map(map) => map.retain(|_, value| {
            prune_nulls(value);
            !value.is_null()
        }),
        Tree::List(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

/// `--overwrite=false`: fails if the patch sets fields that others changed since the last apply.
fn check_conflicts(info: &Info, body: &[u8], current: &Tree) -> Result<()> {
    let without_annotation = |mut tree: Tree| {
        if let Some(annotations) = tree.at_mut("metadata.annotations") {
            annotations.remove(LAST_APPLIED);
        }
        tree
    };
    let patch = json::decode(body).map_err(|error| Error::new(error.to_string()))?;
    let changed = two_way(&last_applied(current)?, current, &info.resource);
    let paths = conflicts(&without_annotation(patch), &without_annotation(changed), &info.resource);
    if paths.is_empty() || patch_kind(&info.resource) != STRATEGIC {
        return Ok(());
    }
    Err(Error::new(format!(
        "{}: these fields were changed since the last apply, and --overwrite is false: {}",
        resource_name(info),
        paths.join(", ")
    )))
}

fn last_applied(current: &Tree) -> Result<Tree> {
    let text = current.at("metadata.annotations").get(LAST_APPLIED).and_then(Tree::as_str);
    match text.unwrap_or_default() {
        "" => Ok(Tree::map_new()),
        text => json::decode(text.as_bytes()).map_err(|error| Error::new(format!("{LAST_APPLIED}: {error}"))),
    }
}

/// The patch that makes the modified configuration of the current object.
pub(crate) fn compute(info: &Info, modified: &Tree, current: &Tree) -> Result<Vec<u8>> {
    let mut patch = three_way(&last_applied(current)?, modified, current, &info.resource);
    // The current object's status and revision are the server's business unless the configuration has them.
    if let Some(map) = patch.as_map_mut() {
        map.retain(|_, value| value.as_map().is_none_or(|map| !map.is_empty()));
    }
    Ok(json::encode(&patch, None))
}

async fn patch(context: &Context, plan: &Plan, info: &Info, modified: &Tree, current: Tree) -> Result<(Vec<u8>, Tree)> {
    let mut current = current;
    for attempt in 0.. {
        let body = compute(info, modified, &current)?;
        if !context.flags.bool("overwrite") {
            check_conflicts(info, &body, &current)?;
        }
        if body == b"{}" {
            return Ok((body, current));
        }
        if plan.dry_run == DryRun::Client {
            let object = patch_locally(info, &body, current)?;
            return Ok((body, object));
        }
        match send(context, plan, info, &body).await {
            Ok(object) => return Ok((body, object)),
            Err(error) if error.is_conflict() && attempt < MAX_RETRIES => {
                current = get_object(context, &info.resource, &info.namespace, &info.name, "").await?;
            }
            Err(error) => {
                let is_refused = error.is_conflict() || error.status().is_some_and(|status| status.reason == "Invalid");
                if is_refused && context.flags.bool("force") {
                    return Ok((body, replace(context, plan, info, modified, &current).await?));
                }
                let patch = String::from_utf8_lossy(&body).into_owned();
                return Err(error.with_context(&format!(
                    "error when applying patch:\n{patch}\nto:\n{}\nfor: {1}: error when patching {1}",
                    describe(info),
                    api::field::go_quote(&info.source)
                )));
            }
        }
    }
    Err(Error::new("the object changes too often to be patched"))
}

async fn send(context: &Context, plan: &Plan, info: &Info, body: &[u8]) -> Result<Tree> {
    let request = Request::new(Method::PATCH, info.path())
        .query("fieldManager", &plan.manager)
        .query("fieldValidation", plan.validation)
        .body(patch_kind(&info.resource), body.to_vec());
    context.client().await?.tree(&plan.dry_run.apply(request)).await
}

fn patch_locally(info: &Info, body: &[u8], current: Tree) -> Result<Tree> {
    let patch = json::decode(body).map_err(|error| Error::new(error.to_string()))?;
    let resource = &info.resource;
    match api::schema::type_of(&resource.group, &resource.version, &resource.kind) {
        Some(ty) if patch_kind(resource) == STRATEGIC => api::patch::strategic(current, &patch, ty)
            .map_err(|error| Error::new(format!("applying patch locally: {error:?}"))),
        _ => Ok(api::patch::merge(current, &patch)),
    }
}

/// `--force`: deletes the object and creates it again; if that fails, the old one comes back.
async fn replace(context: &Context, plan: &Plan, info: &Info, modified: &Tree, current: &Tree) -> Result<Tree> {
    let client = context.client().await?;
    let propagation = crate::commands::delete::propagation(context)?;
    let grace = context.flags.int("grace-period");
    let options = delete_options(propagation, (grace >= 0).then_some(grace), DryRun::None);
    client.bytes(&Request::new(Method::DELETE, info.path()).json(&options)).await?;
    let deletion = Deletion { info: info.clone(), uid: current.str("metadata.uid").to_string() };
    wait_for_deletion(context, &[deletion], context.flags.duration("timeout")).await?;
    let create = |object: &Tree| {
        Request::new(Method::POST, info.resource.path(&info.namespace))
            .query("fieldManager", &plan.manager)
            .json(object)
    };
    match client.tree(&create(modified)).await {
        Ok(created) => Ok(created),
        Err(error) => {
            let mut old = current.clone();
            if let Some(metadata) = old.get_mut("metadata") {
                metadata.remove("resourceVersion");
                metadata.remove("uid");
            }
            match client.tree(&create(&old)).await {
                Ok(_) => Err(error),
                Err(second) => Err(Error::new(format!(
                    "An error occurred force-replacing the existing object with the newly provided one:\n\n{error}.\n\n\
                     Additionally, an error occurred attempting to restore the original object:\n\n{second}"
                ))),
            }
        }
    }
}
