//! `describe`.

use crate::command::Command;
use crate::context::Context;
use crate::describe::describe;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, switch_on, typed};
use crate::objects::{FILES, Info, SELECTOR, Select, list_pages, split_list};

const FLAGS: &[Flag] = &[
    switch("all-namespaces", 'A', "Describe objects of all namespaces."),
    typed("chunk-size", '\0', Kind::Int64, "500", "Objects in one response of the server; 0 for all at once."),
    switch_on("show-events", '\0', "Show the events of each object."),
];

pub(crate) static DESCRIBE: Command = Command {
    name: "describe",
    usage: "(-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME)",
    short: "Show details of a specific resource or group of resources",
    flags: &[FLAGS, FILES, SELECTOR],
    run: Some(|context| Box::pin(run(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let mut select = Select { allows_types: true, chunk: Some(context.flags.int("chunk-size")), ..Select::of(context) };
    select.is_latest = true;
    if context.args.is_empty() && select.files.is_empty() {
        return message(
            "You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete list of \
             supported resources.",
        );
    }
    let mut found = select.find(context).await?;
    let mut is_prefix = false;
    if let [error] = found.errors.as_slice()
        && error.is_not_found()
        && found.infos.is_empty()
        && let [kind, prefix] = context.args.as_slice()
    {
        found.infos = with_prefix(context, kind, prefix).await?;
        is_prefix = true;
        if !found.infos.is_empty() {
            found.errors.clear();
        }
    }
    // Objects that a prefix selects end with a line of their own.
    let end = if is_prefix { "\n" } else { "" };
    let mut is_first = true;
    let mut errors = std::mem::take(&mut found.errors);
    for info in &found.infos {
        match describe(context, info).await {
            Ok(text) => {
                context.print(if is_first || is_prefix { "" } else { "\n\n" })?;
                context.print(&text)?;
                context.print(end)?;
                is_first = false;
            }
            Err(error) => errors.push(error),
        }
    }
    if found.infos.is_empty() && errors.is_empty() {
        if select.all_namespaces {
            context.note("No resources found");
        } else {
            context.note(&format!("No resources found in {} namespace.", context.namespace()?.0));
        }
    }
    Error::all(errors)
}

/// The objects whose names begin with a text.
async fn with_prefix(context: &Context, kind: &str, prefix: &str) -> Result<Vec<Info>> {
    let resource = context.resolve(kind).await?;
    let namespace = context.namespace()?.0;
    let query = Select::of(context).query();
    let mut infos = Vec::new();
    list_pages(context, &resource, &namespace, &query, async |page| {
        infos.extend(split_list(&resource, page).into_iter().filter(|info| info.name.starts_with(prefix)));
        Ok(())
    })
    .await?;
    Ok(infos)
}
