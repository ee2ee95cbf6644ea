//! The kinds of volumes, one file each. A kind reads the pod and the objects that it refers to, and returns a plan.

mod config_map;
mod csi;
mod downward_api;
mod empty_dir;
mod error;
mod host_path;
mod image;
mod local;
mod nfs;
mod projected;
mod secret;

use std::path::PathBuf;
use std::pin::Pin;

use api::Tree;

use super::plan::{Failure, Plan};
use super::{Host, Owner};

pub(crate) use empty_dir::memory;

/// A volume has the field of exactly one kind.
pub(crate) const KINDS: &[Kind] = &[
    empty_dir::KIND,
    config_map::KIND,
    secret::KIND,
    projected::KIND,
    downward_api::KIND,
    host_path::KIND,
    image::KIND,
    // These can be persistent volumes too, as host paths can.
    local::KIND,
    nfs::KIND,
    csi::KIND,
];

pub(crate) struct Kind {
    /// The field that a volume of this kind has.
    pub(crate) field: &'static str,
    /// The directory below `volumes`: upstream's name of the plugin with its slash as a tilde.
    pub(crate) directory: &'static str,
    /// Its content can change while the pod runs.
    pub(crate) refreshes: bool,
    pub(crate) plan: for<'a> fn(&'a VolumeContext<'a>) -> PlanFuture<'a>,
}

pub(crate) type PlanFuture<'a> = Pin<Box<dyn Future<Output = Result<Plan, Failure>> + Send + 'a>>;

/// One volume, with the context that its kind needs.
pub(crate) struct VolumeContext<'a> {
    pub(crate) host: &'a Host,
    pub(crate) pod: &'a Tree,
    /// The value of the kind's field.
    pub(crate) source: &'a Tree,
    /// The persistent volume; None for a volume of the pod itself.
    pub(crate) persistent: Option<&'a Tree>,
    /// Its directory: the volume's name, or the persistent volume's.
    pub(crate) name: &'a str,
    pub(crate) dir: PathBuf,
    /// Whether the pod mounts the volume read-only.
    pub(crate) read_only: bool,
    pub(crate) owner: &'a Owner,
}

/// The kind of a volume: of a pod's entry, or of a persistent volume's spec.
pub(crate) fn of(volume: &Tree) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| volume.has(kind.field))
}

/// The mode of an item, or the default of the volume.
fn mode(item: &Tree, default: u32) -> u32 {
    item.int("mode").and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default)
}

fn default_mode(source: &Tree) -> u32 {
    source.int("defaultMode").and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644)
}
