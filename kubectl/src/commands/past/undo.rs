//! `tiphys undo`: an object becomes what it was, by an ordinary update through admission, which is shown first.

use std::io::{BufRead, IsTerminal};

use api::Tree;
use http::Method;

use super::{comparable, difference, is_secret, mask, one_object};
use crate::command::Command;
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, switch, text};
use crate::objects::get_named;
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    text("to", '\0', "", "The revision to go back to, or a time such as 2026-01-31T12:00:00Z."),
    switch("yes", 'y', "Do not ask."),
    switch("dry-run", '\0', "Only show what would change."),
    switch("show-values", '\0', "Show the values of a Secret."),
];
const MANAGER: &str = "tiphys-undo";
/// Metadata that belongs to one life of an object, or to the server.
const OWN: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

pub(super) static UNDO: Command = Command {
    name: "undo",
    usage: "(TYPE NAME | TYPE/NAME) --to REVISION|TIME [flags]",
    short: "Make an object what it was",
    long: "Makes an object what it was, or creates it again if it was deleted. This is an ordinary update: admission and \
           validation decide about it. It is shown before it is done. The status is not changed.",
    examples: "# See the revisions, and go back\ntiphys history deployment/web\ntiphys undo deployment/web --to 1234",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Other Commands",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let to = flags.str("to");
    if to.is_empty() {
        return context.usage_error("--to is required: the revision to go back to");
    }
    let (resource, namespace, name) = one_object(context).await?;
    let path = resource.object_path(&namespace, &name);
    let then = get_named(context, Request::get(&path).at(to), &namespace).await?;
    let now = match get_named(context, Request::get(&path), &namespace).await {
        Ok(now) => now,
        Err(error) if error.is_not_found() => Tree::Null,
        Err(error) => return Err(error),
    };
    let object = restored(then, &now);
    let result = send(context, &resource, &namespace, (&name, &now), &object, true).await?;
    let label = format!("{}/{name}", resource.kind_name());
    let lines = preview(&resource, &now, &result, flags.bool("show-values"));
    if lines.is_empty() {
        return context.print(&format!("{label} is what it was\n"));
    }
    for line in lines {
        context.print(&format!("{line}\n"))?;
    }
    if flags.bool("dry-run") {
        return context.print(&format!("{label} would be restored (dry run)\n"));
    }
    confirm(context, &label)?;
    send(context, &resource, &namespace, (&name, &now), &object, false).await?;
    context.print(&format!("{label} restored\n"))
}

/// The old object as an update of what there is now, or as a new object.
fn restored(mut then: Tree, now: &Tree) -> Tree {
    then.remove("status");
    let metadata = then.child("metadata");
    for field in OWN {
        metadata.remove(field);
    }
    if !now.is_null() {
        // Another client's change since then is not overwritten unseen.
        metadata.set("resourceVersion", now.str("metadata.resourceVersion"));
        metadata.set("uid", now.str("metadata.uid"));
    }
    then
}

async fn send(
    context: &Context,
    resource: &Resource,
    namespace: &str,
    (name, now): (&str, &Tree),
    object: &Tree,
    is_dry_run: bool,
) -> Result<Tree> {
    let request = match now.is_null() {
        true => Request::new(Method::POST, resource.path(namespace)),
        false => Request::new(Method::PUT, resource.object_path(namespace, name)),
    };
    let dry_run = if is_dry_run { "All" } else { "" };
    let request = request.query("fieldManager", MANAGER).query("dryRun", dry_run).json(object);
    context.client().await?.tree(&request).await
}

/// What would change, without the status, which stays.
fn preview(resource: &Resource, now: &Tree, result: &Tree, shows_values: bool) -> Vec<String> {
    let [mut before, mut after] = [now, result].map(|object| {
        let mut object = comparable(object.clone());
        object.remove("status");
        object
    });
    if is_secret(resource) && !shows_values {
        mask(&mut before, &mut after);
    }
    difference(&before, &after)
}

fn confirm(context: &Context, label: &str) -> Result<()> {
    if context.flags.bool("yes") {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return message(format!("{label} is not changed: confirm with --yes"));
    }
    context.print(&format!("Restore {label}? [y/N] "))?;
    context.flush()?;
    let mut reply = String::new();
    std::io::stdin().lock().read_line(&mut reply)?;
    match reply.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Error::Command { message: format!("{label} is not changed"), code: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn only_what_users_set_is_restored() {
        let then = tree! {
            "metadata" => tree! {
                "name" => "a", "labels" => tree! { "app" => "web" }, "uid" => "old", "resourceVersion" => "5",
                "generation" => 2, "creationTimestamp" => "2026-01-01T00:00:00Z", "deletionTimestamp" => "x",
                "deletionGracePeriodSeconds" => 30, "managedFields" => Tree::List(Vec::new()),
            },
            "spec" => tree! { "replicas" => 1 }, "status" => tree! { "replicas" => 1 },
        };
        let spec = tree! { "replicas" => 1 };
        let metadata = tree! { "name" => "a", "labels" => tree! { "app" => "web" } };
        assert_eq!(restored(then.clone(), &Tree::Null), tree! { "metadata" => metadata.clone(), "spec" => spec });
        let now = tree! { "metadata" => tree! { "resourceVersion" => "9", "uid" => "new" } };
        let update = restored(then, &now);
        assert_eq!((update.str("metadata.resourceVersion"), update.str("metadata.uid")), ("9", "new"));
    }
}
