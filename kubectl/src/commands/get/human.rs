//! Tables.

use api::Tree;

use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::objects::{ListQuery, Select, Target, get_named, list_pages};
use crate::print::{Format, Printer, TabWriter, TableOptions, TablePrinter};
use crate::transport::Request;

use super::sort;

/// Tables, and objects from servers that have none.
pub(super) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
                                application/json";

pub(super) async fn run(context: &Context, select: &Select, printer: &Printer) -> Result<()> {
    let flags = &context.flags;
    let targets = select.targets(context).await?;
    let mut errors = targets.errors;
    let mut tables: Vec<(Resource, Tree)> = Vec::new();
    for target in &targets.targets {
        match read(context, select, target, &mut tables).await {
            Ok(()) => {}
            Err(error) if flags.bool("ignore-not-found") && error.is_not_found() => {}
            Err(error) => errors.push(error),
        }
    }
    let mut kinds: Vec<&Resource> = tables.iter().map(|(resource, _)| resource).collect();
    kinds.dedup_by_key(|resource| (&resource.group, &resource.version, &resource.kind));
    let with_kind = kinds.iter().any(|one| *one != kinds[0]);
    let is_namespaced = !flags.bool("all-namespaces") && tables.iter().all(|(resource, _)| resource.is_namespaced);
    print(context, printer, tables, with_kind)?;
    if context.written() == 0 && !flags.bool("ignore-not-found") && errors.is_empty() {
        if is_namespaced {
            context.note(&format!("No resources found in {} namespace.", context.namespace()?.0));
        } else {
            context.note("No resources found");
        }
    }
    Error::all(errors)
}

fn print(context: &Context, printer: &Printer, tables: Vec<(Resource, Tree)>, with_kind: bool) -> Result<()> {
    let mut last: Option<Resource> = None;
    let mut table_printer = TablePrinter::default();
    let mut tabs = TabWriter::default();
    let mut group_start = context.written();
    for (resource, mut table) in tables {
        if !context.flags.str("sort-by").is_empty() {
            sort::table(context.flags.str("sort-by"), &mut table)?;
        }
        if last.as_ref() != Some(&resource) {
            context.print(&tabs.flush())?;
            tabs.forget();
            let needs_gap = last.is_some() && !context.flags.bool("no-headers") && context.written() > group_start;
            if needs_gap && !table.list("rows").is_empty() {
                group_start = context.written();
                context.print("\n")?;
            }
            table_printer = TablePrinter::new(options(context, printer, &resource, with_kind));
            last = Some(resource);
        }
        table_printer.print(&table, "", &mut tabs);
    }
    context.print(&tabs.flush())
}

/// The options of a type's table.
pub(super) fn options(context: &Context, printer: &Printer, resource: &Resource, with_kind: bool) -> TableOptions {
    let flags = &context.flags;
    TableOptions {
        no_headers: flags.bool("no-headers"),
        is_wide: matches!(printer.format, Format::Wide),
        with_namespace: flags.bool("all-namespaces") && resource.is_namespaced,
        kind: if with_kind || flags.bool("show-kind") { resource.kind_name() } else { String::new() },
        show_labels: flags.bool("show-labels"),
        label_columns: flags.list("label-columns"),
        with_events: false,
    }
}

/// The query of lists as tables.
pub(super) fn table_query(context: &Context, select: &Select) -> ListQuery {
    let mut query = select.query();
    if context.flags.bool("server-print") {
        query.accept = TABLE.to_string();
        if !context.flags.str("sort-by").is_empty() {
            query.extra.push(("includeObject", "Object".to_string()));
        }
    }
    query
}

async fn read(context: &Context, select: &Select, target: &Target, tables: &mut Vec<(Resource, Tree)>) -> Result<()> {
    let query = table_query(context, select);
    match target {
        Target::List { resource, namespace } => {
            list_pages(context, resource, namespace, &query, async |page| {
                if crate::print::is_table(&page) {
                    tables.push((resource.clone(), page));
                } else {
                    let infos = crate::objects::split_list(resource, page);
                    tables.extend(infos.into_iter().map(|info| (resource.clone(), info.object)));
                }
                Ok(())
            })
            .await
        }
        Target::Object { resource, namespace, name } => {
            let table = read_one(context, select, &query, resource, namespace, name).await?;
            tables.push((resource.clone(), table));
            Ok(())
        }
        Target::File(info) => {
            let table = read_one(context, select, &query, &info.resource, &info.namespace, &info.name).await?;
            tables.push((info.resource.clone(), table));
            Ok(())
        }
    }
}

async fn read_one(
    context: &Context,
    select: &Select,
    query: &ListQuery,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Tree> {
    let mut path = resource.object_path(namespace, name);
    if !select.subresource.is_empty() {
        path = format!("{path}/{}", select.subresource);
    }
    let mut request = Request::get(path);
    if !query.accept.is_empty() {
        request = request.accept(&query.accept);
    }
    for (name, value) in &query.extra {
        request = request.query(name, value);
    }
    get_named(context, request.at(&query.at), namespace).await
}
