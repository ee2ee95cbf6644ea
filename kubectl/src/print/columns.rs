//! `-o custom-columns`.

use api::Tree;

use super::path::JsonPath;
use super::tabs::TabWriter;
use crate::error::{Result, message};

/// Columns by the user's paths.
#[derive(Debug)]
pub(crate) struct Columns {
    columns: Vec<(String, JsonPath)>,
    no_headers: bool,
    has_headers: bool,
    tabs: TabWriter,
}

impl Columns {
    /// `NAME:.metadata.name,AGE:.metadata.creationTimestamp`.
    pub(crate) fn parse(spec: &str, no_headers: bool) -> Result<Columns> {
        if spec.is_empty() {
            return message("custom-columns format specified but no custom columns given");
        }
        let mut columns = Vec::new();
        for part in spec.split(',') {
            let Some((header, path)) = part.split_once(':') else {
                return message(format!("unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>"));
            };
            columns.push((header.to_string(), JsonPath::relaxed(path)?));
        }
        Ok(Columns { columns, no_headers, has_headers: false, tabs: TabWriter::default() })
    }

    /// A file with a line of headers and a line of paths.
    pub(crate) fn parse_file(text: &str) -> Result<Columns> {
        const FORM: &str =
            "Expected format is one line of space separated headers, one line of space separated column specs.";
        let mut lines = text.lines();
        let Some(headers) = lines.next() else {
            return message(format!("invalid template, missing header line. {FORM}"));
        };
        let Some(paths) = lines.next() else { return message(format!("invalid template, missing spec line. {FORM}")) };
        let headers: Vec<&str> = headers.split_whitespace().collect();
        let paths: Vec<&str> = paths.split_whitespace().collect();
        if headers.len() != paths.len() {
            let (headers, paths) = (headers.len(), paths.len());
            return message(format!("number of headers ({headers}) and field specifications ({paths}) don't match"));
        }
        let mut columns = Vec::new();
        for (header, path) in headers.iter().zip(paths) {
            columns.push((header.to_string(), JsonPath::relaxed(path)?));
        }
        Ok(Columns { columns, no_headers: false, has_headers: false, tabs: TabWriter::default() })
    }

    /// The lines of objects, with the header before the first.
    pub(crate) fn print<'a>(&mut self, objects: impl Iterator<Item = &'a Tree>) -> Result<String> {
        if !self.no_headers && !self.has_headers {
            self.has_headers = true;
            self.tabs.line(self.columns.iter().map(|(header, _)| header.clone()).collect());
        }
        for object in objects {
            let mut cells = Vec::new();
            for (_, path) in &self.columns {
                let values = path.values(object)?;
                let texts: Vec<String> = values.iter().map(go_text).collect();
                cells.push(if texts.is_empty() { "<none>".to_string() } else { texts.join(",") });
            }
            self.tabs.line(cells);
        }
        Ok(self.tabs.flush())
    }
}

/// A value as Go prints it.
fn go_text(value: &Tree) -> String {
    match value {
        Tree::Str(text) => text.to_string(),
        Tree::Null => "<nil>".to_string(),
        other => api::patch::printed(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn prints_columns() {
        let object = tree! { "metadata" => tree! { "name" => "a" }, "spec" => tree! { "replicas" => 3 } };
        let mut columns = Columns::parse("NAME:.metadata.name,N:spec.replicas,X:{.no}", false).expect("columns");
        assert_eq!(columns.print([object].iter()).expect("printed"), "NAME   N     X\na      3     <none>\n");
        assert!(Columns::parse("NAME", false).is_err());
    }
}
