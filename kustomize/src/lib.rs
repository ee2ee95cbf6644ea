//! kustomize: the resources of a directory with a kustomization file, as `kubectl kustomize` and `kubectl apply -k`
//! build them. Files are read through a trait; remote bases and Helm charts are refused. It must not know clusters.

#![warn(unreachable_pub)]

mod config;
mod document;
mod error;
mod field_spec;
mod fields;
mod files;
mod generate;
mod hash;
mod id;
mod kustomization;
mod merge;
mod origin;
mod references;
mod resource;
mod resources;
mod select;
mod sort;
mod target;
mod transform;
mod vars;

pub use error::Error;
pub use files::{Disk, Files};

use std::path::Path;

use api::{Tree, yaml};

/// The resources of a directory, and what its author should know.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// In the order of creation, unless `sortOptions` says otherwise.
    pub resources: Vec<Tree>,
    /// Warnings about deprecated fields.
    pub warnings: Vec<String>,
}

/// Options of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Files outside of the directory of the kustomization may be loaded.
    pub loads_from_anywhere: bool,
    /// Each resource gets the label `app.kubernetes.io/managed-by`.
    pub adds_managed_by_label: bool,
}

/// Builds the directory.
pub fn build(files: &dyn Files, directory: &Path, options: Options) -> Result<Built, Error> {
    target::build(files, directory, options)
}

/// Resources as YAML documents.
pub fn to_yaml(resources: &[Tree]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, resource) in resources.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(b"---\n");
        }
        out.extend_from_slice(&yaml::encode(resource));
    }
    out
}
