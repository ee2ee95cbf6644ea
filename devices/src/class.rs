//! Device classes.

use std::sync::Arc;

use api::{Str, Tree};

/// A device class: which devices it has, and their configuration.
#[derive(Debug, Clone)]
pub struct DeviceClass {
    pub name: Str,
    /// When it was created, as written.
    pub created: Str,
    /// Expressions that a device of the class satisfies.
    pub selectors: Vec<Arc<str>>,
    pub config: Vec<Tree>,
    /// The extended resource that its devices provide besides the implicit one.
    pub extended_resource: Option<Str>,
}

impl DeviceClass {
    /// Reads a DeviceClass.
    pub fn read(class: &Tree) -> DeviceClass {
        DeviceClass {
            name: Str::new(class.str("metadata.name")),
            created: Str::new(class.str("metadata.creationTimestamp")),
            selectors: read_selectors(class.list("spec.selectors")),
            config: class.list("spec.config").to_vec(),
            extended_resource: class.at("spec.extendedResourceName").as_str().map(Str::new),
        }
    }
}

/// The expressions of selectors.
pub(crate) fn read_selectors(selectors: &[Tree]) -> Vec<Arc<str>> {
    selectors.iter().map(|selector| Arc::from(selector.str("cel.expression"))).collect()
}
