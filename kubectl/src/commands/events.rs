//! `events`.

use api::Tree;

use crate::clock;
use crate::command::Command;
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{ListQuery, guess, list_pages, split_list};
use crate::print::{PRINT, Printer, TabWriter, list_of};
use crate::transport::Request;

const EVENTS_FLAGS: &[Flag] = &[
    switch("all-namespaces", 'A', "Events of all namespaces."),
    typed("chunk-size", '\0', Kind::Int64, "500", "Objects in one response of the server."),
    text("for", '\0', "", "Only events of an object, as TYPE/NAME."),
    switch("no-headers", '\0', "Do not print the names of columns."),
    typed("types", '\0', Kind::Slice, "", "Only events of these types: Normal, Warning."),
    switch("watch", 'w', "Print new events too."),
];

pub(crate) static EVENTS: Command = Command {
    name: "events",
    usage: "[(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file] [--for TYPE/NAME] [--watch] [--types=Normal,Warning]",
    short: "List events",
    flags: &[EVENTS_FLAGS, PRINT],
    run: Some(|context| Box::pin(events(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

/// The time by which events are sorted.
fn event_time(event: &Tree) -> String {
    for path in ["series.lastObservedTime", "lastTimestamp", "eventTime"] {
        let time = event.str(path);
        if !time.is_empty() {
            return time.to_string();
        }
    }
    String::new()
}

fn ago(time: &str) -> String {
    match api::time::parse(time) {
        Ok(time) => api::time::human_duration(clock::now() - time.seconds),
        Err(_) => "<unknown>".to_string(),
    }
}

fn event_row(event: &Tree, with_namespace: bool) -> Vec<String> {
    let first =
        if event.str("eventTime").is_empty() { ago(event.str("firstTimestamp")) } else { ago(event.str("eventTime")) };
    let count = event.int("count").unwrap_or(0);
    let seen = if !event.at("series").is_null() {
        format!(
            "{} (x{} over {first})",
            ago(event.str("series.lastObservedTime")),
            event.int("series.count").unwrap_or(0)
        )
    } else if count > 1 {
        format!("{} (x{count} over {first})", ago(event.str("lastTimestamp")))
    } else {
        first
    };
    let object = format!("{}/{}", event.str("involvedObject.kind"), event.str("involvedObject.name"));
    let mut cells = vec![
        seen,
        event.str("type").to_string(),
        event.str("reason").to_string(),
        object,
        event.str("message").trim().to_string(),
    ];
    if with_namespace {
        cells.insert(0, event.str("metadata.namespace").to_string());
    }
    cells
}

async fn events(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let printer = Printer::new(context, false)?;
    let types = flags.list("types");
    if types.iter().any(|one| !matches!(one.to_lowercase().as_str(), "normal" | "warning")) {
        return message("valid --types are Normal or Warning");
    }
    let query = query_of(context).await?;
    let all = flags.bool("all-namespaces");
    let namespace = if all { String::new() } else { context.namespace()?.0 };
    let mut output = Output { printer, tabs: TabWriter::default(), with_namespace: all };
    let (events, revision) = list_events(context, &namespace, &query, &types).await?;
    if events.is_empty() && !flags.bool("watch") {
        context.note(&if all {
            "No events found.".to_string()
        } else {
            format!("No events found in {namespace} namespace.")
        });
        return Ok(());
    }
    output.print_list(context, events)?;
    if !flags.bool("watch") {
        return Ok(());
    }
    context.flush()?;
    let query = ListQuery { chunk: 0, ..query };
    let request = query.request(&guess("v1", "Event"), &namespace, "");
    watch_events(context, request.query("watch", "true").query("resourceVersion", revision), &types, output).await
}

/// The query of the flags `--chunk-size` and `--for`.
async fn query_of(context: &Context) -> Result<ListQuery> {
    let flags = &context.flags;
    let mut query = ListQuery { chunk: flags.int("chunk-size"), ..ListQuery::default() };
    if !flags.str("for").is_empty() {
        let Some((kind, name)) = flags.str("for").split_once('/') else {
            return message("--for must be in resource/name form");
        };
        let resource = context.resolve(kind).await?;
        query.field_selector = format!(
            "involvedObject.kind={},involvedObject.apiVersion={},involvedObject.name={name}",
            resource.kind,
            resource.api_version()
        );
    }
    Ok(query)
}

fn has_type(event: &Tree, types: &[String]) -> bool {
    types.is_empty() || types.iter().any(|one| one.eq_ignore_ascii_case(event.str("type")))
}

/// The events of some types, the oldest first, and the revision of the list.
async fn list_events(
    context: &Context,
    namespace: &str,
    query: &ListQuery,
    types: &[String],
) -> Result<(Vec<Tree>, String)> {
    let resource = guess("v1", "Event");
    let (mut events, mut revision) = (Vec::new(), String::new());
    list_pages(context, &resource, namespace, query, async |page| {
        revision = page.str("metadata.resourceVersion").to_string();
        let objects = split_list(&resource, page).into_iter().map(|info| info.object);
        events.extend(objects.filter(|event| has_type(event, types)));
        Ok(())
    })
    .await?;
    events.sort_by_cached_key(event_time);
    Ok((events, revision))
}

/// Prints events as rows, or as the printer has them.
struct Output {
    printer: Printer,
    tabs: TabWriter,
    with_namespace: bool,
}

impl Output {
    fn print_list(&mut self, context: &Context, events: Vec<Tree>) -> Result<()> {
        if !self.printer.is_human() {
            return self.printer.print(context, &list_of(events));
        }
        if !context.flags.bool("no-headers") {
            let namespace = if self.with_namespace { "NAMESPACE\t" } else { "" };
            self.tabs.text(&format!("{namespace}LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n"));
        }
        events.iter().for_each(|event| self.tabs.line(event_row(event, self.with_namespace)));
        context.print(&self.tabs.flush())
    }

    fn print(&mut self, context: &Context, event: &Tree) -> Result<()> {
        if !self.printer.is_human() {
            return self.printer.print(context, event);
        }
        self.tabs.line(event_row(event, self.with_namespace));
        context.print(&self.tabs.flush())
    }
}

/// Prints events as they come, until the server ends the watch.
async fn watch_events(context: &Context, request: Request, types: &[String], mut output: Output) -> Result<()> {
    let mut lines = context.client().await?.send(&Request { is_long: true, ..request }).await?.lines();
    while let Some(line) = lines.next().await {
        let Ok(event) = api::json::decode(&line?) else { break };
        if event.str("type") == "DELETED" || !has_type(event.at("object"), types) {
            continue;
        }
        output.print(context, event.at("object"))?;
        context.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn events_have_rows() {
        let event = tree! {
            "type" => "Normal", "reason" => "Started", "message" => " it runs ", "count" => 1,
            "involvedObject" => tree! { "kind" => "Pod", "name" => "a" },
        };
        assert_eq!(event_row(&event, false), ["<unknown>", "Normal", "Started", "Pod/a", "it runs"]);
    }
}
