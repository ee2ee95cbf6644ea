//! `create`: objects of files, and a generator for each common kind.

mod access;
mod batch;
mod data;
mod ingress;
mod policy;
mod service;
mod token;
mod workloads;

pub(crate) use policy::{label_selector, quantities};

use api::Tree;
use http::Method;

use super::common::{DRY_RUN, DryRun, VALIDATE, create, with_last_applied};
use super::record::{RECORD, record};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, switch, text};
use crate::objects::{FILES, SELECTOR, Select, guess};
use crate::print::{PRINT, Printer};

const FLAGS: &[Flag] = &[
    switch("edit", '\0', "Edit the objects before they are created."),
    text("raw", '\0', "", "A path of the server to send the file to as it is."),
    switch("windows-line-endings", '\0', "Use carriage returns in the file that --edit opens."),
];

/// The flags of every generator.
pub(crate) const COMMON: &[Flag] = &[
    text("field-manager", '\0', "kubectl-create", "The name of the manager of the fields that are set."),
    switch("save-config", '\0', "Keep the configuration in an annotation, for kubectl apply."),
];

pub(crate) static CREATE: Command = Command {
    name: "create",
    usage: "-f FILENAME",
    short: "Create a resource from a file or from stdin",
    examples: "# Create the objects of a file\nkubectl create -f pod.yaml\n# Create a deployment\nkubectl create deployment web --image=nginx",
    flags: &[FLAGS, COMMON, DRY_RUN, VALIDATE, FILES, SELECTOR, PRINT, RECORD],
    children: &[
        &access::CLUSTERROLE,
        &access::CLUSTERROLEBINDING,
        &data::CONFIGMAP,
        &batch::CRONJOB,
        &workloads::DEPLOYMENT,
        &ingress::INGRESS,
        &batch::JOB,
        &workloads::NAMESPACE,
        &policy::POD_DISRUPTION_BUDGET,
        &policy::PRIORITY_CLASS,
        &policy::QUOTA,
        &access::ROLE,
        &access::ROLEBINDING,
        &data::SECRET,
        &service::SERVICE,
        &workloads::SERVICE_ACCOUNT,
        &token::TOKEN,
    ],
    run: Some(|context| Box::pin(run(context))),
    group: "Basic Commands (Beginner)",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let select = Select { is_latest: false, ..Select::of(context) };
    if select.files.is_empty() {
        if !context.args.is_empty() {
            return context.usage_error(&format!("Unexpected args: {}", list(&context.args)));
        }
        return message("must specify one of -f and -k");
    }
    if !context.args.is_empty() {
        return context.usage_error(&format!("Unexpected args: {}", list(&context.args)));
    }
    if !flags.str("raw").is_empty() {
        return raw(context, &select).await;
    }
    if flags.bool("edit") {
        return super::edit::create(context, &select).await;
    }
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    super::common::field_validation(context)?;
    let found = select.find(context).await?;
    let mut errors = found.errors;
    for mut info in found.infos {
        record(context, &mut info.object);
        let object = if flags.bool("save-config") { with_last_applied(&info.object) } else { info.object.clone() };
        let created = match dry_run {
            DryRun::Client => Ok(object),
            _ => create(context, &info.resource, &info.namespace, &object, dry_run).await,
        };
        match created {
            Ok(object) => printer.print_result(context, &object, &format!("created{}", dry_run.suffix()))?,
            Err(error) => {
                errors.push(error.with_context(&format!("error when creating {}", api::field::go_quote(&info.source))));
            }
        }
        if info.resource.kind == "CustomResourceDefinition" {
            context.forget_mapper();
        }
    }
    Error::all(errors)
}

/// Arguments as Go prints a list.
fn list(args: &[String]) -> String {
    format!("[{}]", args.join(" "))
}

async fn raw(context: &Context, select: &Select) -> Result<()> {
    let [file] = select.files.names.as_slice() else {
        return message("--raw can only use a single local file or stdin");
    };
    let body = if file == "-" {
        context.read_stdin()?
    } else {
        match std::fs::read(file) {
            Ok(body) => body,
            Err(error) => return message(format!("open {file}: {}", crate::error::io_text(&error))),
        }
    };
    super::get::raw_send(context, Method::POST, context.flags.str("raw"), body).await
}

/// Creates and prints what a generator made.
pub(crate) async fn finish(context: &Context, mut object: Tree) -> Result<()> {
    let (dry_run, printer) = (DryRun::of(context)?, Printer::new(context, false)?);
    let resource = guess(object.str("apiVersion"), object.str("kind"));
    let mut namespace = String::new();
    if resource.is_namespaced {
        let (name, is_explicit) = context.namespace()?;
        if is_explicit {
            object.child("metadata").set("namespace", &name);
        }
        namespace = name;
    }
    if context.flags.bool("save-config") {
        object = with_last_applied(&object);
    }
    if dry_run != DryRun::Client {
        object = create(context, &resource, &namespace, &object, dry_run)
            .await
            .map_err(|error| failed(error, &resource.kind))?;
    }
    printer.print_result(context, &object, &format!("created{}", dry_run.suffix()))
}

/// Upstream's generators say which kind failed, and lose the details of the response by that.
fn failed(error: Error, kind: &str) -> Error {
    let noun = match kind {
        "Namespace" | "Role" | "ClusterRole" | "ClusterRoleBinding" | "RoleBinding" => return error,
        "ServiceAccount" => "serviceaccount".to_string(),
        other => other.to_lowercase(),
    };
    match error {
        Error::Server { status, .. } => Error::Message(format!("failed to create {noun}: {}", status.message)),
        other => other,
    }
}

/// The only positional argument: the name.
pub(crate) fn name(context: &Context) -> Result<String> {
    let count = context.dash.unwrap_or(context.args.len());
    match context.args.first() {
        Some(name) if count == 1 => Ok(name.clone()),
        _ => context.usage_error(&format!("exactly one NAME is required, got {count}")),
    }
}

/// An error for a flag that must be given.
pub(crate) fn require(context: &Context, names: &[&str]) -> Result<()> {
    let missing: Vec<String> =
        names.iter().filter(|name| !context.flags.changed(name)).map(|name| format!("\"{name}\"")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    message(format!("required flag(s) {} not set", missing.join(", ")))
}
