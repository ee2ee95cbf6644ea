//! `rollout`.

use std::collections::BTreeMap;

use api::{Tree, json, tree};

use super::common::{DRY_RUN, DryRun, JSON_PATCH, STRATEGIC, patch};
use super::pods::pod_selector;
use super::watching::follow;
use crate::clock;
use crate::command::Command;
use crate::context::Context;
use crate::describe::template_text;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch_on, text, typed};
use crate::objects::{FILES, Info, ListQuery, SELECTOR, Select, guess, list_pages, split_list};
use crate::print::{PRINT, Printer, TabWriter};

const MANAGER: &[Flag] =
    &[text("field-manager", '\0', "kubectl-rollout", "The name of the manager of the fields that are set.")];
const REVISION: &[Flag] = &[typed("revision", '\0', Kind::Int64, "0", "The revision to show.")];
const STATUS_FLAGS: &[Flag] = &[
    typed("revision", '\0', Kind::Int64, "0", "Wait for a revision; 0 for the newest."),
    typed("timeout", '\0', Kind::Duration, "0s", "How long to wait; zero is without an end."),
    switch_on("watch", 'w', "Wait until the rollout is complete."),
];
const UNDO_FLAGS: &[Flag] =
    &[typed("to-revision", '\0', Kind::Int64, "0", "The revision to go back to; 0 for the last one.")];

macro_rules! subcommand {
    ($name:ident, $text:literal, $short:literal, $flags:expr, $run:expr) => {
        static $name: Command = Command {
            name: $text,
            usage: "(TYPE NAME | TYPE/NAME) [flags]",
            short: $short,
            flags: $flags,
            run: Some(|context| Box::pin($run(context))),
            ..Command::EMPTY
        };
    };
}

subcommand!(HISTORY, "history", "View rollout history", &[REVISION, FILES, SELECTOR, PRINT], history);
subcommand!(PAUSE, "pause", "Mark the provided resource as paused", &[MANAGER, FILES, SELECTOR, PRINT], pause);
subcommand!(RESUME, "resume", "Resume a paused resource", &[MANAGER, FILES, SELECTOR, PRINT], resume);
subcommand!(RESTART, "restart", "Restart a resource", &[MANAGER, FILES, SELECTOR, PRINT], restart);
subcommand!(STATUS, "status", "Show the status of the rollout", &[STATUS_FLAGS, FILES, SELECTOR], status);
subcommand!(UNDO, "undo", "Undo a previous rollout", &[UNDO_FLAGS, DRY_RUN, FILES, SELECTOR, PRINT], undo);

pub(crate) static ROLLOUT: Command = Command {
    name: "rollout",
    usage: "SUBCOMMAND",
    short: "Manage the rollout of a resource",
    children: &[&HISTORY, &PAUSE, &RESTART, &RESUME, &STATUS, &UNDO],
    group: "Deploy Commands",
    ..Command::EMPTY
};

const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";
const CAUSE: &str = "kubernetes.io/change-cause";

async fn found(context: &Context) -> Result<Vec<Info>> {
    let select = Select { allows_types: true, ..Select::of(context) };
    if context.args.is_empty() && select.files.is_empty() && select.selector.is_none() {
        return message("required resource not specified");
    }
    select.find(context).await?.infos()
}

/// Changes each object by a patch, unless it already is as it should be.
async fn change(context: &Context, done: &str, body: impl Fn(&Info) -> Result<Option<Tree>>) -> Result<()> {
    let printer = Printer::new(context, false)?;
    let infos = found(context).await?;
    if infos.is_empty() {
        return message(format!("no resources found in {} namespace.", context.namespace()?.0));
    }
    let mut errors = Vec::new();
    for info in &infos {
        let result = match body(info) {
            Ok(Some(body)) => patch(context, info, STRATEGIC, json::encode(&body, None), DryRun::None).await,
            Ok(None) if done == "resumed" => message(format!("{} is not paused", quoted(info))),
            Ok(None) => message(format!("{} is already {done}", quoted(info))),
            Err(error) => Err(error),
        };
        match result {
            Ok(object) => printer.print_result(context, &object, done)?,
            Err(error @ Error::Message(_)) => errors.push(error),
            Err(error) => errors.push(Error::new(format!("failed to patch: {error}"))),
        }
    }
    Error::all(errors)
}

/// `deployments.apps "web"`.
fn quoted(info: &Info) -> String {
    format!("{} {}", info.resource.qualified(), api::field::go_quote(&info.name))
}

fn require_deployment(info: &Info, verb: &str) -> Result<()> {
    if info.resource.kind == "Deployment" {
        return Ok(());
    }
    message(format!("{} {verb} is not supported", quoted(info)))
}

async fn pause(context: &Context) -> Result<()> {
    change(context, "paused", |info| {
        require_deployment(info, "pausing")?;
        Ok((!info.object.bool("spec.paused")).then(|| tree! { "spec" => tree! { "paused" => true } }))
    })
    .await
}

async fn resume(context: &Context) -> Result<()> {
    change(context, "resumed", |info| {
        require_deployment(info, "resuming")?;
        Ok(info.object.bool("spec.paused").then(|| tree! { "spec" => tree! { "paused" => Tree::Null } }))
    })
    .await
}

async fn restart(context: &Context) -> Result<()> {
    let now = clock::now_text();
    change(context, "restarted", |info| {
        if !matches!(info.resource.kind.as_str(), "Deployment" | "DaemonSet" | "StatefulSet") {
            return message(format!("{} restarting is not supported", quoted(info)));
        }
        if info.object.bool("spec.paused") {
            return message("can't restart paused deployment (run rollout resume first)");
        }
        let annotations = tree! { "kubectl.kubernetes.io/restartedAt" => &now };
        let template = tree! { "metadata" => tree! { "annotations" => annotations } };
        Ok(Some(tree! { "spec" => tree! { "template" => template } }))
    })
    .await
}

/// The message about a rollout, and whether it is complete.
fn progress(info: &Info, object: &Tree, revision: i64) -> Result<(String, bool)> {
    let name = &info.name;
    let number = |path: &str| object.int(path).unwrap_or(0);
    let is_old = number("status.observedGeneration") < number("metadata.generation");
    match info.resource.kind.as_str() {
        "Deployment" => {
            if revision > 0 && annotation_number(object) != revision {
                return message(format!(
                    "desired revision ({revision}) is different from the running revision ({})",
                    annotation_number(object)
                ));
            }
            if is_old {
                return Ok(("Waiting for deployment spec update to be observed...\n".to_string(), false));
            }
            let conditions = object.list("status.conditions");
            if conditions
                .iter()
                .any(|one| one.str("type") == "Progressing" && one.str("reason") == "ProgressDeadlineExceeded")
            {
                return message(format!("deployment {} exceeded its progress deadline", api::field::go_quote(name)));
            }
            let wanted = object.int("spec.replicas").unwrap_or(1);
            let (updated, all) = (number("status.updatedReplicas"), number("status.replicas"));
            let available = number("status.availableReplicas");
            let waiting = |what: String| {
                Ok((
                    format!("Waiting for deployment {} rollout to finish: {what}...\n", api::field::go_quote(name)),
                    false,
                ))
            };
            if updated < wanted {
                return waiting(format!("{updated} out of {wanted} new replicas have been updated"));
            }
            if all > updated {
                return waiting(format!("{} old replicas are pending termination", all - updated));
            }
            if available < updated {
                return waiting(format!("{available} of {updated} updated replicas are available"));
            }
            Ok((format!("deployment {} successfully rolled out\n", api::field::go_quote(name)), true))
        }
        "DaemonSet" => {
            if object.str("spec.updateStrategy.type") != "RollingUpdate" {
                return message("rollout status is only available for RollingUpdate strategy type");
            }
            if is_old {
                return Ok(("Waiting for daemon set spec update to be observed...\n".to_string(), false));
            }
            let wanted = number("status.desiredNumberScheduled");
            let (updated, available) = (number("status.updatedNumberScheduled"), number("status.numberAvailable"));
            let waiting = |what: String| {
                Ok((
                    format!("Waiting for daemon set {} rollout to finish: {what}...\n", api::field::go_quote(name)),
                    false,
                ))
            };
            if updated < wanted {
                return waiting(format!("{updated} out of {wanted} new pods have been updated"));
            }
            if available < wanted {
                return waiting(format!("{available} of {wanted} updated pods are available"));
            }
            Ok((format!("daemon set {} successfully rolled out\n", api::field::go_quote(name)), true))
        }
        "StatefulSet" => stateful_set_progress(object, is_old),
        _ => message(format!("no status viewer has been implemented for {}", info.resource.kind_name_upper())),
    }
}

fn stateful_set_progress(object: &Tree, is_old: bool) -> Result<(String, bool)> {
    let number = |path: &str| object.int(path).unwrap_or(0);
    if object.str("spec.updateStrategy.type") != "RollingUpdate" {
        return message("rollout status is only available for RollingUpdate strategy type");
    }
    if object.int("status.observedGeneration").is_none() || is_old {
        return Ok(("Waiting for statefulset spec update to be observed...\n".to_string(), false));
    }
    let wanted = object.int("spec.replicas").unwrap_or(1);
    let (ready, updated) = (number("status.readyReplicas"), number("status.updatedReplicas"));
    if ready < wanted {
        return Ok((format!("Waiting for {} pods to be ready...\n", wanted - ready), false));
    }
    if let Some(partition) =
        object.int("spec.updateStrategy.rollingUpdate.partition").filter(|partition| *partition > 0)
    {
        let text = format!(
            "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...\n",
            wanted - partition
        );
        if updated < wanted - partition {
            return Ok((text, false));
        }
        return Ok((format!("partitioned roll out complete: {updated} new pods have been updated...\n"), true));
    }
    if object.str("status.updateRevision") != object.str("status.currentRevision") {
        return Ok((
            format!(
                "waiting for statefulset rolling update to complete {updated} pods at revision {}...\n",
                object.str("status.updateRevision")
            ),
            false,
        ));
    }
    let current = number("status.currentReplicas");
    Ok((
        format!(
            "statefulset rolling update complete {current} pods at revision {}...\n",
            object.str("status.currentRevision")
        ),
        true,
    ))
}

fn annotation_number(object: &Tree) -> i64 {
    object.map("metadata.annotations").str(REVISION_ANNOTATION).parse().unwrap_or(0)
}

async fn status(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let revision = flags.int("revision");
    if revision < 0 {
        return message(format!("revision must be a positive integer: {revision}"));
    }
    for info in found(context).await? {
        if !flags.bool("watch") {
            let (text, _) = progress(&info, &info.object, revision)?;
            context.print(&text)?;
            continue;
        }
        // What has no status is refused before anything is watched.
        progress(&info, &info.object, revision)?;
        let mut last = String::new();
        let watching = follow(context, &info, |object| {
            let (text, is_done) = progress(&info, object, revision)?;
            if text != last {
                context.print(&text)?;
                context.flush()?;
                last = text;
            }
            Ok(is_done.then_some(()))
        });
        match flags.nanos("timeout") {
            0 => watching.await?,
            _ => match tokio::time::timeout(flags.duration("timeout"), watching).await {
                Ok(result) => result?,
                Err(_) => return message("timed out waiting for the condition"),
            },
        }
    }
    Ok(())
}

/// The templates of an object's revisions, with the causes of the changes.
async fn revisions(context: &Context, info: &Info) -> Result<BTreeMap<i64, Tree>> {
    let (version, kind) = match info.resource.kind.as_str() {
        "Deployment" => ("apps/v1", "ReplicaSet"),
        "DaemonSet" | "StatefulSet" => ("apps/v1", "ControllerRevision"),
        _ => {
            return message(format!(
                "no history viewer has been implemented for {}",
                api::field::go_quote(&info.resource.kind_name_upper())
            ));
        }
    };
    let resource = guess(version, kind);
    let query = ListQuery { selector: pod_selector(info)?, ..ListQuery::default() };
    let uid = info.object.str("metadata.uid").to_string();
    let mut all = BTreeMap::new();
    list_pages(context, &resource, &info.namespace, &query, async |page| {
        for one in split_list(&resource, page) {
            let owners = one.object.list("metadata.ownerReferences");
            if !owners.iter().any(|owner| owner.str("uid") == uid) {
                continue;
            }
            let number = if kind == "ReplicaSet" {
                annotation_number(&one.object)
            } else {
                one.object.int("revision").unwrap_or(0)
            };
            all.insert(number, one.object);
        }
        Ok(())
    })
    .await?;
    Ok(all)
}

async fn history(context: &Context) -> Result<()> {
    let wanted = context.flags.int("revision");
    if wanted < 0 {
        return message(format!("revision must be a positive integer: {wanted}"));
    }
    let printer = Printer::new(context, false)?;
    for info in found(context).await? {
        let revisions = revisions(context, &info).await?;
        if !printer.is_human() {
            let one = if wanted > 0 { revisions.get(&wanted) } else { revisions.values().last() };
            let Some(one) = one else { return message("unable to find the specified revision") };
            printer.print(context, one)?;
            continue;
        }
        let label = format!("{}/{}", info.resource.kind_name(), info.name);
        if wanted > 0 {
            let Some(one) = revisions.get(&wanted) else { return message("unable to find the specified revision") };
            let template = one.at(if one.has("data") { "data.spec.template" } else { "spec.template" });
            context.print(&format!("{label} with revision #{wanted}\n{}\n", template_text(template)))?;
            continue;
        }
        context.print(&format!("{label} \n"))?;
        let mut tabs = TabWriter::default();
        tabs.text("REVISION\tCHANGE-CAUSE\n");
        for (number, one) in &revisions {
            let cause = one.map("metadata.annotations").str(CAUSE);
            tabs.text(&format!("{number}\t{}\n", if cause.is_empty() { "<none>" } else { cause }));
        }
        let text = tabs.flush().replace("REVISION   CHANGE", "REVISION  CHANGE");
        let text: String = text
            .lines()
            .map(|line| {
                if line.starts_with("REVISION") {
                    format!("{line}\n")
                } else {
                    format!("{}\n", line.replacen("   ", "  ", 1))
                }
            })
            .collect();
        context.print(&text)?;
        context.print("\n")?;
    }
    Ok(())
}

async fn undo(context: &Context) -> Result<()> {
    let wanted = context.flags.int("to-revision");
    if wanted < 0 {
        return message(format!("revision must be a positive integer: {wanted}"));
    }
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    for info in found(context).await? {
        let revisions = revisions(context, &info).await?;
        if info.object.bool("spec.paused") {
            return message(format!(
                "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume {}' and try again",
                info.name
            ));
        }
        let target = if wanted > 0 { revisions.get(&wanted) } else { revisions.values().rev().nth(1) };
        let Some(target) = target else {
            return message(if wanted > 0 {
                format!("unable to find specified revision {wanted} in history")
            } else {
                "no rollout history found for deployment ".to_string() + &api::field::go_quote(&info.name)
            });
        };
        let (kind, body) = undo_patch(&info, target);
        let is_same = info.resource.kind == "Deployment"
            && same_template(info.object.at("spec.template"), target.at("spec.template"));
        if is_same {
            let number = annotation_number(target);
            printer.print_result(
                context,
                &info.object,
                &format!("skipped rollback (current template already matches revision {number})"),
            )?;
            continue;
        }
        if dry_run != DryRun::Client {
            patch(context, &info, kind, json::encode(&body, None), dry_run).await?;
        }
        printer.print_result(context, &info.object, &format!("rolled back{}", dry_run.suffix()))?;
    }
    Ok(())
}

fn without_hash(template: &Tree) -> Tree {
    let mut template = template.clone();
    if let Some(labels) = template.at_mut("metadata.labels") {
        labels.remove("pod-template-hash");
    }
    template
}

fn same_template(a: &Tree, b: &Tree) -> bool {
    without_hash(a) == without_hash(b)
}

/// The patch that brings an object back to a revision.
fn undo_patch(info: &Info, target: &Tree) -> (&'static str, Tree) {
    if info.resource.kind != "Deployment" {
        return (STRATEGIC, target.at("data").clone());
    }
    let mut annotations = tree! {};
    for (key, value) in target.map("metadata.annotations").iter() {
        let is_own = matches!(
            key,
            REVISION_ANNOTATION
                | "deployment.kubernetes.io/revision-history"
                | "deployment.kubernetes.io/desired-replicas"
                | "deployment.kubernetes.io/max-replicas"
                | super::common::LAST_APPLIED
        );
        if !is_own {
            annotations.set(key, value.clone());
        }
    }
    if let Some(last) = info.object.map("metadata.annotations").get(super::common::LAST_APPLIED) {
        annotations.set(super::common::LAST_APPLIED, last.clone());
    }
    let operations = api::list![
        tree! { "op" => "replace", "path" => "/spec/template", "value" => without_hash(target.at("spec.template")) },
        tree! { "op" => "replace", "path" => "/metadata/annotations", "value" => annotations },
    ];
    (JSON_PATCH, operations)
}
