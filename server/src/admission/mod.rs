//! Admission: plugins that may change an object, then plugins that may refuse it, in one order.

mod builtin;

use api::Tree;
use api::status::Status;
use kinds::User;

use crate::Server;
use crate::resource::Resource;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// What a plugin may know of a request.
pub struct Attributes<'a> {
    pub server: &'a Server,
    pub resource: &'a Resource,
    pub operation: Operation,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
    pub user: &'a User,
    pub dry_run: bool,
}

impl Attributes<'_> {
    /// True for a write to the object itself of this kind.
    pub fn is(&self, group: &str, kind: &str, operation: Operation) -> bool {
        self.operation == operation
            && self.subresource.is_empty()
            && self.resource.kind.group == group
            && self.resource.kind.kind == kind
    }

    pub fn forbidden(&self, why: &str) -> Status {
        let kind = self.resource.kind;
        Status::forbidden(kind.group, kind.plural, self.name, why)
    }
}

pub type Mutate = fn(&Attributes<'_>, &mut Tree, Option<&Tree>, &mut Vec<String>) -> Result<(), Status>;
pub type Validate = fn(&Attributes<'_>, Option<&Tree>, Option<&Tree>, &mut Vec<String>) -> Result<(), Status>;

/// A plugin under upstream's name.
pub struct Plugin {
    pub name: &'static str,
    pub mutate: Option<Mutate>,
    pub validate: Option<Validate>,
}

/// The plugins that are there, all of them on.
pub fn plugin_names() -> impl Iterator<Item = &'static str> {
    PLUGINS.iter().map(|plugin| plugin.name)
}

/// In upstream's order. What is missing of it comes with the rest of the gate.
static PLUGINS: &[Plugin] = &[
    // First: nothing else is worth looking at in a namespace that is missing or going.
    Plugin {
        name: "NamespaceLifecycle",
        mutate: Some(builtin::namespace_lifecycle),
        validate: Some(builtin::immortal_namespaces),
    },
    // A new node is not ready until its kubelet says so.
    Plugin { name: "TaintNodesByCondition", mutate: Some(builtin::taint_new_nodes), validate: None },
    Plugin { name: "DefaultTolerationSeconds", mutate: Some(builtin::default_toleration_seconds), validate: None },
    Plugin { name: "StorageObjectInUseProtection", mutate: Some(builtin::storage_protection), validate: None },
];

pub async fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    for plugin in PLUGINS {
        if let Some(mutate) = plugin.mutate {
            mutate(attributes, object, old, warnings)?;
        }
    }
    Ok(())
}

pub async fn validate(
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    for plugin in PLUGINS {
        if let Some(validate) = plugin.validate {
            validate(attributes, object, old, warnings)?;
        }
    }
    Ok(())
}
