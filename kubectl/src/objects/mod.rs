//! The objects that a command works on: from files, from the standard input, from URLs, and from the server by type,
//! name and selector.

mod files;
mod guess;
mod kinds;
mod parse;
mod select;

pub(crate) use files::{Files, read_documents};
pub(crate) use guess::guess;
pub(crate) use parse::{DocumentError, documents, parse_document};
pub(crate) use select::{Found, ListQuery, Select, Target, flatten, get_named, get_object, list_pages, split_list};

use api::Tree;

use crate::discovery::Resource;
use crate::flags::{Flag, Kind, switch, text, typed};

/// An object and where it belongs.
#[derive(Debug, Clone)]
pub(crate) struct Info {
    pub(crate) resource: Resource,
    /// Empty for objects without a namespace.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) object: Tree,
    /// The file, if it is from one.
    pub(crate) source: String,
}

impl Info {
    /// `deployment.apps/web`.
    pub(crate) fn label(&self) -> String {
        format!("{}/{}", self.resource.kind_name(), self.name)
    }

    /// The path of the object.
    pub(crate) fn path(&self) -> String {
        self.resource.object_path(&self.namespace, &self.name)
    }
}

/// `-f`, `-k`, `-R`.
pub(crate) const FILES: &[Flag] = &[
    typed("filename", 'f', Kind::Slice, "", "File, directory, or URL with objects; - is the standard input."),
    text("kustomize", 'k', "", "A kustomization directory. It excludes -f and -R."),
    switch("recursive", 'R', "Read the directories of -f recursively."),
];

/// `-l`.
pub(crate) const SELECTOR: &[Flag] =
    &[text("selector", 'l', "", "Label selector, such as -l key1=value1,key2=value2.")];
