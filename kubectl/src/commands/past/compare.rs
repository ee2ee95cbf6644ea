//! `tiphys diff`: a namespace at two points in time.

use std::collections::BTreeMap;

use api::Tree;

use super::{comparable, difference, is_secret, mask};
use crate::command::Command;
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, typed};
use crate::objects::{ListQuery, list_pages, split_list};

const FLAGS: &[Flag] = &[
    typed(
        "at",
        '\0',
        Kind::Array,
        "",
        "A revision or a time such as 2026-01-31T12:00:00Z; given once, it is compared with now.",
    ),
    switch("show-values", '\0', "Show the values of Secrets."),
    switch("show-status", '\0', "Show differences of the status too."),
];

/// Types whose objects come and go by themselves.
const NOISE: [(&str, &str); 3] = [("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")];

pub(super) static DIFF: Command = Command {
    name: "diff",
    usage: "--at REVISION|TIME [--at REVISION|TIME] [NAMESPACE] [flags]",
    short: "Compare a namespace at two points in time",
    long: "Shows what was created, changed and deleted in a namespace between two points in time, as far as you may list it. \
           The exit code is 1 if there are differences.",
    examples: "# What has changed since noon?\ntiphys diff --at 2026-01-31T12:00:00Z\n# Between two revisions\ntiphys diff --at 1200 --at 1300 production",
    flags: &[FLAGS],
    run: Some(|context| Box::pin(run(context))),
    group: "Other Commands",
    flag_error_code: 2,
    ..Command::EMPTY
};

type Objects = BTreeMap<String, Tree>;

async fn run(context: &Context) -> Result<()> {
    // A code of 1 says that there are differences, so errors have another one.
    match compare(context).await {
        Ok(0) => Ok(()),
        Ok(_) => Err(Error::Exit(1)),
        Err(error) => Err(Error::Command { message: error.report().0, code: 2 }),
    }
}

/// Returns the number of objects that differ.
async fn compare(context: &Context) -> Result<usize> {
    let points = context.flags.list("at");
    let (from, to) = match points.as_slice() {
        [from] => (from.as_str(), ""),
        [from, to] => (from.as_str(), to.as_str()),
        _ => return message("give --at once or twice: from when, and until when (now)"),
    };
    let namespace = match context.args.as_slice() {
        [] => context.namespace()?.0,
        [namespace] => namespace.clone(),
        _ => return message("name one namespace"),
    };
    let mapper = context.mapper().await?;
    let is_listed = |resource: &&Resource| {
        let noise = NOISE.contains(&(resource.group.as_str(), resource.plural.as_str()));
        resource.is_namespaced && resource.has_verb("list") && resource.has_verb("get") && !noise
    };
    let resources: Vec<Resource> = mapper.preferred().into_iter().filter(is_listed).cloned().collect();
    let mut count = 0;
    for resource in &resources {
        let before = read(context, resource, &namespace, from).await?;
        let after = read(context, resource, &namespace, to).await?;
        if let (Some(before), Some(after)) = (before, after) {
            count += print(context, resource, &before, &after)?;
        }
    }
    Ok(count)
}

/// The objects of a type then; None, with a note, if the user may not list them. A type that did not exist has none.
async fn read(context: &Context, resource: &Resource, namespace: &str, at: &str) -> Result<Option<Objects>> {
    let query = ListQuery { at: at.to_string(), ..ListQuery::default() };
    let mut objects = Objects::new();
    let listed = list_pages(context, resource, namespace, &query, async |page| {
        objects.extend(split_list(resource, page).into_iter().map(|info| (info.name, info.object)));
        Ok(())
    });
    match listed.await {
        Ok(()) => Ok(Some(objects)),
        Err(error) if error.status().is_some_and(|status| status.code == 403) => {
            context.note(&format!("{}: not visible to you", resource.plural_in_group()));
            Ok(None)
        }
        // Served by an extension API server, which keeps its own past.
        Err(error) if error.status().is_some_and(|status| matches!(status.code, 404 | 405)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn print(context: &Context, resource: &Resource, before: &Objects, after: &Objects) -> Result<usize> {
    let mut count = 0;
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let [mut old, mut new] = [before, after].map(|objects| shown(context, objects.get(name)));
        if old == new {
            continue;
        }
        if is_secret(resource) && !context.flags.bool("show-values") {
            mask(&mut old, &mut new);
        }
        count += 1;
        let what = match (old.is_null(), new.is_null()) {
            (true, _) => "created",
            (_, true) => "deleted",
            _ => "changed",
        };
        context.print(&format!("{}/{name} {what}\n", resource.kind_name()))?;
        for line in difference(&old, &new) {
            context.print(&format!("    {line}\n"))?;
        }
    }
    Ok(count)
}

fn shown(context: &Context, object: Option<&Tree>) -> Tree {
    let mut object = comparable(object.cloned().unwrap_or_default());
    if !context.flags.bool("show-status") {
        object.remove("status");
    }
    object
}
