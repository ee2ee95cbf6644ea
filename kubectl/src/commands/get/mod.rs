//! `get`.

mod generic;
mod human;
mod live;
mod raw;
mod sort;
mod watch;

pub(crate) use raw::raw_send;

use crate::command::Command;
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, switch, switch_on, text, typed};
use crate::objects::{FILES, SELECTOR, Select};
use crate::print::{PRINT, Printer};

const FLAGS: &[Flag] = &[
    switch("all-namespaces", 'A', "List objects of all namespaces."),
    text(
        "at",
        '\0',
        "",
        "The revision or the time (2026-01-31T12:00:00Z) of the objects; only servers of Tiphys keep old ones.",
    ),
    typed("chunk-size", '\0', Kind::Int64, "500", "Objects in one response of the server; 0 for all at once."),
    text("field-selector", '\0', "", "Field selector, such as --field-selector key1=value1,key2=value2."),
    switch("ignore-not-found", '\0', "Objects that do not exist are no error."),
    typed("label-columns", 'L', Kind::Slice, "", "Labels that are shown as columns."),
    switch("live", '\0', "Keep the table on the terminal up to date."),
    switch("no-headers", '\0', "Do not print the names of columns."),
    switch("output-watch-events", '\0', "Print the type of each event of --watch and --watch-only."),
    text("raw", '\0', "", "A path of the server to read as it is."),
    switch_on("server-print", '\0', "Let the server make the table."),
    switch("show-kind", '\0', "Show the type before each name."),
    switch("show-labels", '\0', "Show all labels as the last column."),
    text("sort-by", '\0', "", "Path of a field to sort by, such as {.metadata.name}."),
    text("subresource", '\0', "", "The subresource of the object to read."),
    switch("watch", 'w', "Print changes after the objects."),
    switch("watch-only", '\0', "Print changes only."),
];

pub(crate) static GET: Command = Command {
    name: "get",
    usage: "[(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file|custom-columns|custom-columns-file|wide] (TYPE[.VERSION][.GROUP] [NAME | -l label] | TYPE[.VERSION][.GROUP]/NAME ...) [flags]",
    short: "Display one or many resources",
    long: "Print objects as a table, or in a format that other programs read.",
    examples: "# List pods\nkubectl get pods\n# The YAML of a deployment\nkubectl get deployment web -o yaml\n# Pods and services, and their changes, in one table\nkubectl get pods,services --watch\n# A table that stays up to date\nkubectl get pods --live",
    flags: &[FLAGS, FILES, SELECTOR, PRINT],
    run: Some(|context| Box::pin(run(context))),
    group: "Basic Commands (Intermediate)",
    ..Command::EMPTY
};

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !flags.str("raw").is_empty() {
        return raw::run(context).await;
    }
    let select = Select {
        allows_types: true,
        chunk: Some(if flags.str("sort-by").is_empty() { flags.int("chunk-size") } else { 0 }),
        ..Select::of(context)
    };
    let is_watching = flags.bool("watch") || flags.bool("watch-only") || flags.bool("live");
    if is_watching {
        if !flags.str("sort-by").is_empty() {
            let (name, end) =
                if flags.bool("watch") { ("watch", " for watch events received") } else { ("watch-only", "") };
            context.note(&format!("warning: --{name} requested, --sort-by will be ignored{end}"));
        }
    } else if context.args.is_empty() && select.files.is_empty() {
        context.note(
            "You must specify the type of resource to get. Use \"kubectl api-resources\" for a complete list of \
             supported resources.\n",
        );
        return context.usage_error(
            "Required resource not specified.\nUse \"kubectl explain <resource>\" for a detailed description of that \
             resource (e.g. kubectl explain pods).",
        );
    }
    validate(context)?;
    let printer = Printer::new(context, true)?;
    if flags.bool("live") {
        return live::run(context, &select).await;
    }
    if is_watching {
        return watch::run(context, &select, &printer).await;
    }
    if printer.is_human() {
        human::run(context, &select, &printer).await
    } else {
        generic::run(context, &select, &printer).await
    }
}

fn validate(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let output = flags.str("output");
    if flags.bool("show-labels") && !output.is_empty() && output != "wide" {
        return message(format!("--show-labels option cannot be used with {output} printer"));
    }
    if flags.changed("label-columns") && output.starts_with("custom-columns") {
        return message(format!("--label-columns option cannot be used with {output} printer"));
    }
    let is_watching = flags.bool("watch") || flags.bool("watch-only") || flags.bool("live");
    if !flags.str("at").is_empty() && (is_watching || !flags.str("subresource").is_empty()) {
        return message("--at cannot be used with --watch, --watch-only, --live or --subresource");
    }
    if flags.bool("output-watch-events") && !flags.bool("watch") && !flags.bool("watch-only") {
        return message("--output-watch-events option can only be used with --watch or --watch-only");
    }
    Ok(())
}
