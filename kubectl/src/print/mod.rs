//! Output formats: JSON, YAML, KYAML, names, templates, columns and tables.

mod columns;
mod json;
mod kyaml;
mod path;
mod printer;
mod table;
mod tabs;

pub(crate) use json::{ListWriter, pretty};
pub(crate) use kyaml::encode as encode_kyaml;
pub(crate) use path::JsonPath;
pub(crate) use printer::list_of;
pub(crate) use printer::{Format, PRINT, Printer};
pub(crate) use table::{TableOptions, TablePrinter, is_table};
pub(crate) use tabs::TabWriter;
