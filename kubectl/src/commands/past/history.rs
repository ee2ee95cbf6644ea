//! `tiphys history`: the versions of an object as differences, with who wrote them, when and why.

use api::Tree;

use super::{comparable, difference, one_object};
use crate::command::Command;
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::transport::{HISTORY_PATH, Request};

const FLAGS: &[Flag] = &[
    typed("limit", '\0', Kind::Int, "20", "How many versions to show, the newest."),
    text("output", 'o', "", "json or yaml, for programs; whole versions instead of differences."),
    switch("show-values", '\0', "Show the values of a Secret."),
    switch("ignore-status", '\0', "Show no differences of the status."),
];

pub(super) static HISTORY: Command = Command {
    name: "history",
    usage: "(TYPE NAME | TYPE/NAME) [flags]",
    short: "Show the past versions of an object, and who changed it",
    long: "Shows the past versions of an object, oldest first, as differences, with who wrote each, when and why. How much \
           of the past a server keeps is its --history-retention.",
    examples: "# Who scaled the deployment?\ntiphys history deployment/web\n# For programs\ntiphys history configmap settings -o json",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Other Commands",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let (resource, namespace, name) = one_object(context).await?;
    let path = format!("{HISTORY_PATH}{}", resource.object_path(&namespace, &name));
    let values = if flags.bool("show-values") { "true" } else { "" };
    let request = Request::get(path).query("limit", flags.int("limit").to_string()).query("values", values);
    let history = context.client().await?.tree(&request).await?;
    match flags.str("output") {
        "" => context.print(&text_of(&history, flags.bool("ignore-status"))),
        "json" => context.write(&[api::json::encode_pretty(&history, None), b"\n".to_vec()].concat()),
        "yaml" => context.write(&api::yaml::encode(&history)),
        other => message(format!(
            "unable to match a printer suitable for the output format {other:?}, allowed formats are: json,yaml"
        )),
    }
}

fn text_of(history: &Tree, ignores_status: bool) -> String {
    let mut text = String::new();
    if history.bool("limited") {
        text.push_str("(older versions are not shown: --limit)\n");
    } else if history.int("begins").unwrap_or_default() > 1 {
        let begins = history.int("begins").unwrap_or_default();
        text.push_str(&format!("(the server keeps what was written after revision {begins})\n"));
    }
    let (mut before, mut last_uid) = (Tree::Null, String::new());
    for (at, version) in history.list("versions").iter().enumerate() {
        let mut after = comparable(version.at("object").clone());
        if ignores_status {
            after.remove("status");
        }
        let is_other = !last_uid.is_empty() && last_uid != after.str("metadata.uid");
        text.push_str(&format!(
            "revision {}{}\n",
            version.int("revision").unwrap_or_default(),
            caption(version, is_other)
        ));
        let is_first = at == 0;
        for line in shown(&before, &after, version, is_first) {
            text.push_str(&format!("    {line}\n"));
        }
        if !after.is_null() {
            last_uid = after.str("metadata.uid").to_string();
        }
        if !version.has("unreadable") {
            before = after;
        }
    }
    text
}

/// The first known version is the whole object only if it was created by it.
fn shown(before: &Tree, after: &Tree, version: &Tree, is_first: bool) -> Vec<String> {
    match version.str("unreadable") {
        "" if version.bool("deleted") => Vec::new(),
        "" if is_first && version.str("verb") != "create" => vec!["(what it was before is not known)".to_string()],
        "" => difference(before, after),
        why => vec![format!("(not readable any more: {why})")],
    }
}

/// When, what, who, and why.
fn caption(version: &Tree, is_other: bool) -> String {
    let mut text = String::new();
    let mut add = |part: String| {
        text.push_str("  ");
        text.push_str(&part);
    };
    if let Some((seconds, _)) = version.str("time").split_once('.') {
        add(format!("{seconds}Z"));
    }
    add(verb(version, is_other));
    if !version.str("user").is_empty() {
        let agent = version.str("userAgent").split(' ').next().unwrap_or_default();
        let agent = if agent.is_empty() { String::new() } else { format!(" ({agent})") };
        add(format!("by {}{agent}", version.str("user")));
    }
    if !version.str("component").is_empty() {
        let of = version.at("actedOn");
        let of = match of.is_null() {
            true => String::new(),
            false => {
                let (resource, key, revision) = (of.str("resource"), of.str("key"), of.int("revision"));
                format!(" for {resource} {key} at revision {}", revision.unwrap_or_default())
            }
        };
        add(format!("{}{of}", version.str("component")));
    }
    if !version.str("auditID").is_empty() {
        add(format!("request {}", version.str("auditID")));
    }
    text
}

fn verb(version: &Tree, is_other: bool) -> String {
    let text = match version.str("verb") {
        _ if version.bool("deleted") => "deleted",
        "create" if is_other => "created anew",
        "create" => "created",
        "update" => "updated",
        "patch" => "patched",
        "delete" | "deletecollection" => "marked for deletion",
        _ => "written",
    };
    match version.str("subresource") {
        "" => text.to_string(),
        subresource => format!("{text} ({subresource})"),
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn versions_are_differences_with_their_cause() {
        let object =
            |replicas: i64| tree! { "metadata" => tree! { "uid" => "u" }, "spec" => tree! { "replicas" => replicas } };
        let of = tree! { "resource" => "deployments.apps", "key" => "default/web", "revision" => 7 };
        let history = tree! {
            "begins" => 1, "limited" => false,
            "versions" => list![
                tree! {
                    "revision" => 5, "time" => "2026-01-02T03:04:05.678900Z", "user" => "admin",
                    "userAgent" => "kubectl/v1 (linux)", "auditID" => "r1", "verb" => "create", "object" => object(1),
                },
                tree! {
                    "revision" => 9, "user" => "system:x", "verb" => "patch", "subresource" => "scale",
                    "component" => "some-controller", "actedOn" => of, "object" => object(3),
                },
                tree! { "revision" => 11, "unreadable" => "no key" },
                tree! { "revision" => 12, "user" => "admin", "verb" => "delete", "deleted" => true },
                tree! { "revision" => 13, "verb" => "create", "object" => tree! { "metadata" => tree! { "uid" => "v" } } },
            ],
        };
        let expected = "revision 5  2026-01-02T03:04:05Z  created  by admin (kubectl/v1)  request r1\n    \
            + metadata:\n    +   uid: u\n    + spec:\n    +   replicas: 1\n\
            revision 9  patched (scale)  by system:x  some-controller for deployments.apps default/web at revision 7\n    \
            \x20 metadata:\n    \x20   uid: u\n    \x20 spec:\n    -   replicas: 1\n    +   replicas: 3\n\
            revision 11  written\n    (not readable any more: no key)\n\
            revision 12  deleted  by admin\n\
            revision 13  created anew\n    + metadata:\n    +   uid: v\n";
        assert_eq!(text_of(&history, false), expected);
    }

    #[test]
    fn the_beginning_of_history_is_said() {
        let version = tree! { "revision" => 50, "verb" => "update", "object" => tree! { "kind" => "A" } };
        let history =
            |limited: bool| tree! { "begins" => 40, "limited" => limited, "versions" => list![version.clone()] };
        let text = text_of(&history(false), false);
        assert!(text.starts_with("(the server keeps what was written after revision 40)"), "{text}");
        assert!(text.contains("(what it was before is not known)"), "{text}");
        assert!(text_of(&history(true), false).starts_with("(older versions are not shown"));
    }
}
