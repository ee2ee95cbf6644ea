//! `replace`.

use http::Method;

use super::common::{
    DRY_RUN, DryRun, LAST_APPLIED, VALIDATE, create, delete_options, field_validation, update, with_last_applied,
};
use super::wait::{Deletion, wait_for_deletion};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{FILES, Info, Select, get_object};
use crate::print::{PRINT, Printer};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    text("cascade", '\0', "background", "Must be \"background\", \"orphan\", or \"foreground\", with --force.")
        .bare("background"),
    text("field-manager", '\0', "kubectl-replace", "The name of the manager of the fields that are set."),
    switch("force", '\0', "Delete the object and create it again."),
    typed("grace-period", '\0', Kind::Int, "-1", "Seconds for a graceful end, with --force."),
    text("raw", '\0', "", "A path of the server to send the file to as it is."),
    switch("save-config", '\0', "Keep the configuration in an annotation, for kubectl apply."),
    text("subresource", '\0', "", "The subresource to replace."),
    typed("timeout", '\0', Kind::Duration, "0s", "How long to wait for the deletion, with --force."),
    switch("wait", '\0', "Wait until the object is gone, with --force."),
];

pub(crate) static REPLACE: Command = Command {
    name: "replace",
    usage: "-f FILENAME",
    short: "Replace a resource by file name or stdin",
    flags: &[FLAGS, DRY_RUN, VALIDATE, FILES, PRINT],
    run: Some(|context| Box::pin(run(context))),
    group: "Advanced Commands",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    let select = Select { is_latest: false, subresource: String::new(), ..Select::of(context) };
    if flags.int("grace-period") >= 0 && !flags.bool("force") {
        return message("--grace-period must have --force specified");
    }
    if flags.nanos("timeout") != 0 && !flags.bool("force") {
        return message("--timeout must have --force specified");
    }
    if flags.bool("force") && dry_run != DryRun::None {
        return message("--dry-run can not be used when --force is set");
    }
    if select.files.is_empty() {
        return message("must specify one of -f and -k");
    }
    if !flags.str("raw").is_empty() {
        let [file] = select.files.names.as_slice() else {
            return message("--raw can only use a single local file or stdin");
        };
        let body = if file == "-" { context.read_stdin()? } else { std::fs::read(file)? };
        return super::get::raw_send(context, Method::PUT, flags.str("raw"), body).await;
    }
    let found = select.find(context).await?;
    let mut errors = found.errors;
    for info in &found.infos {
        match replace(context, info, dry_run).await {
            Ok(object) => printer.print_result(context, &object, &format!("replaced{}", dry_run.suffix()))?,
            Err(error) => {
                errors
                    .push(error.with_context(&format!("error when replacing {}", api::field::go_quote(&info.source))));
            }
        }
    }
    Error::all(errors)
}

async fn replace(context: &Context, info: &Info, dry_run: DryRun) -> Result<api::Tree> {
    let flags = &context.flags;
    let has_annotation = info.object.at("metadata.annotations").get(LAST_APPLIED).is_some();
    let object =
        if flags.bool("save-config") || has_annotation { with_last_applied(&info.object) } else { info.object.clone() };
    if dry_run == DryRun::Client {
        return Ok(object);
    }
    if flags.bool("force") {
        return recreate(context, info, &object).await;
    }
    let mut object = object;
    let sub = flags.str("subresource");
    // Without a version of its own the object replaces the current one, whatever it is.
    if object.str("metadata.resourceVersion").is_empty() {
        // If there is none, the server says so.
        if let Ok(current) = get_object(context, &info.resource, &info.namespace, &info.name, sub).await {
            object.child("metadata").set("resourceVersion", current.str("metadata.resourceVersion"));
        }
    }
    let mut path = info.path();
    if !sub.is_empty() {
        path = format!("{path}/{sub}");
        let request = Request::new(Method::PUT, path)
            .query("fieldManager", flags.str("field-manager"))
            .query("fieldValidation", field_validation(context)?)
            .json(&object);
        return context.client().await?.tree(&dry_run.apply(request)).await;
    }
    update(context, info, &object, dry_run).await
}

async fn recreate(context: &Context, info: &Info, object: &api::Tree) -> Result<api::Tree> {
    let flags = &context.flags;
    let grace = flags.int("grace-period");
    let options = delete_options(super::delete::propagation(context)?, (grace >= 0).then_some(grace), DryRun::None);
    let request = Request::new(Method::DELETE, info.path()).json(&options);
    match context.client().await?.tree(&request).await {
        Ok(response) => {
            let forced = if grace == 0 { "force " } else { "" };
            let place =
                if info.resource.is_namespaced { format!(" from {} namespace", info.namespace) } else { String::new() };
            context.print(&format!("{} \"{}\" {forced}deleted{place}\n", info.resource.kind_name(), info.name))?;
            let uid = if response.str("kind") == "Status" {
                response.str("details.uid")
            } else {
                response.str("metadata.uid")
            };
            let deletion = Deletion { info: info.clone(), uid: uid.to_string() };
            wait_for_deletion(context, &[deletion], flags.duration("timeout")).await?;
        }
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    create(context, &info.resource, &info.namespace, object, DryRun::None).await
}
