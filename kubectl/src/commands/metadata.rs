//! `label` and `annotate`.

use api::{Tree, tree};

use super::common::{DRY_RUN, DryRun, MERGE, patch};
use super::record::{RECORD, record};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, switch, text};
use crate::objects::{FILES, Info, SELECTOR, Select};
use crate::print::{PRINT, Printer};

const LABEL_FLAGS: &[Flag] = &[
    switch("all", '\0', "All objects of the types, in the namespace."),
    switch("all-namespaces", 'A', "Objects of all namespaces."),
    text("field-manager", '\0', "kubectl-label", "The name of the manager of the fields that are set."),
    text("field-selector", '\0', "", "Field selector, such as --field-selector key1=value1,key2=value2."),
    switch("list", '\0', "Print the labels."),
    switch("local", '\0', "Change the objects of files, without the server."),
    switch("overwrite", '\0', "Replace existing values."),
    text("resource-version", '\0', "", "Only change the object if it has this version. Only for one object."),
];

pub(crate) static LABEL: Command = Command {
    name: "label",
    usage: "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    short: "Update the labels on a resource",
    flags: &[LABEL_FLAGS, DRY_RUN, FILES, SELECTOR, PRINT, RECORD],
    run: Some(|context| Box::pin(run(context, &LABELS))),
    group: "Settings Commands",
    ..Command::EMPTY
};

const ANNOTATE_FLAGS: &[Flag] = &[
    switch("all", '\0', "All objects of the types, in the namespace."),
    switch("all-namespaces", 'A', "Objects of all namespaces."),
    text("field-manager", '\0', "kubectl-annotate", "The name of the manager of the fields that are set."),
    text("field-selector", '\0', "", "Field selector, such as --field-selector key1=value1,key2=value2."),
    switch("list", '\0', "Print the annotations."),
    switch("local", '\0', "Change the objects of files, without the server."),
    switch("overwrite", '\0', "Replace existing values."),
    text("resource-version", '\0', "", "Only change the object if it has this version. Only for one object."),
];

pub(crate) static ANNOTATE: Command = Command {
    name: "annotate",
    usage: "[--overwrite] (-f FILENAME | TYPE NAME) KEY_1=VAL_1 ... KEY_N=VAL_N [--resource-version=version]",
    short: "Update the annotations on a resource",
    flags: &[ANNOTATE_FLAGS, DRY_RUN, FILES, SELECTOR, PRINT, RECORD],
    run: Some(|context| Box::pin(run(context, &ANNOTATIONS))),
    group: "Settings Commands",
    ..Command::EMPTY
};

/// The map of the metadata that a command changes.
struct Target {
    field: &'static str,
    noun: &'static str,
    done: &'static str,
}

const LABELS: Target = Target { field: "labels", noun: "label", done: "labeled" };
const ANNOTATIONS: Target = Target { field: "annotations", noun: "annotation", done: "annotated" };

/// What the arguments say.
#[derive(Debug, Default, PartialEq)]
struct Changes {
    set: Vec<(String, String)>,
    remove: Vec<String>,
}

/// The resources come first, then KEY=VALUE and KEY-.
fn split(args: &[String], target: &Target) -> Result<(Vec<String>, Changes)> {
    let is_change = |arg: &String| !arg.starts_with('=') && (arg.contains('=') || arg.ends_with('-'));
    let first = args.iter().position(is_change).unwrap_or(args.len());
    let mut changes = Changes::default();
    for arg in &args[first..] {
        if let Some((key, value)) = arg.split_once('=').filter(|(key, _)| !key.is_empty()) {
            check(value, target, arg)?;
            changes.set.push((key.to_string(), value.to_string()));
        } else if let Some(key) = arg.strip_suffix('-').filter(|key| !key.is_empty()) {
            changes.remove.push(key.to_string());
        } else {
            return message(if is_change(arg) {
                format!("invalid {} spec: {arg}", target.noun)
            } else {
                format!("all resources must be specified before {} changes: {arg}", target.noun)
            });
        }
    }
    let both: Vec<&str> = changes
        .set
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| changes.remove.iter().any(|gone| gone == key))
        .collect();
    if !both.is_empty() {
        return message(match target.noun {
            "label" => "can not both modify and remove a label in the same command".to_string(),
            _ => format!(
                "can not both modify and remove the following annotation(s) in the same command: {}",
                both.join(", ")
            ),
        });
    }
    Ok((args[..first].to_vec(), changes))
}

fn check(value: &str, target: &Target, arg: &str) -> Result<()> {
    if target.noun == "label" {
        let problems = api::validation::label_value(value);
        if !problems.is_empty() {
            return message(format!("invalid label value: {}: {}", api::field::go_quote(arg), problems.join(";")));
        }
    }
    Ok(())
}

async fn run(context: &Context, target: &Target) -> Result<()> {
    let flags = &context.flags;
    let (resources, changes) = split(&context.args, target)?;
    let select = Select { args: resources, ..Select::of(context) };
    if select.args.is_empty() && select.files.is_empty() {
        return message("one or more resources must be specified as <resource> <name> or <resource>/<name>");
    }
    for name in ["selector", "field-selector"] {
        if flags.bool("all") && !flags.str(name).is_empty() {
            return message(format!("cannot set --all and --{name} at the same time"));
        }
    }
    let is_list = flags.bool("list");
    if changes == Changes::default() && !is_list {
        return message(format!("at least one {} update is required", target.noun));
    }
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    let select = Select { allows_types: is_list, ..select };
    let found = select.find(context).await?;
    if !flags.str("resource-version").is_empty() && found.infos.len() > 1 {
        return message("--resource-version may only be used with a single resource");
    }
    let mut errors = found.errors;
    for info in &found.infos {
        if is_list {
            list(context, info, target, found.infos.len() > 1)?;
            if changes == Changes::default() {
                continue;
            }
        }
        match change(context, info, target, &changes, dry_run).await {
            Ok((object, done)) if !is_list => {
                printer.print_result(context, &object, &format!("{done}{}", dry_run.suffix()))?
            }
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
    }
    Error::all(errors)
}

fn list(context: &Context, info: &Info, target: &Target, is_many: bool) -> Result<()> {
    let indent = if is_many { " " } else { "" };
    if is_many {
        context.print(&format!("Listing {}s for {}/{}:\n", target.noun, info.resource.kind, info.name))?;
    }
    for (key, value) in info.object.at("metadata").map(target.field).iter() {
        context.print(&format!("{indent}{key}={}\n", value.as_str().unwrap_or_default()))?;
    }
    Ok(())
}

async fn change(
    context: &Context,
    info: &Info,
    target: &Target,
    changes: &Changes,
    dry_run: DryRun,
) -> Result<(Tree, &'static str)> {
    let old = info.object.at("metadata").map(target.field);
    if !context.flags.bool("overwrite") {
        for (key, value) in &changes.set {
            if let Some(found) = old.get(key).and_then(Tree::as_str).filter(|found| *found != value) {
                return message(match target.noun {
                    "label" => format!("'{key}' already has a value ({found}), and --overwrite is false"),
                    _ => format!(
                        "--overwrite is false but found the following declared annotation(s): '{key}' already has a value ({found})"
                    ),
                });
            }
        }
    }
    let mut patch_map = tree! {};
    let mut object = info.object.clone();
    let (mut has_set, mut has_removed) = (false, false);
    for (key, value) in &changes.set {
        if old.str(key) != value || !old.contains(key) {
            patch_map.set(key, value);
            has_set = true;
        }
        object.child("metadata").child(target.field).set(key, value);
    }
    for key in &changes.remove {
        if old.contains(key) {
            patch_map.set(key, Tree::Null);
            has_removed = true;
        } else if target.noun == "label" {
            context.print(&format!("label {} not found.\n", api::field::go_quote(key)))?;
        }
        object.child("metadata").child(target.field).remove(key);
    }
    let done = match (target.noun, has_set, has_removed) {
        ("annotation", ..) => target.done,
        (_, false, false) => "not labeled",
        (_, false, true) => "unlabeled",
        _ => target.done,
    };
    let revision = context.flags.str("resource-version");
    if context.flags.bool("local") || dry_run == DryRun::Client {
        return Ok((object, done));
    }
    if !has_set && !has_removed && revision.is_empty() {
        let object = patch(context, info, MERGE, b"{}".to_vec(), dry_run).await?;
        return Ok((object, done));
    }
    let mut metadata = tree! { target.field => patch_map };
    if !revision.is_empty() {
        metadata.set("resourceVersion", revision);
    }
    let mut body = tree! { "metadata" => metadata };
    record(context, &mut body);
    let body = api::json::encode(&body, None);
    let object = patch(context, info, MERGE, body, dry_run).await?;
    Ok((object, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_resources_and_changes() {
        let args = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let (resources, changes) = split(&args("pods a x=1 y-"), &LABELS).expect("valid");
        assert_eq!(resources, ["pods", "a"]);
        assert_eq!(changes, Changes { set: vec![("x".into(), "1".into())], remove: vec!["y".into()] });
        assert!(split(&args("pods a x=1 b"), &LABELS).is_err());
        assert!(split(&args("pods a x=-"), &LABELS).is_err());
    }
}
