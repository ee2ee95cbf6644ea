//! `apply`: client-side by a three-way patch against the last applied configuration, or server-side.

mod applyset;
mod client_side;
mod last_applied;
mod prune;
mod server_side;

pub(crate) use client_side::compute;
pub(crate) use prune::{find_pruned, prune_types};

use std::collections::BTreeSet;

use api::Tree;

use self::applyset::ApplySet;
use super::common::{DRY_RUN, DryRun, VALIDATE, field_validation};
use crate::command::Command;
use crate::commands::record::{RECORD, record};
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, switch_on, text, typed};
use crate::objects::{FILES, Info, SELECTOR, Select};
use crate::print::{PRINT, Printer, list_of};

const FLAGS: &[Flag] = &[
    switch("all", '\0', "All objects in the namespace are subject to --prune."),
    text("applyset", '\0', "", "The set that the objects belong to."),
    text(
        "cascade",
        '\0',
        "background",
        "Must be \"background\", \"orphan\", or \"foreground\": what happens to dependents of pruned objects.",
    )
    .bare("background"),
    text("field-manager", '\0', "kubectl-client-side-apply", "The name of the manager of the fields that are set."),
    switch("force", '\0', "Delete and create again what cannot be patched."),
    switch("force-conflicts", '\0', "Take fields over from other managers, with --server-side."),
    typed("grace-period", '\0', Kind::Int, "-1", "Seconds for a graceful end of deleted objects."),
    switch_on("openapi-patch", '\0', "Compute patches with the schemas of the server."),
    switch_on(
        "overwrite",
        '\0',
        "Resolve conflicts between the modified and the live configuration with the modified one.",
    ),
    switch("prune", '\0', "Delete objects of the set that the files no longer have. Alpha."),
    typed(
        "prune-allowlist",
        '\0',
        Kind::Array,
        "",
        "Types to prune instead of the default ones, as <group/version/kind>.",
    ),
    switch("server-side", '\0', "Let the server apply the configuration."),
    text("subresource", '\0', "", "The subresource to apply, with --server-side."),
    typed("timeout", '\0', Kind::Duration, "0s", "How long to wait for deletions."),
    switch("wait", '\0', "Wait until deleted objects are gone."),
];

pub(crate) static APPLY: Command = Command {
    name: "apply",
    usage: "(-f FILENAME | -k DIRECTORY)",
    short: "Apply a configuration to a resource by file name or stdin",
    flags: &[FLAGS, DRY_RUN, VALIDATE, FILES, SELECTOR, PRINT, RECORD],
    children: &[&last_applied::EDIT, &last_applied::SET, &last_applied::VIEW],
    run: Some(|context| Box::pin(run(context))),
    group: "Advanced Commands",
    ..Command::EMPTY
};

/// What the objects of one command share.
struct Plan {
    dry_run: DryRun,
    printer: Printer,
    is_server_side: bool,
    manager: String,
    validation: &'static str,
}

/// What was done with an object.
struct Applied {
    object: Tree,
    operation: &'static str,
}

fn check_flags(context: &Context, dry_run: DryRun) -> Result<()> {
    let flags = &context.flags;
    let server_side = flags.bool("server-side");
    if flags.bool("force-conflicts") && !server_side {
        return message("--force-conflicts only works with --server-side");
    }
    if dry_run == DryRun::Client && server_side {
        return message("--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)");
    }
    if flags.bool("force") && server_side {
        return message("--force cannot be used with --server-side");
    }
    if dry_run == DryRun::Server && flags.bool("force") {
        return message("--dry-run=server cannot be used with --force");
    }
    if flags.bool("all") && !flags.str("selector").is_empty() {
        return message("cannot set --all and --selector at the same time");
    }
    if !flags.str("subresource").is_empty() && !server_side {
        return message("--subresource can only be specified for --server-side");
    }
    Ok(())
}

async fn check_prune(context: &Context, set: Option<&ApplySet>) -> Result<()> {
    let flags = &context.flags;
    if let Some(set) = set {
        if !flags.bool("prune") {
            return message("--applyset requires --prune");
        }
        set.check(context).await?;
    }
    if !flags.bool("prune") {
        return Ok(());
    }
    if flags.bool("force") {
        return message("--force cannot be used with --prune");
    }
    if set.is_some() {
        let given = [
            ("all", flags.bool("all")),
            ("selector", !flags.str("selector").is_empty()),
            ("prune-allowlist", flags.changed("prune-allowlist")),
        ];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => message(format!("--{name} is incompatible with --applyset")),
            None => Ok(()),
        };
    }
    if !flags.bool("all") && flags.str("selector").is_empty() {
        return message(
            "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all \
             flag. If you did not mean to prune all resources, specify a label selector",
        );
    }
    if flags.bool("server-side") {
        return message("--prune is in alpha and doesn't currently work on objects created by server-side apply");
    }
    Ok(())
}

/// The set of `--applyset`, if the flags allow it.
async fn apply_set(context: &Context) -> Result<Option<ApplySet>> {
    let text = context.flags.str("applyset");
    let set = if text.is_empty() { None } else { Some(ApplySet::parse(context, text).await?) };
    check_prune(context, set.as_ref()).await?;
    Ok(set)
}

async fn run(context: &Context) -> Result<()> {
    let select = Select { is_latest: false, is_all: false, ..Select::of(context) };
    if !context.args.is_empty() {
        return context.usage_error(&format!("Unexpected args: [{}]", context.args.join(" ")));
    }
    if select.files.is_empty() {
        return message("must specify one of -f and -k");
    }
    let dry_run = DryRun::of(context)?;
    check_flags(context, dry_run)?;
    let is_server_side = context.flags.bool("server-side");
    let manager = if is_server_side && !context.flags.changed("field-manager") {
        "kubectl".to_string()
    } else {
        context.flags.str("field-manager").to_string()
    };
    let plan = Plan {
        dry_run,
        printer: Printer::new(context, false)?,
        is_server_side,
        manager,
        validation: field_validation(context)?,
    };
    let mut set = apply_set(context).await?;
    let mut found = select.find(context).await?;
    let mut errors = found.errors;
    if let Some(set) = &mut set {
        set.add_label(&mut found.infos)?;
        set.begin(context, &plan, &found.infos).await?;
    }
    let mut visited = BTreeSet::new();
    let mut namespaces = BTreeSet::new();
    let mut objects = Vec::new();
    if context.flags.changed("namespace") {
        namespaces.insert(context.namespace()?.0);
    }
    for info in &mut found.infos {
        record(context, &mut info.object);
        if info.resource.is_namespaced {
            namespaces.insert(info.namespace.clone());
        }
        match apply(context, &plan, info).await {
            Ok(applied) => {
                visited.insert(applied.object.str("metadata.uid").to_string());
                objects.push(print(context, &plan, applied)?);
            }
            Err(error) => errors.push(error),
        }
        if info.resource.kind == "CustomResourceDefinition" {
            context.forget_mapper();
        }
    }
    Error::all(errors)?;
    print_objects(context, &plan, objects)?;
    match set {
        Some(set) => set.prune(context, &plan, &visited).await,
        None if context.flags.bool("prune") => prune::prune(context, &plan, &visited, &namespaces).await,
        None => Ok(()),
    }
}

async fn apply(context: &Context, plan: &Plan, info: &Info) -> Result<Applied> {
    if info.name.is_empty() {
        let generated = info.object.str("metadata.generateName");
        if !generated.is_empty() {
            return message(format!("from {generated}: cannot use generate name with apply"));
        }
    }
    if plan.is_server_side {
        server_side::apply(context, plan, info).await
    } else {
        client_side::apply(context, plan, info).await
    }
}

/// Whether whole objects are printed, at the end.
fn prints_objects(plan: &Plan) -> bool {
    !plan.printer.is_human() && !matches!(plan.printer.format, crate::print::Format::Name)
}

fn print(context: &Context, plan: &Plan, applied: Applied) -> Result<Tree> {
    if !prints_objects(plan) {
        let operation = format!("{}{}", applied.operation, plan.dry_run.suffix());
        plan.printer.print_result(context, &applied.object, &operation)?;
    }
    Ok(applied.object)
}

fn print_objects(context: &Context, plan: &Plan, mut objects: Vec<Tree>) -> Result<()> {
    if !prints_objects(plan) || objects.is_empty() {
        return Ok(());
    }
    let object = if objects.len() == 1 { objects.remove(0) } else { list_of(objects) };
    plan.printer.print(context, &object)
}

fn warn_if_deleting(context: &Context, object: &Tree) {
    if object.at("metadata").has("deletionTimestamp") {
        let name = object.str("metadata.name");
        context.note(&format!("Warning: Detected changes to resource {name} which is currently being deleted."));
    }
}
