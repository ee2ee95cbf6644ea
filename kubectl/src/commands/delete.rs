//! `delete`.

use std::io::Write;

use http::Method;

use super::common::{DRY_RUN, DryRun, delete_options};
use super::wait::{Deletion, wait_for_deletion};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, switch_on, text, typed};
use crate::objects::{FILES, Info, SELECTOR, Select};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    switch("all", '\0', "Delete all objects of the types, in the namespace."),
    switch("all-namespaces", 'A', "Delete in all namespaces."),
    text(
        "cascade",
        '\0',
        "background",
        "Must be \"background\", \"orphan\", or \"foreground\": what happens to dependent objects.",
    )
    .bare("background"),
    text("field-selector", '\0', "", "Field selector, such as --field-selector key1=value1,key2=value2."),
    switch("force", '\0', "Delete immediately, without waiting for confirmation that the object is gone."),
    typed(
        "grace-period",
        '\0',
        Kind::Int,
        "-1",
        "Seconds for a graceful end; negative for the object's own, 1 for immediate, 0 only with --force.",
    ),
    switch("ignore-not-found", '\0', "Objects that do not exist are no error; on with --all."),
    switch("interactive", 'i', "Ask before deleting."),
    switch("now", '\0', "End immediately, as with --grace-period=1."),
    text("output", 'o', "", "Output mode. Use \"-o name\" for shorter output (resource/name)."),
    text("raw", '\0', "", "A path of the server to send the deletion to."),
    typed("timeout", '\0', Kind::Duration, "0s", "How long to wait; zero means a time by the size of the object."),
    switch_on("wait", '\0', "Wait until the objects are gone."),
];

pub(crate) static DELETE: Command = Command {
    name: "delete",
    usage: "([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)])",
    short: "Delete resources by file names, stdin, resources and names, or by resources and label selector",
    flags: &[FLAGS, DRY_RUN, FILES, SELECTOR],
    run: Some(|context| Box::pin(run(context))),
    group: "Basic Commands (Intermediate)",
    ..Command::EMPTY
};

/// The deletion that the flags describe.
pub(crate) struct Plan {
    pub(crate) dry_run: DryRun,
    pub(crate) propagation: &'static str,
    pub(crate) grace_period: Option<i64>,
    pub(crate) is_forced: bool,
    pub(crate) waits: bool,
}

/// `--cascade`.
pub(crate) fn propagation(context: &Context) -> Result<&'static str> {
    match context.flags.str("cascade") {
        "background" => Ok("Background"),
        "foreground" => Ok("Foreground"),
        "orphan" => Ok("Orphan"),
        "true" => {
            context.note(
                "warning: --cascade=true is deprecated (boolean value) and can be replaced with --cascade=background.",
            );
            Ok("Background")
        }
        "false" => {
            context.note(
                "warning: --cascade=false is deprecated (boolean value) and can be replaced with --cascade=orphan.",
            );
            Ok("Orphan")
        }
        other => {
            message(format!("invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""))
        }
    }
}

fn plan(context: &Context) -> Result<Plan> {
    let flags = &context.flags;
    let dry_run = DryRun::of(context)?;
    let (mut grace, force) = (flags.int("grace-period"), flags.bool("force"));
    if flags.bool("now") {
        if grace != -1 {
            return message("--now and --grace-period cannot be specified together");
        }
        grace = 1;
    }
    if grace == 0 && !force {
        // A grace period of zero without --force waits, so that the object is surely gone.
        context.note("warning: --grace-period=0 without --force waits one second");
        grace = 1;
    }
    if force && grace < 0 {
        grace = 0;
    }
    if force && grace > 0 {
        return message("--force and --grace-period greater than 0 cannot be specified together");
    }
    if force && grace == 0 {
        context.warn(
            "Immediate deletion does not wait for confirmation that the running resource has been terminated. The \
             resource may continue to run on the cluster indefinitely.",
        );
    }
    Ok(Plan {
        dry_run,
        propagation: propagation(context)?,
        grace_period: (grace >= 0).then_some(grace),
        is_forced: grace == 0,
        waits: flags.bool("wait") && dry_run == DryRun::None,
    })
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !flags.str("raw").is_empty() {
        return raw(context).await;
    }
    if !matches!(flags.str("output"), "" | "name") {
        return message(format!("unexpected -o output mode: {}. We only support '-o name'", flags.str("output")));
    }
    let mut select = Select { is_latest: false, ..Select::of(context) };
    let is_selecting = select.selector.is_some() || !select.field_selector.is_empty();
    if select.is_all && select.selector.is_some() {
        return message("setting 'all' parameter but found a non empty selector. ");
    }
    select.is_by_name = true;
    let plan = plan(context)?;
    let found = select.find(context).await?;
    let ignores =
        flags.bool("ignore-not-found") || ((select.is_all || is_selecting) && !flags.changed("ignore-not-found"));
    let mut infos = found.infos;
    if flags.bool("interactive") {
        infos = existing(context, infos).await?;
        if infos.is_empty() {
            return context.print("No resources found\n");
        }
        if !confirm(context, &infos)? {
            return context.print("deletion is cancelled\n");
        }
    }
    let is_empty = infos.is_empty();
    let (deleted, errors) = delete_all(context, &plan, infos, ignores, found.errors).await?;
    if is_empty && errors.is_empty() {
        context.print("No resources found\n")?;
    }
    Error::all(errors)?;
    if plan.waits { wait(context, deleted).await } else { Ok(()) }
}

async fn delete_all(
    context: &Context,
    plan: &Plan,
    infos: Vec<Info>,
    ignores_missing: bool,
    mut errors: Vec<Error>,
) -> Result<(Vec<Deletion>, Vec<Error>)> {
    let mut deleted = Vec::new();
    let mut warns = context.flags.changed("namespace") || context.flags.bool("all-namespaces");
    for info in infos {
        if warns && !info.resource.is_namespaced {
            context.warn("deleting cluster-scoped resources, not scoped to the provided namespace");
            warns = false;
        }
        if plan.dry_run == DryRun::Client {
            print(context, plan, &info)?;
            deleted.push(Deletion { info, uid: String::new() });
            continue;
        }
        match delete(context, plan, &info).await {
            Ok(uid) => {
                print(context, plan, &info)?;
                deleted.push(Deletion { info, uid });
            }
            // It is waited for like the others, as upstream does.
            Err(error) if ignores_missing && error.is_not_found() => {
                deleted.push(Deletion { info, uid: String::new() });
            }
            Err(error) if info.source.is_empty() => errors.push(error),
            Err(error) => {
                errors.push(error.with_context(&format!("error when deleting {}", api::field::go_quote(&info.source))));
            }
        }
    }
    Ok((deleted, errors))
}

/// Deletes an object; returns its UID.
pub(crate) async fn delete(context: &Context, plan: &Plan, info: &Info) -> Result<String> {
    let options = delete_options(plan.propagation, plan.grace_period, plan.dry_run);
    let request = Request::new(Method::DELETE, info.path()).json(&options);
    let response = context.client().await?.tree(&request).await?;
    let uid = if response.str("kind") == "Status" { response.str("details.uid") } else { response.str("metadata.uid") };
    Ok(uid.to_string())
}

fn print(context: &Context, plan: &Plan, info: &Info) -> Result<()> {
    let kind = info.resource.kind_name();
    if context.flags.str("output") == "name" {
        return context.print(&format!("{kind}/{}\n", info.name));
    }
    let forced = if plan.is_forced { "force " } else { "" };
    let place = if info.resource.is_namespaced { format!(" from {} namespace", info.namespace) } else { String::new() };
    context.print(&format!("{kind} \"{}\" {forced}deleted{place}{}\n", info.name, plan.dry_run.suffix()))
}

async fn existing(context: &Context, infos: Vec<Info>) -> Result<Vec<Info>> {
    let mut all = Vec::new();
    for info in infos {
        match context.client().await?.tree(&Request::get(info.path())).await {
            Ok(_) => all.push(info),
            Err(error) if error.is_not_found() && context.flags.bool("ignore-not-found") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn confirm(context: &Context, infos: &[Info]) -> Result<bool> {
    context.print(&format!("You are about to delete the following {} resource(s):\n", infos.len()))?;
    infos.iter().try_for_each(|info| context.print(&format!("{}\n", info.label())))?;
    context.print("Do you want to continue? (y/N): ")?;
    context.flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    std::io::stderr().flush()?;
    Ok(line.trim().eq_ignore_ascii_case("y"))
}

async fn wait(context: &Context, deleted: Vec<Deletion>) -> Result<()> {
    context.flush()?;
    match wait_for_deletion(context, &deleted, context.flags.duration("timeout")).await {
        // Who may delete, but not watch, is done here.
        Err(error) if error.status().is_some_and(|status| matches!(status.code, 403 | 405)) => Ok(()),
        other => other,
    }
}

async fn raw(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !context.args.is_empty() {
        return message("arguments may not be passed when --raw is specified");
    }
    let body = match flags.list("filename").as_slice() {
        [] => Vec::new(),
        [file] if file == "-" => context.read_stdin()?,
        [file] => std::fs::read(file)?,
        _ => return message("--raw can only use a single local file or stdin"),
    };
    super::get::raw_send(context, Method::DELETE, flags.str("raw"), body).await
}
