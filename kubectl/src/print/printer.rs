//! The printer that `-o` chooses.

use std::cell::{Cell, RefCell};

use api::{Tree, tree, yaml};

use super::columns::Columns;
use super::json::pretty;
use super::path::JsonPath;
use crate::context::Context;
use crate::error::{Result, io_text, message};
use crate::flags::{Flag, switch, switch_on, text};

/// `-o`, `--template`, `--allow-missing-template-keys`, `--show-managed-fields`.
pub(crate) const PRINT: &[Flag] = &[
    text(
        "output",
        'o',
        "",
        "Output format. One of: (json, yaml, kyaml, name, go-template, go-template-file, template, templatefile, jsonpath, jsonpath-as-json, jsonpath-file).",
    ),
    text("template", '\0', "", "Template, or a file with one, for -o go-template and -o go-template-file."),
    switch_on("allow-missing-template-keys", '\0', "Ignore fields of a template that an object does not have."),
    switch("show-managed-fields", '\0', "Keep managedFields in JSON and YAML."),
];

const GENERIC: &[&str] = &[
    "go-template",
    "go-template-file",
    "json",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "kyaml",
    "name",
    "template",
    "templatefile",
    "yaml",
];
const WITH_TABLES: &[&str] = &[
    "custom-columns",
    "custom-columns-file",
    "go-template",
    "go-template-file",
    "json",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "kyaml",
    "name",
    "template",
    "templatefile",
    "wide",
    "yaml",
];

/// The formats, as the error for an unknown one lists them.
pub(crate) fn allowed(with_tables: bool) -> &'static [&'static str] {
    if with_tables { WITH_TABLES } else { GENERIC }
}

/// An output format.
#[derive(Debug)]
pub(crate) enum Format {
    /// A table, or a message about what was done.
    Human,
    Wide,
    Name,
    Json,
    Yaml,
    Kyaml,
    JsonPath {
        path: JsonPath,
        as_json: bool,
    },
    Template(Box<gotemplate::Template>, String),
    Columns(RefCell<Columns>),
}

/// Prints objects one after the other.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) format: Format,
    keeps_managed_fields: bool,
    count: Cell<usize>,
}

impl Printer {
    /// The printer of the flags.
    pub(crate) fn new(context: &Context, with_tables: bool) -> Result<Printer> {
        let flags = &context.flags;
        let format = format(context, flags.str("output"), flags.str("template"), with_tables)?;
        Ok(Printer { format, keeps_managed_fields: flags.bool("show-managed-fields"), count: Cell::new(0) })
    }

    /// Whether a message or a table is printed.
    pub(crate) fn is_human(&self) -> bool {
        matches!(self.format, Format::Human | Format::Wide)
    }

    /// Prints a message about an object, or the object in the format.
    pub(crate) fn print_result(&self, context: &Context, object: &Tree, operation: &str) -> Result<()> {
        match self.format {
            Format::Human | Format::Wide => context.print(&format!("{}{operation}\n", with_space(&name_line(object)))),
            _ => self.print(context, object),
        }
    }

    /// Prints an object in the format.
    pub(crate) fn print(&self, context: &Context, object: &Tree) -> Result<()> {
        let first = self.count.replace(self.count.get() + 1) == 0;
        match &self.format {
            Format::Human | Format::Wide | Format::Name => self.print_names(context, object),
            Format::Json => context.write(&pretty(&self.shown(object))),
            Format::Yaml => {
                if !first {
                    context.print("---\n")?;
                }
                context.write(&yaml::encode(&self.shown(object)))
            }
            Format::Kyaml => context.print(&super::kyaml::encode(&self.shown(object))),
            Format::JsonPath { path, as_json: false } => context.print(&path.execute(object)?),
            Format::JsonPath { path, as_json: true } => context.print(&path.execute_json(object)?),
            Format::Template(template, text) => {
                let mut out = Vec::new();
                let result = template.execute(object, &mut out);
                context.write(&out)?;
                result.or_else(|error| {
                    let object = String::from_utf8_lossy(&api::json::encode(object, None)).into_owned();
                    context.print(&format!(
                        "Error executing template: {error}. Printing more information for debugging the template:\n\
                         \ttemplate was:\n\t\t{text}\n\traw data was:\n\t\t{object}\n\n"
                    ))?;
                    message(format!("error executing template {}: {error}", api::field::go_quote(text)))
                })
            }
            Format::Columns(columns) => {
                let text = match object.at("items").as_list().filter(|_| object.str("kind").ends_with("List")) {
                    Some(items) => columns.borrow_mut().print(items.iter())?,
                    None => columns.borrow_mut().print(std::iter::once(object))?,
                };
                context.print(&text)
            }
        }
    }

    fn print_names(&self, context: &Context, object: &Tree) -> Result<()> {
        match object.at("items").as_list().filter(|_| object.str("kind").ends_with("List")) {
            Some(items) => items.iter().try_for_each(|item| context.print(&format!("{}\n", name_line(item)))),
            None => context.print(&format!("{}\n", name_line(object))),
        }
    }

    /// The object as JSON and YAML show it.
    pub(crate) fn shown(&self, object: &Tree) -> Tree {
        let mut object = object.clone();
        if self.keeps_managed_fields {
            return object;
        }
        if let Some(metadata) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        if let Some(Tree::List(items)) = object.get_mut("items") {
            for item in items {
                if let Some(metadata) = item.get_mut("metadata") {
                    metadata.remove("managedFields");
                }
            }
        }
        object
    }
}

fn with_space(text: &str) -> String {
    format!("{text} ")
}

/// `deployment.apps/web`.
pub(crate) fn name_line(object: &Tree) -> String {
    let kind = object.str("kind").to_lowercase();
    let kind = if kind.is_empty() { "<unknown>".to_string() } else { kind };
    let name = object.str("metadata.name");
    let name = if name.is_empty() { "<unknown>" } else { name };
    match object.str("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

fn format(context: &Context, output: &str, template: &str, with_tables: bool) -> Result<Format> {
    let (name, argument) = output.split_once('=').unwrap_or((output, ""));
    // `-o jsonpath={...}`, and `-o jsonpath --template={...}`.
    let argument = if argument.is_empty() { template } else { argument };
    let missing = context.flags.bool("allow-missing-template-keys");
    let required = |kind: &str| {
        if argument.is_empty() {
            message::<()>(format!("template format specified but no {kind} given"))
        } else {
            Ok(())
        }
    };
    match name {
        "" if !template.is_empty() => go_template(template, missing),
        "" => Ok(Format::Human),
        "wide" if with_tables => Ok(Format::Wide),
        "name" => Ok(Format::Name),
        "json" => Ok(Format::Json),
        "yaml" => Ok(Format::Yaml),
        "kyaml" => Ok(Format::Kyaml),
        "jsonpath" | "jsonpath-as-json" | "jsonpath-file" => {
            required("template")?;
            let text = if name == "jsonpath-file" { read_template(argument)? } else { argument.to_string() };
            let path = JsonPath::parse(&text)?;
            let path = if missing { path } else { path.strict() };
            Ok(Format::JsonPath { path, as_json: name == "jsonpath-as-json" })
        }
        "go-template" | "template" => {
            required("template")?;
            go_template(argument, missing)
        }
        "go-template-file" | "templatefile" => {
            required("template")?;
            go_template(&read_template(argument)?, missing)
        }
        "custom-columns" if with_tables => {
            let columns = Columns::parse(argument, context.flags.bool("no-headers"))?;
            Ok(Format::Columns(RefCell::new(columns)))
        }
        "custom-columns-file" if with_tables => {
            if argument.is_empty() {
                return message("custom-columns-file format specified but no custom columns given");
            }
            Ok(Format::Columns(RefCell::new(Columns::parse_file(&read_columns(argument)?)?)))
        }
        _ => message(format!(
            "unable to match a printer suitable for the output format \"{output}\", allowed formats are: {}",
            allowed(with_tables).join(",")
        )),
    }
}

fn go_template(text: &str, allow_missing_keys: bool) -> Result<Format> {
    match gotemplate::Template::parse("output", text) {
        Ok(template) => {
            Ok(Format::Template(Box::new(template.allow_missing_keys(allow_missing_keys)), text.to_string()))
        }
        Err(error) => message(format!("error parsing template {text}, {error}")),
    }
}

fn read_columns(path: &str) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) => message(format!("error reading template {path}, open {path}: {}", io_text(&error))),
    }
}

fn read_template(path: &str) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) => message(format!("error reading --template {path}, open {path}: {}", io_text(&error))),
    }
}

/// Several objects as one List.
pub(crate) fn list_of(items: Vec<Tree>) -> Tree {
    tree! { "apiVersion" => "v1", "kind" => "List", "items" => items, "metadata" => tree! { "resourceVersion" => "" } }
}
