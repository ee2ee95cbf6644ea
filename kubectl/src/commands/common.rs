//! What commands that change objects share.

use std::future::poll_fn;
use std::task::Poll;

use api::{Tree, tree};
use http::Method;

use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Result, message};
use crate::flags::{Flag, text};
use crate::objects::Info;
use crate::transport::Request;

/// `--dry-run`.
pub(crate) const DRY_RUN: &[Flag] = &[text(
    "dry-run",
    '\0',
    "none",
    "Must be \"none\", \"server\", or \"client\". client prints the object without sending it; server sends it without storing it.",
)
.bare("unchanged")];

/// `--validate`.
pub(crate) const VALIDATE: &[Flag] = &[text(
    "validate",
    '\0',
    "strict",
    "Must be one of: strict (or true), warn, ignore (or false). What the server does with unknown and duplicate fields.",
)
.bare("strict")];

/// Whether changes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DryRun {
    None,
    Client,
    Server,
}

impl DryRun {
    /// From the flag.
    pub(crate) fn of(context: &Context) -> Result<DryRun> {
        match context.flags.str("dry-run") {
            "" | "none" => Ok(DryRun::None),
            "client" => Ok(DryRun::Client),
            "server" => Ok(DryRun::Server),
            "unchanged" => {
                context.note("W0000 --dry-run is deprecated and can be replaced with --dry-run=client.");
                Ok(DryRun::Client)
            }
            "true" => {
                context.note(
                    "W0000 --dry-run=true is deprecated (boolean value) and can be replaced with --dry-run=client.",
                );
                Ok(DryRun::Client)
            }
            "false" => Ok(DryRun::None),
            other => message(format!("Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\".")),
        }
    }

    /// After the operation in a message.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        }
    }

    /// With the parameter for the server.
    pub(crate) fn apply(self, request: Request) -> Request {
        if self == DryRun::Server { request.query("dryRun", "All") } else { request }
    }
}

/// The parameter for `--validate`.
pub(crate) fn field_validation(context: &Context) -> Result<&'static str> {
    match context.flags.str("validate") {
        "strict" | "true" | "" => Ok("Strict"),
        "warn" => Ok("Warn"),
        "ignore" | "false" => Ok("Ignore"),
        other => message(format!(
            "invalid - validate option {other:?}; must be one of: strict (or true), warn, ignore (or false)"
        )),
    }
}

/// Creates an object.
pub(crate) async fn create(
    context: &Context,
    resource: &Resource,
    namespace: &str,
    object: &Tree,
    dry_run: DryRun,
) -> Result<Tree> {
    let request = Request::new(Method::POST, resource.path(namespace))
        .query("fieldManager", context.flags.str("field-manager"))
        .query("fieldValidation", if context.flags.has("validate") { field_validation(context)? } else { "" });
    context.client().await?.tree(&dry_run.apply(request).json(object)).await
}

/// Replaces an object.
pub(crate) async fn update(context: &Context, info: &Info, object: &Tree, dry_run: DryRun) -> Result<Tree> {
    let request = Request::new(Method::PUT, info.path())
        .query("fieldManager", context.flags.str("field-manager"))
        .query("fieldValidation", if context.flags.has("validate") { field_validation(context)? } else { "" });
    context.client().await?.tree(&dry_run.apply(request).json(object)).await
}

/// Runs futures at the same time; their results in their order.
pub(crate) async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, result) in running.iter_mut().zip(&mut done).filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *result = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// The media types of patches.
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";

/// Patches an object.
pub(crate) async fn patch(
    context: &Context,
    info: &Info,
    kind: &'static str,
    body: Vec<u8>,
    dry_run: DryRun,
) -> Result<Tree> {
    let request = Request::new(Method::PATCH, info.path())
        .query("fieldManager", context.flags.str("field-manager"))
        .body(kind, body);
    context.client().await?.tree(&dry_run.apply(request)).await
}

/// The type of patch that an object's kind allows: built-in kinds merge lists by their keys.
pub(crate) fn patch_kind(resource: &Resource) -> &'static str {
    if api::schema::type_of(&resource.group, &resource.version, &resource.kind).is_some() { STRATEGIC } else { MERGE }
}

/// The annotation with the configuration that was applied last.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object with its own configuration in an annotation.
pub(crate) fn with_last_applied(object: &Tree) -> Tree {
    let mut plain = object.clone();
    if let Some(annotations) = plain.at_mut("metadata.annotations") {
        annotations.remove(LAST_APPLIED);
    }
    let mut annotated = plain.clone();
    // Upstream's encoder keeps an empty map here, and ends the text with a line feed.
    plain.child("metadata.annotations");
    let mut text = api::json::encode(&plain, None);
    text.push(b'\n');
    let text = String::from_utf8_lossy(&text).into_owned();
    annotated.child("metadata.annotations").set(LAST_APPLIED, escape_html(&text));
    annotated
}

/// The characters that Go's JSON encoder escapes.
pub(crate) fn escape_html(text: &str) -> String {
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The options of a deletion.
pub(crate) fn delete_options(propagation: &str, grace_period: Option<i64>, dry_run: DryRun) -> Tree {
    let mut options = tree! { "kind" => "DeleteOptions", "apiVersion" => "v1", "propagationPolicy" => propagation };
    if let Some(seconds) = grace_period {
        options.set("gracePeriodSeconds", seconds);
    }
    if dry_run == DryRun::Server {
        options.set("dryRun", api::list!["All"]);
    }
    options
}
