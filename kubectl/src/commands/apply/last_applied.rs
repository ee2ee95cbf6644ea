//! `apply view-last-applied`, `set-last-applied`, `edit-last-applied`.

use api::{Tree, json, tree, yaml};

use crate::command::Command;
use crate::commands::common::{DRY_RUN, DryRun, LAST_APPLIED, MERGE, VALIDATE, patch, with_last_applied};
use crate::commands::edit;
use crate::commands::record::RECORD;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, switch, text};
use crate::objects::{FILES, SELECTOR, Select, get_object};
use crate::print::{PRINT, Printer};

const VIEW_FLAGS: &[Flag] = &[
    switch("all", '\0', "All objects of the types, in the namespace."),
    text("output", 'o', "yaml", "Output format. Must be one of (yaml, json)."),
];

pub(super) static VIEW: Command = Command {
    name: "view-last-applied",
    usage: "(TYPE [NAME | -l label] | TYPE/NAME | -f FILENAME)",
    short: "View the latest last-applied-configuration annotations of a resource/object",
    flags: &[VIEW_FLAGS, FILES, SELECTOR],
    run: Some(|context| Box::pin(view(context))),
    ..Command::EMPTY
};

const SET_FLAGS: &[Flag] = &[
    switch("create-annotation", '\0', "Create the annotation if the object has none."),
    text("field-manager", '\0', "", "The name of the manager of the fields that are set.").hidden(),
];

pub(super) static SET: Command = Command {
    name: "set-last-applied",
    usage: "-f FILENAME",
    short: "Set the last-applied-configuration annotation on a live object to match the contents of a file",
    flags: &[SET_FLAGS, DRY_RUN, FILES, PRINT],
    run: Some(|context| Box::pin(set(context))),
    ..Command::EMPTY
};

const EDIT_FLAGS: &[Flag] = &[
    text("field-manager", '\0', "kubectl-client-side-apply", "The name of the manager of the fields that are set."),
    switch("windows-line-endings", '\0', "Use carriage returns in the file."),
];

pub(super) static EDIT: Command = Command {
    name: "edit-last-applied",
    usage: "(RESOURCE/NAME | -f FILENAME)",
    short: "Edit latest last-applied-configuration annotations of a resource/object",
    flags: &[EDIT_FLAGS, FILES, VALIDATE, PRINT, RECORD],
    run: Some(|context| Box::pin(edit_annotation(context))),
    ..Command::EMPTY
};

fn last_applied(object: &Tree) -> Option<Result<Tree>> {
    let text = object.at("metadata.annotations").get(LAST_APPLIED)?.as_str()?;
    Some(json::decode(text.as_bytes()).map_err(|error| Error::new(format!("{LAST_APPLIED}: {error}"))))
}

async fn view(context: &Context) -> Result<()> {
    let output = context.flags.str("output");
    if !matches!(output, "yaml" | "json" | "") {
        return context
            .usage_error(&format!("Unexpected -o output mode: {output}, the flag 'output' must be one of yaml|json"));
    }
    let select = Select { allows_types: true, ..Select::of(context) };
    let infos = select.find(context).await?.infos()?;
    for info in &infos {
        // Upstream prints nothing here, and succeeds.
        let Some(last) = last_applied(&info.object) else { continue };
        let last = last?;
        if output == "json" {
            context.write(&json::encode_pretty(&last, None))?;
        } else {
            context.write(&yaml::encode(&last))?;
        }
    }
    Ok(())
}

async fn set(context: &Context) -> Result<()> {
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    let select = Select { is_latest: false, ..Select::of(context) };
    if select.files.is_empty() {
        return message("must specify one of -f and -k");
    }
    for info in select.find(context).await?.infos()? {
        let current = get_object(context, &info.resource, &info.namespace, &info.name, "").await?;
        let has_annotation = last_applied(&current).is_some();
        if !has_annotation && !context.flags.bool("create-annotation") {
            return message(format!(
                "no last-applied-configuration annotation found on resource: {}, to create the annotation, run the command \
                 with --create-annotation",
                info.name
            ));
        }
        let annotated = with_last_applied(&info.object);
        let value = annotated.at("metadata.annotations").get(LAST_APPLIED).cloned().unwrap_or_default();
        let body = tree! { "metadata" => tree! { "annotations" => tree! { LAST_APPLIED => value } } };
        let object = match dry_run {
            DryRun::Client => current,
            _ => patch(context, &info, MERGE, json::encode(&body, None), dry_run).await?,
        };
        printer.print_result(context, &object, &format!("configured{}", dry_run.suffix()))?;
    }
    Ok(())
}

async fn edit_annotation(context: &Context) -> Result<()> {
    let select = Select { allows_types: true, ..Select::of(context) };
    let mut infos = Vec::new();
    for mut info in select.find(context).await?.infos()? {
        let Some(last) = last_applied(&info.object) else {
            return message(
                "no last-applied-configuration annotation found on resources, to create the annotation, use command `kubectl \
                 apply set-last-applied --create-annotation`",
            );
        };
        let live = std::mem::replace(&mut info.object, last?);
        infos.push((live, info));
    }
    edit::edit_annotations(context, infos).await
}
