//! `--live`: a table that stays up to date on a terminal. Changes wake it; nothing is polled except the ages.

use std::io::IsTerminal;
use std::time::Duration;

use crate::context::Context;
use crate::error::{Result, message};
use crate::objects::Select;
use crate::print::{Printer, TabWriter, TablePrinter};
use crate::transport::Request;

use super::human::{TABLE, options, table_query};
use super::watch::watched;

/// Changes in this time are shown together.
const PAUSE: Duration = Duration::from_millis(200);
/// Ages change without events.
const AGE: Duration = Duration::from_secs(10);

pub(super) async fn run(context: &Context, select: &Select) -> Result<()> {
    let printer = Printer::new(context, true)?;
    if !printer.is_human() {
        return message("--live shows tables only");
    }
    if !std::io::stdout().is_terminal() {
        return message("--live needs a terminal; use --watch");
    }
    tokio::select! {
        result = show(context, select, &printer) => result,
        // From the start: a signal between two tables counts too.
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn show(context: &Context, select: &Select, printer: &Printer) -> Result<()> {
    let watched = watched(context, select).await?;
    let (sender, mut changes) = tokio::sync::mpsc::channel(1);
    loop {
        let mut text = String::from("\u{1b}[H\u{1b}[J");
        for one in &watched {
            let mut query = table_query(context, select);
            query.chunk = 0;
            if !one.name.is_empty() {
                query.field_selector = format!("metadata.name={}", one.name);
            }
            let request = query.request(&one.resource, &one.namespace, "").accept(TABLE);
            let table = context.client().await?.tree(&request).await?;
            let mut tabs = TabWriter::default();
            TablePrinter::new(options(context, printer, &one.resource, watched.len() > 1)).print(&table, "", &mut tabs);
            text.push_str(&tabs.flush());
            let revision = table.str("metadata.resourceVersion").to_string();
            wake_on_change(context, Request { is_long: true, ..request }, &revision, sender.clone()).await?;
        }
        context.print(&text)?;
        context.flush()?;
        tokio::select! {
            _ = changes.recv() => tokio::time::sleep(PAUSE).await,
            () = tokio::time::sleep(AGE) => {}
        }
        // What else has changed in between is in the next table.
        while changes.try_recv().is_ok() {}
    }
}

async fn wake_on_change(
    context: &Context,
    request: Request,
    revision: &str,
    sender: tokio::sync::mpsc::Sender<()>,
) -> Result<()> {
    let request = request.query("watch", "true").query("resourceVersion", revision);
    let mut lines = context.client().await?.send(&request).await?.lines();
    tokio::spawn(async move {
        let _ = tokio::time::timeout(AGE, lines.next()).await;
        let _ = sender.try_send(());
    });
    Ok(())
}
