//! Tokens of service accounts.

use api::{Tree, tree};
use http::Method;

use super::name;
use crate::command::Command;
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, text, typed};
use crate::objects::guess;
use crate::print::{PRINT, Printer};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    typed("audience", '\0', Kind::Array, "", "An audience of the token; can be repeated."),
    text("bound-object-kind", '\0', "", "The kind of the object whose deletion ends the token: Pod, Secret or Node."),
    text("bound-object-name", '\0', "", "The name of the bound object."),
    text("bound-object-uid", '\0', "", "The UID of the bound object."),
    typed("duration", '\0', Kind::Duration, "0s", "How long the token should be valid."),
];

pub(crate) static TOKEN: Command = Command {
    name: "token",
    usage: "SERVICE_ACCOUNT_NAME",
    short: "Request a service account token",
    flags: &[FLAGS, PRINT],
    run: Some(|context| Box::pin(run(context))),
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let (account, flags) = (name(context)?, &context.flags);
    let printer = Printer::new(context, false)?;
    if flags.nanos("duration") < 0 {
        return message("--duration must be greater than or equal to 0");
    }
    if flags.nanos("duration") % 1_000_000_000 != 0 {
        return message("--duration cannot be expressed in units less than seconds");
    }
    let mut spec = tree! { "audiences" => Tree::Null };
    let audiences: Vec<Tree> = flags.list("audience").iter().map(Tree::from).collect();
    if !audiences.is_empty() {
        spec.set("audiences", audiences);
    }
    if flags.nanos("duration") > 0 {
        spec.set("expirationSeconds", flags.nanos("duration") / 1_000_000_000);
    }
    if let Some(object) = bound_object(context)? {
        spec.set("boundObjectRef", object);
    }
    let request = tree! { "kind" => "TokenRequest", "apiVersion" => "authentication.k8s.io/v1", "spec" => spec };
    let path = format!("{}/token", guess("v1", "ServiceAccount").object_path(&context.namespace()?.0, &account));
    let response = context.client().await?.tree(&Request::new(Method::POST, path).json(&request)).await;
    let response = response.map_err(|error| error.with_context("failed to create token").without_reason())?;
    if response.str("status.token").is_empty() {
        return message("failed to create token: no token in server response");
    }
    if printer.is_human() {
        context.print(&format!("{}\n", response.str("status.token")))
    } else {
        printer.print(context, &response)
    }
}

fn bound_object(context: &Context) -> Result<Option<Tree>> {
    let flags = &context.flags;
    let (kind, name, uid) =
        (flags.str("bound-object-kind"), flags.str("bound-object-name"), flags.str("bound-object-uid"));
    if kind.is_empty() {
        if !name.is_empty() {
            return message("--bound-object-name can only be set if --bound-object-kind is provided");
        }
        if !uid.is_empty() {
            return message("--bound-object-uid can only be set if --bound-object-kind is provided");
        }
        return Ok(None);
    }
    if !matches!(kind, "Pod" | "Secret" | "Node") {
        return message("supported --bound-object-kind values are Node, Pod, Secret");
    }
    if name.is_empty() {
        return message("--bound-object-name is required if --bound-object-kind is provided");
    }
    let mut object = tree! { "kind" => kind, "apiVersion" => "v1", "name" => name };
    if !uid.is_empty() {
        object.set("uid", uid);
    }
    Ok(Some(object))
}
