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
    let all = flags.bool("all-namespaces");
    let namespace = if all { String::new() } else { context.namespace()?.0 };
    let is_wanted =
        |event: &Tree| types.is_empty() || types.iter().any(|one| one.eq_ignore_ascii_case(event.str("type")));
    let resource = guess("v1", "Event");
    let (mut found, mut revision) = (Vec::new(), String::new());
    list_pages(context, &resource, &namespace, &query, async |page| {
        revision = page.str("metadata.resourceVersion").to_string();
        found.extend(split_list(&resource, page).into_iter().map(|info| info.object).filter(|event| is_wanted(event)));
        Ok(())
    })
    .await?;
    found.sort_by_cached_key(event_time);
    if found.is_empty() && !flags.bool("watch") {
        context.note(&if all {
            "No events found.".to_string()
        } else {
            format!("No events found in {namespace} namespace.")
        });
        return Ok(());
    }
    let mut tabs = TabWriter::default();
    if !printer.is_human() {
        printer.print(context, &list_of(found))?;
    } else {
        if !flags.bool("no-headers") {
            tabs.text(&format!("{}LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n", if all { "NAMESPACE\t" } else { "" }));
        }
        found.iter().for_each(|event| tabs.line(event_row(event, all)));
        context.print(&tabs.flush())?;
    }
    if !flags.bool("watch") {
        return Ok(());
    }
    context.flush()?;
    query.chunk = 0;
    let request = query.request(&resource, &namespace, "").query("watch", "true").query("resourceVersion", revision);
    let mut lines = context.client().await?.send(&Request { is_long: true, ..request }).await?.lines();
    while let Some(line) = lines.next().await {
        let Ok(event) = api::json::decode(&line?) else { break };
        if event.str("type") == "DELETED" || !is_wanted(event.at("object")) {
            continue;
        }
        if printer.is_human() {
            tabs.line(event_row(event.at("object"), all));
            context.print(&tabs.flush())?;
        } else {
            printer.print(context, event.at("object"))?;
        }
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
