//! JSON, YAML, names, templates, columns.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::objects::{Found, Select, Target, list_pages, split_list};
use crate::print::{Format, ListWriter, Printer, list_of};

use super::sort;

pub(super) async fn run(context: &Context, select: &Select, printer: &Printer) -> Result<()> {
    let flags = &context.flags;
    let sort_by = flags.str("sort-by");
    if sort_by.is_empty()
        && let Some(result) = stream(context, select, printer).await
    {
        return result;
    }
    let mut found = select.find(context).await?;
    if flags.bool("ignore-not-found") {
        found.errors.retain(|error| !error.is_not_found());
        if found.infos.is_empty() && found.errors.is_empty() {
            return Ok(());
        }
    }
    let Found { infos, errors, is_single, .. } = found;
    let mut objects: Vec<_> = infos.into_iter().map(|info| info.object).collect();
    if !sort_by.is_empty() {
        sort::objects(sort_by, &mut objects)?;
    }
    if is_single {
        if let Some(object) = objects.first() {
            printer.print(context, object)?;
        }
    } else if !objects.is_empty() || errors.is_empty() {
        printer.print(context, &list_of(objects))?;
    }
    Error::all(errors)
}

/// A list of one type as it arrives, where the output allows: memory holds one page.
async fn stream(context: &Context, select: &Select, printer: &Printer) -> Option<Result<()>> {
    if !matches!(printer.format, Format::Json | Format::Name) || !select.files.is_empty() {
        return None;
    }
    let targets = match select.targets(context).await {
        Ok(targets) => targets,
        Err(error) => return Some(Err(error)),
    };
    let [Target::List { resource, namespace }] = targets.targets.as_slice() else { return None };
    let mut writer = ListWriter::default();
    let query = select.query();
    let result = list_pages(context, resource, namespace, &query, async |page| {
        for info in split_list(resource, page) {
            match printer.format {
                Format::Json => context.write(&writer.item(&printer.shown(&info.object)))?,
                _ => printer.print(context, &info.object)?,
            }
        }
        Ok(())
    });
    let result = result.await;
    Some(
        result.and_then(|()| if matches!(printer.format, Format::Json) { context.write(writer.end()) } else { Ok(()) }),
    )
}
