//! Tables: the server's columns, with those that the command line adds.

use api::Tree;

use super::tabs::TabWriter;
use crate::clock;

/// What the command line says about tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableOptions {
    pub(crate) no_headers: bool,
    pub(crate) is_wide: bool,
    pub(crate) with_namespace: bool,
    /// The kind before each name: `pod`, `deployment.apps`; empty without.
    pub(crate) kind: String,
    pub(crate) show_labels: bool,
    pub(crate) label_columns: Vec<String>,
    /// A column with the type of the watch event.
    pub(crate) with_events: bool,
}

/// Whether an object is a table.
pub(crate) fn is_table(object: &Tree) -> bool {
    object.str("kind") == "Table" && object.str("apiVersion").starts_with("meta.k8s.io/")
}

/// Prints tables, and the columns' names when they change.
#[derive(Debug, Default)]
pub(crate) struct TablePrinter {
    options: TableOptions,
    columns: Vec<(String, i64)>,
    has_headers: bool,
}

impl TablePrinter {
    /// A printer with these options.
    pub(crate) fn new(options: TableOptions) -> TablePrinter {
        TablePrinter { options, ..TablePrinter::default() }
    }

    /// Adds the rows of a table, or one row for an object that is none.
    pub(crate) fn print(&mut self, object: &Tree, event: &str, tabs: &mut TabWriter) {
        if !is_table(object) {
            return self.print_plain(object, event, tabs);
        }
        let columns: Vec<(String, i64)> = object
            .list("columnDefinitions")
            .iter()
            .map(|column| (column.str("name").to_string(), column.int("priority").unwrap_or(0)))
            .collect();
        if !columns.is_empty() && columns != self.columns {
            self.columns = columns;
            self.has_headers = false;
        }
        let rows = object.list("rows");
        if rows.is_empty() {
            return;
        }
        if !self.has_headers {
            self.has_headers = true;
            if !self.options.no_headers {
                tabs.line(self.header());
            }
        }
        let name_column = object
            .list("columnDefinitions")
            .iter()
            .position(|column| column.str("format") == "name" && column.str("type") == "string");
        for row in rows {
            tabs.line(self.row(row, event, name_column.unwrap_or(0)));
        }
    }

    fn header(&self) -> Vec<String> {
        let mut cells = Vec::new();
        if self.options.with_events {
            cells.push("EVENT".to_string());
        }
        if self.options.with_namespace {
            cells.push("NAMESPACE".to_string());
        }
        let shown = self.columns.iter().filter(|(_, priority)| self.options.is_wide || *priority == 0);
        cells.extend(shown.map(|(name, _)| name.to_uppercase()));
        cells.extend(
            self.options.label_columns.iter().map(|label| label.rsplit('/').next().unwrap_or_default().to_uppercase()),
        );
        if self.options.show_labels {
            cells.push("LABELS".to_string());
        }
        cells
    }

    fn row(&self, row: &Tree, event: &str, name_column: usize) -> Vec<String> {
        let mut cells = Vec::new();
        if self.options.with_events {
            cells.push(event.to_string());
        }
        if self.options.with_namespace {
            cells.push(row.str("object.metadata.namespace").to_string());
        }
        for (at, (cell, (_, priority))) in row.list("cells").iter().zip(&self.columns).enumerate() {
            if !self.options.is_wide && *priority != 0 {
                continue;
            }
            let mut text = cell_text(cell);
            if at == name_column && !self.options.kind.is_empty() {
                text = format!("{}/{text}", self.options.kind);
            }
            cells.push(text);
        }
        self.push_labels(row.at("object"), &mut cells);
        cells
    }

    fn push_labels(&self, object: &Tree, cells: &mut Vec<String>) {
        let labels = object.map("metadata.labels");
        for label in &self.options.label_columns {
            cells.push(labels.get(label).map_or(String::new(), cell_text));
        }
        if self.options.show_labels {
            let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={}", cell_text(value))).collect();
            cells.push(if pairs.is_empty() { "<none>".to_string() } else { pairs.join(",") });
        }
    }

    /// An object for which the server has no table: its name and age.
    fn print_plain(&mut self, object: &Tree, event: &str, tabs: &mut TabWriter) {
        let columns = vec![("Name".to_string(), 0), ("Age".to_string(), 0)];
        if self.columns != columns {
            self.columns = columns;
            if !self.options.no_headers {
                tabs.line(self.header());
            }
        }
        let name = object.str("metadata.name");
        let name =
            if self.options.kind.is_empty() { name.to_string() } else { format!("{}/{name}", self.options.kind) };
        let mut cells = Vec::new();
        if self.options.with_events {
            cells.push(event.to_string());
        }
        if self.options.with_namespace {
            cells.push(object.str("metadata.namespace").to_string());
        }
        cells.push(name);
        cells.push(age(object.str("metadata.creationTimestamp")));
        self.push_labels(object, &mut cells);
        tabs.line(cells);
    }
}

/// The age of a time; `<unknown>` without one.
pub(crate) fn age(time: &str) -> String {
    match api::time::parse(time) {
        Ok(time) => api::time::human_duration(clock::now() - time.seconds),
        Err(_) => "<unknown>".to_string(),
    }
}

/// One line, without characters that would control a terminal.
fn cell_text(cell: &Tree) -> String {
    match cell {
        Tree::Str(text) => match text.find(['\u{c}', '\n', '\r']) {
            Some(at) => format!("{}...", escaped(&text[..at])),
            None => escaped(text),
        },
        Tree::Null => String::new(),
        other => api::patch::printed(other),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\u{1b}', "^[").replace('\t', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn table() -> Tree {
        tree! {
            "kind" => "Table", "apiVersion" => "meta.k8s.io/v1",
            "columnDefinitions" => list![
                tree! { "name" => "Name", "type" => "string", "format" => "name", "priority" => 0 },
                tree! { "name" => "IP", "type" => "string", "priority" => 1 },
                tree! { "name" => "Restarts", "type" => "integer", "priority" => 0 },
            ],
            "rows" => list![tree! {
                "cells" => list!["a", "10.0.0.1", 3],
                "object" => tree! { "metadata" => tree! { "namespace" => "n", "labels" => tree! { "x/app" => "w" } } },
            }],
        }
    }

    #[test]
    fn prints_tables() {
        let check = |options: TableOptions, want: &str| {
            let mut tabs = TabWriter::default();
            TablePrinter::new(options).print(&table(), "ADDED", &mut tabs);
            assert_eq!(tabs.flush(), want);
        };
        let plain = TableOptions::default;
        check(plain(), "NAME   RESTARTS\na      3\n");
        check(TableOptions { is_wide: true, ..plain() }, "NAME   IP         RESTARTS\na      10.0.0.1   3\n");
        check(TableOptions { kind: "pod".into(), no_headers: true, ..plain() }, "pod/a   3\n");
        check(
            TableOptions {
                with_namespace: true,
                label_columns: vec!["x/app".into(), "y".into()],
                show_labels: true,
                ..plain()
            },
            "NAMESPACE   NAME   RESTARTS   APP   Y     LABELS\nn           a      3          w           x/app=w\n",
        );
        check(TableOptions { with_events: true, ..plain() }, "EVENT   NAME   RESTARTS\nADDED   a      3\n");
    }
}
