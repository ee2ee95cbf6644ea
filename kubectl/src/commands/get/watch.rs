//! `--watch` and `--watch-only`, of one type or several.

use api::{Tree, json, tree};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::objects::{Select, Target};
use crate::print::{Printer, TabWriter, TablePrinter};
use crate::transport::Request;

use super::human::{TABLE, options, table_query};

/// Events that wait to be printed.
const QUEUE: usize = 256;

/// What is watched.
pub(super) struct Watched {
    pub(super) resource: Resource,
    pub(super) namespace: String,
    /// The name of the only object; empty for all.
    pub(super) name: String,
}

pub(super) async fn run(context: &Context, select: &Select, printer: &Printer) -> Result<()> {
    let watched = watched(context, select).await?;
    let mut output = Output::new(context, printer, &watched);
    let (sender, mut events) = mpsc::channel(QUEUE);
    for (at, one) in watched.iter().enumerate() {
        let revision = if context.flags.bool("watch-only") {
            String::new()
        } else {
            let list = read(context, select, printer, one).await?;
            let revision = list.str("metadata.resourceVersion").to_string();
            output.initial(at, &list)?;
            revision
        };
        let revision = if context.flags.bool("watch-only") { newest(context, select, one).await? } else { revision };
        let request = watch_request(context, select, printer, one, &revision);
        spawn(context, at, request, sender.clone()).await?;
    }
    drop(sender);
    context.flush()?;
    while let Some((at, event)) = events.recv().await {
        let (kind, object) = event?;
        output.event(at, &kind, &object)?;
        context.flush()?;
    }
    Ok(())
}

/// The types and objects that the command line names.
pub(super) async fn watched(context: &Context, select: &Select) -> Result<Vec<Watched>> {
    let targets = select.targets(context).await?;
    Error::all(targets.errors)?;
    let watched = targets.targets.into_iter().map(|target| match target {
        Target::List { resource, namespace } => Watched { resource, namespace, name: String::new() },
        Target::Object { resource, namespace, name } => Watched { resource, namespace, name },
        Target::File(info) => {
            let info = *info;
            Watched { resource: info.resource, namespace: info.namespace, name: info.name }
        }
    });
    Ok(watched.collect())
}

fn accept(context: &Context, printer: &Printer) -> String {
    let is_table = printer.is_human() && context.flags.bool("server-print");
    if is_table { TABLE.to_string() } else { crate::transport::JSON.to_string() }
}

async fn read(context: &Context, select: &Select, printer: &Printer, one: &Watched) -> Result<Tree> {
    let request = if one.name.is_empty() {
        let mut query = table_query(context, select);
        query.chunk = 0;
        query.request(&one.resource, &one.namespace, "")
    } else {
        Request::get(one.resource.object_path(&one.namespace, &one.name))
    };
    context.client().await?.tree(&request.accept(&accept(context, printer))).await
}

/// The current revision, without the objects.
async fn newest(context: &Context, select: &Select, one: &Watched) -> Result<String> {
    let mut query = select.query();
    query.chunk = 1;
    let list = context.client().await?.tree(&query.request(&one.resource, &one.namespace, "")).await?;
    Ok(list.str("metadata.resourceVersion").to_string())
}

fn watch_request(context: &Context, select: &Select, printer: &Printer, one: &Watched, revision: &str) -> Request {
    let mut query = select.query();
    query.chunk = 0;
    if !one.name.is_empty() {
        query.field_selector = format!("metadata.name={}", one.name);
    }
    let request = query.request(&one.resource, &one.namespace, "").accept(&accept(context, printer));
    Request { is_long: !context.flags.changed("request-timeout"), ..request }
        .query("watch", "true")
        .query("resourceVersion", revision)
}

type Event = (usize, Result<(String, Tree)>);

async fn spawn(context: &Context, at: usize, request: Request, sender: mpsc::Sender<Event>) -> Result<()> {
    let client = context.client().await?.clone();
    let mut lines = client.send(&request).await?.lines();
    tokio::spawn(async move {
        while let Some(line) = lines.next().await {
            // A watch with a limit ends with it, and that is no failure.
            if matches!(line, Err(Error::ReadTimeout)) {
                break;
            }
            let event = line.and_then(|line| parse(&line));
            let is_end = event.is_err();
            if sender.send((at, event)).await.is_err() || is_end {
                break;
            }
        }
    });
    Ok(())
}

fn parse(line: &[u8]) -> Result<(String, Tree)> {
    let event = json::decode(line)
        .map_err(|error| Error::new(format!("unable to decode an event from the watch stream: {error}")))?;
    let kind = event.str("type").to_string();
    if kind == "ERROR" {
        let status = api::status::Status::from_tree(event.at("object"));
        return Err(Error::Server { status: Box::new(status), context: String::new() });
    }
    let Tree::Map(mut map) = event else { return Err(Error::new("unable to decode an event from the watch stream")) };
    Ok((kind, map.remove("object").unwrap_or_default()))
}

/// The printers of all types.
struct Output<'a> {
    context: &'a Context,
    printer: &'a Printer,
    tables: Vec<TablePrinter>,
    tabs: TabWriter,
    last: usize,
}

impl<'a> Output<'a> {
    fn new(context: &'a Context, printer: &'a Printer, watched: &[Watched]) -> Output<'a> {
        let table = |one: &Watched| {
            let mut options = options(context, printer, &one.resource, watched.len() > 1);
            options.with_events = context.flags.bool("output-watch-events");
            TablePrinter::new(options)
        };
        Output { context, printer, tables: watched.iter().map(table).collect(), tabs: TabWriter::default(), last: 0 }
    }

    fn initial(&mut self, at: usize, list: &Tree) -> Result<()> {
        if self.printer.is_human() {
            return self.row(at, "ADDED", list);
        }
        for item in crate::objects::flatten(list.clone()) {
            self.object("ADDED", &item)?;
        }
        Ok(())
    }

    fn event(&mut self, at: usize, kind: &str, object: &Tree) -> Result<()> {
        match kind {
            "BOOKMARK" => Ok(()),
            _ if self.printer.is_human() => self.row(at, kind, object),
            _ => self.object(kind, object),
        }
    }

    fn row(&mut self, at: usize, kind: &str, object: &Tree) -> Result<()> {
        if self.last != at {
            self.tabs.forget();
            self.last = at;
        }
        // Events are aligned to nine characters, so that a deletion does not shift the columns.
        self.tables[at].print(object, &format!("{kind:<8}"), &mut self.tabs);
        if self.tabs.is_empty() { Ok(()) } else { self.context.print(&self.tabs.flush()) }
    }

    fn object(&mut self, kind: &str, object: &Tree) -> Result<()> {
        if self.context.flags.bool("output-watch-events") {
            let event = tree! { "type" => kind, "object" => self.printer.shown(object) };
            return self.printer.print(self.context, &event);
        }
        self.printer.print(self.context, object)
    }
}
