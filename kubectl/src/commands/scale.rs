//! `scale`.

use api::{Tree, tree};
use http::Method;

use super::common::{DRY_RUN, DryRun, JSON_PATCH, MERGE};
use super::record::{RECORD, record_stored};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{FILES, Info, SELECTOR, Select};
use crate::print::{PRINT, Printer};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    switch("all", '\0', "All objects of the types, in the namespace."),
    typed("current-replicas", '\0', Kind::Int, "-1", "Only scale if this is the current size; -1 for any."),
    typed("replicas", '\0', Kind::Int, "-1", "The new number of replicas. Required."),
    text("resource-version", '\0', "", "Only scale if the object has this version."),
    typed("timeout", '\0', Kind::Duration, "0s", "How long to wait for the new size; zero does not wait."),
];

pub(crate) static SCALE: Command = Command {
    name: "scale",
    usage: "[--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME)",
    short: "Set a new size for a deployment, replica set, or replication controller",
    flags: &[FLAGS, DRY_RUN, FILES, SELECTOR, PRINT, RECORD],
    run: Some(|context| Box::pin(run(context))),
    group: "Deploy Commands",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let replicas = flags.int("replicas");
    if !flags.changed("replicas") {
        return message("required flag(s) \"replicas\" not set");
    }
    if replicas < 0 {
        return message("The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0");
    }
    if flags.int("current-replicas") < -1 {
        return message("The --current-replicas must specify an integer of -1 or greater");
    }
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    let found = Select::of(context).find(context).await?;
    if !flags.str("resource-version").is_empty() && found.infos.len() > 1 {
        return message("cannot use --resource-version with multiple resources");
    }
    if found.infos.is_empty() {
        Error::all(found.errors)?;
        return message("no objects passed to scale");
    }
    for info in &found.infos {
        if dry_run != DryRun::Client {
            scale(context, info, replicas, dry_run).await?;
            record_stored(context, info, &info.object, dry_run).await?;
        }
        let mut object = info.object.clone();
        if matches!(info.resource.group.as_str(), "apps" | "") {
            object.child("spec").set("replicas", replicas);
        }
        printer.print_result(context, &object, &format!("scaled{}", dry_run.suffix()))?;
        context.flush()?;
        if dry_run == DryRun::None && flags.nanos("timeout") > 0 {
            wait(context, info, replicas).await?;
        }
    }
    Error::all(found.errors)
}

fn path(info: &Info) -> String {
    format!("{}/scale", info.path())
}

async fn scale(context: &Context, info: &Info, replicas: i64, dry_run: DryRun) -> Result<()> {
    let (client, flags) = (context.client().await?, &context.flags);
    let (current, revision) = (flags.int("current-replicas"), flags.str("resource-version"));
    if current == -1 && revision.is_empty() {
        // Without a precondition one patch is enough, whatever the size is.
        let body = tree! { "spec" => tree! { "replicas" => replicas } };
        let request = Request::new(Method::PATCH, path(info)).body(MERGE, api::json::encode(&body, None));
        client.bytes(&dry_run.apply(request)).await?;
        return Ok(());
    }
    let mut scale = client.tree(&Request::get(path(info))).await?;
    let found = scale.int("spec.replicas").unwrap_or(0);
    if current != -1 && found != current {
        return message(format!("Expected replicas to be {current}, was {found}"));
    }
    let found = scale.str("metadata.resourceVersion");
    if !revision.is_empty() && found != revision {
        return message(format!("Expected resource version to be {revision}, was {found}"));
    }
    scale.child("spec").set("replicas", replicas);
    let request = Request::new(Method::PUT, path(info)).json(&scale);
    client.bytes(&dry_run.apply(request)).await.map(drop)
}

/// Waits until the object has its new size.
async fn wait(context: &Context, info: &Info, replicas: i64) -> Result<()> {
    let limit = context.flags.duration("timeout");
    let is_done = |object: &Tree| {
        let is_seen =
            object.int("status.observedGeneration").unwrap_or(0) >= object.int("metadata.generation").unwrap_or(0);
        let size = object.int("status.replicas").unwrap_or(0);
        (is_seen && size == replicas) || object.int("spec.replicas") != Some(replicas)
    };
    match tokio::time::timeout(limit, super::watching::until(context, info, is_done)).await {
        Ok(result) => result.map(drop),
        Err(_) => message(format!("timed out waiting for {} to be synced", api::field::go_quote(&info.name))),
    }
}

const PATCH_FLAGS: &[Flag] = &[
    text("field-manager", '\0', "kubectl-patch", "The name of the manager of the fields that are set."),
    switch("local", '\0', "Change the object of a file, without the server."),
    text("patch", 'p', "", "The patch, in JSON or YAML."),
    text("patch-file", '\0', "", "A file with the patch."),
    text("subresource", '\0', "", "The subresource to patch."),
    text("type", '\0', "strategic", "The type of the patch: json, merge or strategic."),
];

pub(crate) static PATCH: Command = Command {
    name: "patch",
    usage: "(-f FILENAME | TYPE NAME) [-p PATCH|--patch-file FILE]",
    short: "Update fields of a resource",
    flags: &[PATCH_FLAGS, DRY_RUN, FILES, PRINT, RECORD],
    run: Some(|context| Box::pin(patch(context))),
    group: "Advanced Commands",
    ..Command::EMPTY
};

fn check_patch(context: &Context, dry_run: DryRun) -> Result<&'static str> {
    let flags = &context.flags;
    let (patch, file) = (flags.str("patch"), flags.str("patch-file"));
    if !patch.is_empty() && !file.is_empty() {
        return message("cannot specify --patch and --patch-file together");
    }
    if patch.is_empty() && file.is_empty() {
        return message("must specify --patch or --patch-file containing the contents of the patch");
    }
    if flags.bool("local") && !context.args.is_empty() {
        return message("cannot specify --local and server resources");
    }
    if flags.bool("local") && dry_run == DryRun::Server {
        return message("cannot specify --local and --dry-run=server - did you mean --dry-run=client?");
    }
    match flags.str("type").to_lowercase().as_str() {
        "" | "strategic" => Ok(super::common::STRATEGIC),
        "merge" => Ok(MERGE),
        "json" => Ok(JSON_PATCH),
        _ => message(format!(
            "--type must be one of [json merge strategic], not {}",
            api::field::go_quote(flags.str("type"))
        )),
    }
}

async fn patch(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let dry_run = DryRun::of(context)?;
    let kind = check_patch(context, dry_run)?;
    let text = match flags.str("patch-file") {
        "" => flags.str("patch").as_bytes().to_vec(),
        path => std::fs::read(path).map_err(|error| {
            Error::new(format!("unable to read patch file: open {path}: {}", crate::error::io_text(&error)))
        })?,
    };
    // What looks like JSON is the server's to judge.
    let raw = text.trim_ascii_start().starts_with(b"{").then(|| text.clone());
    let body = if raw.is_some() {
        api::json::decode(&text).map_err(|error| Error::new(error.to_string()))
    } else {
        api::yaml::decode(&text).map_err(|error| {
            Error::new(format!("unable to parse {}: {error}", api::field::go_quote(&String::from_utf8_lossy(&text))))
        })
    };
    let body = match (body, &raw) {
        (Err(_), Some(_)) => Tree::Null,
        (body, _) => body?,
    };
    let printer = Printer::new(context, false)?;
    let found = Select::of(context).find(context).await?;
    let mut errors = found.errors;
    let is_empty = found.infos.is_empty() && errors.is_empty();
    for info in &found.infos {
        let patched = if flags.bool("local") || dry_run == DryRun::Client {
            apply_locally(info, kind, &body).map(|object| (object != info.object, object))
        } else {
            let body = raw.clone().unwrap_or_else(|| api::json::encode(&body, None));
            send_recorded(context, info, kind, body, dry_run).await
        };
        match patched {
            Ok((is_changed, object)) => {
                let done = if is_changed { "patched" } else { "patched (no change)" };
                // As upstream, without a word about a dry run.
                printer.print_result(context, &object, done)?;
            }
            Err(error) => errors.push(error),
        }
    }
    if is_empty {
        return message("no objects passed to patch");
    }
    Error::all(errors)
}

/// Sends a patch, and another one if the command is recorded. Whether the first changed the object is in the result.
async fn send_recorded(
    context: &Context,
    info: &Info,
    kind: &'static str,
    body: Vec<u8>,
    dry_run: DryRun,
) -> Result<(bool, Tree)> {
    let patched = send(context, info, kind, body, dry_run).await?;
    let is_changed = patched != info.object;
    let recorded = record_stored(context, info, &patched, dry_run).await?;
    Ok((is_changed, recorded.unwrap_or(patched)))
}

async fn send(context: &Context, info: &Info, kind: &'static str, body: Vec<u8>, dry_run: DryRun) -> Result<Tree> {
    let sub = context.flags.str("subresource");
    let path = if sub.is_empty() { info.path() } else { format!("{}/{sub}", info.path()) };
    let request =
        Request::new(Method::PATCH, path).query("fieldManager", context.flags.str("field-manager")).body(kind, body);
    context.client().await?.tree(&dry_run.apply(request)).await.map_err(|error| match &error {
        Error::Server { status, .. } if status.code == 415 => Error::Message(format!(
            "{kind} is not supported by {}, Kind={}: {}",
            info.resource.api_version(),
            info.resource.kind,
            status.message
        )),
        _ => error,
    })
}

/// Applies a patch without the server.
pub(crate) fn apply_locally(info: &Info, kind: &str, body: &Tree) -> Result<Tree> {
    let resource = &info.resource;
    match kind {
        JSON_PATCH => {
            let text = api::json::encode(body, None);
            let operations = api::patch::json::decode(&text, &mut api::json::Strict::default())
                .map_err(|error| Error::new(format!("{error:?}")))?;
            api::patch::json::apply(info.object.clone(), &operations).map_err(|error| Error::new(format!("{error:?}")))
        }
        MERGE => Ok(api::patch::merge(info.object.clone(), body)),
        _ => match api::schema::type_of(&resource.group, &resource.version, &resource.kind) {
            Some(ty) => {
                api::patch::strategic(info.object.clone(), body, ty).map_err(|error| Error::new(format!("{error:?}")))
            }
            None => message(format!(
                "strategic merge patch is not supported for {}, Kind={}, use --type=merge",
                resource.api_version(),
                resource.kind
            )),
        },
    }
}
