//! `edit`: objects in the user's editor, until they are stored, unchanged, or empty.

use std::io::Write;
use std::process::Stdio;

use api::{Tree, tree, yaml};

use super::common::{VALIDATE, create as create_object, patch, patch_kind, with_last_applied};
use super::diff3;
use super::record::{RECORD, record};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, switch, text};
use crate::objects::{FILES, Info, Select, documents, parse_document};
use crate::print::{PRINT, Printer, list_of};

const FLAGS: &[Flag] = &[
    text("field-manager", '\0', "kubectl-edit", "The name of the manager of the fields that are set."),
    switch("output-patch", '\0', "Print the patch of each change."),
    switch("save-config", '\0', "Keep the configuration in an annotation, for kubectl apply."),
    text("subresource", '\0', "", "The subresource to edit."),
    switch("windows-line-endings", '\0', "Use carriage returns in the file."),
];

pub(crate) static EDIT: Command = Command {
    name: "edit",
    usage: "(RESOURCE/NAME | -f FILENAME)",
    short: "Edit a resource on the server",
    flags: &[FLAGS, VALIDATE, FILES, PRINT, RECORD],
    run: Some(|context| Box::pin(run(context))),
    group: "Basic Commands (Intermediate)",
    ..Command::EMPTY
};

/// How often an editor is opened for one command.
const MAX_ROUNDS: usize = 100;
const HEADER: &str = "# Please edit the object below. Lines beginning with a '#' will be ignored,\n\
                      # and an empty file will abort the edit. If an error occurs while saving this file will be\n\
                      # reopened with the relevant failures.\n#\n";

async fn run(context: &Context) -> Result<()> {
    let select = Select { allows_types: true, ..Select::of(context) };
    if context.args.is_empty() && select.files.is_empty() {
        return context.usage_error("must specify the type of resource to edit");
    }
    let output = context.flags.str("output");
    if !matches!(output, "" | "json" | "yaml" | "kyaml") {
        return message(format!(
            "unable to match a printer suitable for the output format \"{output}\", allowed formats are: json,yaml"
        ));
    }
    let infos = select.find(context).await?.infos()?;
    if infos.is_empty() {
        return message("edit cancelled, no objects found");
    }
    edit(context, infos, false).await
}

/// Edits the last applied configurations, and stores them as annotations of the live objects.
pub(crate) async fn edit_annotations(context: &Context, pairs: Vec<(Tree, Info)>) -> Result<()> {
    let (live, infos): (Vec<Tree>, Vec<Info>) = pairs.into_iter().unzip();
    let printer = Printer::new(context, false)?;
    let file = temporary_file(context)?;
    let original = text_of(context, &infos);
    write_private(context, &file, &[HEADER.as_bytes(), original.as_slice()].concat())?;
    let opened = open_editor(&file).await;
    let text = std::fs::read(&file).map(|text| without_comments(&text));
    let _ = std::fs::remove_file(&file);
    opened?;
    let text = text?;
    if text.trim_ascii().is_empty() || text == without_comments(&original) {
        context.note("Edit cancelled, no changes made.");
        return Ok(());
    }
    for (line, part) in documents(&text) {
        let tree = parse_document(part, line)
            .map_err(|error| Error::new(format!("The edited file had a syntax error: {error}")))?;
        for mut object in crate::objects::flatten(tree) {
            record(context, &mut object);
            let name = object.str("metadata.name");
            let Some(at) = infos.iter().position(|info| info.name == name) else {
                return message("At least one of apiVersion, kind and name was changed");
            };
            let annotated = with_last_applied(&object);
            let body = tree! { "metadata" => tree! { "annotations" => annotated.at("metadata.annotations").clone() } };
            let target = Info { object: live[at].clone(), ..infos[at].clone() };
            let body = api::json::encode(&body, None);
            let stored = patch(context, &target, super::common::MERGE, body, super::common::DryRun::None).await?;
            printer.print_result(context, &stored, "edited")?;
        }
    }
    Ok(())
}

/// `create --edit`.
pub(crate) async fn create(context: &Context, select: &Select) -> Result<()> {
    let infos = select.find(context).await?.infos()?;
    // Each object has a file of its own, as upstream's.
    for info in infos {
        edit(context, vec![info], true).await?;
    }
    Ok(())
}

fn text_of(context: &Context, infos: &[Info]) -> Vec<u8> {
    let shown = |info: &Info| {
        let mut object = info.object.clone();
        if let Some(metadata) = object.get_mut("metadata").filter(|_| !context.flags.bool("show-managed-fields")) {
            metadata.remove("managedFields");
        }
        object
    };
    let object = match infos {
        [one] => shown(one),
        many => list_of(many.iter().map(shown).collect()),
    };
    if context.flags.str("output") == "json" { crate::print::pretty(&object) } else { yaml::encode(&object) }
}

async fn edit(context: &Context, infos: Vec<Info>, is_create: bool) -> Result<()> {
    let original = text_of(context, &infos);
    let (mut text, mut failure) = (original.clone(), String::new());
    let file = temporary_file(context)?;
    for _ in 0..MAX_ROUNDS {
        let before = [HEADER.as_bytes(), failure.as_bytes(), text.as_slice()].concat();
        write_private(context, &file, &before)?;
        open_editor(&file).await?;
        let after = std::fs::read(&file)?;
        let stripped = without_comments(&after);
        if stripped.trim_ascii().is_empty() {
            let _ = std::fs::remove_file(&file);
            context.note("Edit cancelled, saved file was empty.");
            return Ok(());
        }
        let is_unchanged = stripped == without_comments(&original) || stripped == without_comments(&before);
        if is_unchanged {
            if !failure.is_empty() {
                context.note(&format!("A copy of your changes has been stored to {:?}", file.display().to_string()));
                return message("Edit cancelled, no valid changes were saved.");
            }
            let _ = std::fs::remove_file(&file);
            context.note("Edit cancelled, no changes made.");
            return Ok(());
        }
        text = stripped;
        match store(context, &infos, &text, is_create).await {
            Ok(()) => {
                let _ = std::fs::remove_file(&file);
                return Ok(());
            }
            Err(error @ (Error::Connect { .. } | Error::Io(_))) => return Err(error),
            Err(error) => {
                let reason = error.report().0;
                context.note(reason.trim_end());
                failure = reason.lines().map(|line| format!("# {line}\n")).collect::<String>() + "#\n";
            }
        }
    }
    message("Edit cancelled, too many attempts.")
}

async fn store(context: &Context, infos: &[Info], text: &[u8], is_create: bool) -> Result<()> {
    let mut edited = Vec::new();
    for (line, part) in documents(text) {
        let tree = parse_document(part, line)
            .map_err(|error| Error::new(format!("The edited file had a syntax error: {error}")))?;
        edited.extend(crate::objects::flatten(tree));
    }
    let printer = Printer::new(context, false)?;
    for mut object in edited {
        record(context, &mut object);
        let name = object.str("metadata.name");
        let is_same = |info: &&Info| {
            info.name == name
                && info.object.str("kind") == object.str("kind")
                && info.object.str("apiVersion") == object.str("apiVersion")
        };
        let Some(info) = infos.iter().find(is_same) else {
            return message("At least one of apiVersion, kind and name was changed");
        };
        if is_create {
            let created =
                create_object(context, &info.resource, &info.namespace, &object, super::common::DryRun::None).await?;
            printer.print_result(context, &created, "created")?;
            continue;
        }
        let object = if context.flags.bool("save-config") { with_last_applied(&object) } else { object };
        let body = diff3::two_way(&info.object, &object, &info.resource);
        if body.as_map().is_none_or(|map| map.is_empty()) {
            printer.print_result(context, &info.object, "skipped")?;
            continue;
        }
        let body = api::json::encode(&body, None);
        if context.flags.bool("output-patch") {
            context.print(&format!("Patch: {}\n", String::from_utf8_lossy(&body)))?;
        }
        let mut target = info.clone();
        if !context.flags.str("subresource").is_empty() {
            target.name = format!("{}/{}", info.name, context.flags.str("subresource"));
        }
        let stored = patch(context, &target, patch_kind(&info.resource), body, super::common::DryRun::None).await?;
        printer.print_result(context, &stored, "edited")?;
    }
    Ok(())
}

fn without_comments(text: &[u8]) -> Vec<u8> {
    let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#"));
    lines.flatten().copied().filter(|byte| *byte != b'\r').collect()
}

fn temporary_file(context: &Context) -> Result<std::path::PathBuf> {
    let extension = if context.flags.str("output") == "json" { "json" } else { "yaml" };
    let random = client::Random::fresh_seed();
    Ok(std::env::temp_dir().join(format!("kubectl-edit-{random:x}.{extension}")))
}

/// Other users of the machine must not read the file, nor have made it.
fn write_private(context: &Context, path: &std::path::Path, bytes: &[u8]) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    if context.flags.bool("windows-line-endings") {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let with_returns = lines.flat_map(|line| match line.strip_suffix(b"\n") {
            Some(line) => [line, b"\r\n".as_slice()],
            None => [line, b"".as_slice()],
        });
        return Ok(file.write_all(&with_returns.collect::<Vec<_>>().concat())?);
    }
    Ok(file.write_all(bytes)?)
}

/// Runs the editor of KUBE_EDITOR or EDITOR on a file.
pub(crate) async fn open_editor(path: &std::path::Path) -> Result<()> {
    let editor =
        ["KUBE_EDITOR", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    let editor = editor.unwrap_or_else(|| "vi".to_string());
    let mut command = tokio::process::Command::new("/bin/sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).stdin(Stdio::inherit());
    let status = command.status().await;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => message(format!("there was a problem with the editor {editor:?} ({status})")),
        Err(error) => message(format!("unable to launch the editor {editor:?}: {error}")),
    }
}
