//! The arguments that select a cluster of this machine, by its name or its data directory.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::machine::instance::{DEFAULT_NAME, Directories};

/// Selects a cluster of this machine.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct InstanceArguments {
    /// The name of the cluster, for several on one machine; `tiphys list` shows them
    #[arg(long, global = true, conflicts_with = "data_dir")]
    name: Option<String>,
    /// The data directory of the cluster [default: ./data, or that of --name]
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl InstanceArguments {
    /// Those of a data directory.
    pub(super) fn of(data_dir: PathBuf) -> InstanceArguments {
        InstanceArguments { name: None, data_dir: Some(data_dir) }
    }

    /// Those of a named cluster.
    #[cfg(test)]
    pub(super) fn named(name: &str) -> InstanceArguments {
        InstanceArguments { name: Some(name.to_string()), data_dir: None }
    }

    /// The data directory, which may not exist yet.
    pub(crate) fn data_dir(&self) -> Result<PathBuf> {
        match (&self.name, &self.data_dir) {
            (Some(name), _) => Directories::of_user().data_dir(name),
            (None, Some(directory)) => Ok(directory.clone()),
            (None, None) => Ok(PathBuf::from("./data")),
        }
    }

    /// The canonical path of an existing data directory.
    pub(super) fn existing(&self) -> Result<PathBuf> {
        let path = self.data_dir()?;
        std::fs::canonicalize(&path).map_err(|_| {
            Error::Flags(vec![format!(
                "there is no cluster in {}: name one by --name or --data-dir; `tiphys list` shows the clusters of this \
                 machine, `tiphys up` starts one",
                path.display()
            )])
        })
    }

    /// The name of the cluster in messages, lists and kubeconfigs.
    pub(crate) fn cluster_name(&self) -> &str {
        self.name.as_deref().unwrap_or(DEFAULT_NAME)
    }

    /// The flag that selects the same cluster in a command, for hints.
    pub(crate) fn flag(&self) -> String {
        match (&self.name, &self.data_dir) {
            (Some(name), _) => format!(" --name {name}"),
            (None, Some(directory)) => format!(" --data-dir {}", directory.display()),
            (None, None) => String::new(),
        }
    }
}
