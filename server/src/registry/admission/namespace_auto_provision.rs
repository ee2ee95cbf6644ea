//! NamespaceAutoProvision: creates a missing namespace on the first write to it.

use api::status::Status;
use api::{Tree, tree};

use super::{Attributes, Operation, PluginFuture};
use crate::common::users::system_user;
use crate::registry::options::WriteOptions;
use crate::registry::write::Scope;
use crate::request::codec::Validation;

pub(crate) fn mutate<'a>(
    attributes: &'a Attributes<'_>,
    _: Option<&'a mut Tree>,
    _: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let concerns = attributes.operation == Operation::Create
        && !attributes.dry_run
        && attributes.resource.kind.namespaced
        && !attributes.namespace.is_empty();
    if !concerns || attributes.registry.storage.object("namespaces", attributes.namespace).is_some() {
        return None;
    }
    Some(Box::pin(provision(attributes)))
}

async fn provision(attributes: &Attributes<'_>) -> Result<(), Status> {
    let registry = attributes.registry;
    let resource = registry.storage.resources.find("", "v1", "namespaces").ok_or_else(Status::no_resource)?;
    let user = system_user();
    let scope = Scope {
        registry,
        resource: &resource,
        user: &user,
        namespace: "",
        subresource: "",
        now: registry.now(),
        dry_run: false,
        origin: None,
    };
    let mut namespace = tree! {
        "apiVersion" => "v1", "kind" => "Namespace", "metadata" => tree! { "name" => attributes.namespace },
    };
    resource.set_defaults(&mut namespace);
    let options = WriteOptions {
        dry_run: false,
        field_manager: "kube-apiserver".to_string(),
        validation: Validation::Ignore,
        force: false,
    };
    match scope.create(namespace, &options, &mut Vec::new()).await {
        Err(status) if status.reason != "AlreadyExists" => Err(attributes.forbidden(&status.message)),
        _ => Ok(()),
    }
}
