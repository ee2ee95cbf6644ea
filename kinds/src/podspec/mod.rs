//! Pod specs and templates of pods and workloads: defaults, validation and warnings.

pub(crate) mod affinity;
pub(crate) mod annotations;
mod check;
pub(crate) mod claim;
pub(crate) mod container;
mod defaults;
mod disabled;
mod dns;
mod env;
mod image;
mod mounts;
mod probe;
pub mod qos;
pub(crate) mod resources;
mod security;
mod selector;
pub(crate) mod small_set;
pub(crate) mod spec;
mod template;
pub(crate) mod toleration;
pub mod total;
pub(crate) mod volume;
pub(crate) mod warnings;

use api::Tree;
use api::field::Path;

pub(crate) use annotations::drop_init_container_annotations;
pub use defaults::set_pod_defaults;
pub(crate) use defaults::{azure_disk, iscsi, rbd, scale_io, set_pod_level_resources, set_template_defaults};
pub(crate) use disabled::{drop_disabled, drop_disabled_template};
pub(crate) use selector::validate_label_selector;
pub(crate) use template::validate_template;
pub(crate) use warnings::{pod_warnings, template_warnings};

/// Calls `visit` for every container with its path: init containers, containers, then ephemeral containers.
pub(crate) fn for_each_container(spec: &Tree, path: &Path<'_>, visit: &mut dyn FnMut(&Tree, &Path<'_>)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let path = path.field(list);
        for (index, container) in spec.list(list).iter().enumerate() {
            visit(container, &path.index(index));
        }
    }
}

/// The names and images of the containers, for tables.
pub(crate) fn names_and_images(spec: &Tree) -> (String, String) {
    let join = |key: &str| {
        let texts: Vec<&str> = spec.list("containers").iter().map(|container| container.str(key)).collect();
        texts.join(",")
    };
    (join("name"), join("image"))
}
