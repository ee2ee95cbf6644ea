//! Binding: assigns a pod to a node, with the annotations and labels of the scheduler.

use std::sync::Arc;

use api::Tree;
use api::status::Status;
use kinds::core::pod::binding;

use super::success;
use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::admission::{self, Operation};
use crate::registry::options::WriteOptions;
use crate::registry::respond;
use crate::registry::verbs::{self, check_namespace, update};
use crate::registry::write::{MODIFIED, Scope};
use crate::request::codec::ExpectedType;
use crate::storage::resource::Resource;
use crate::storage::store_status;

/// How often a binding is retried after a conflict.
const MAX_TRIES: usize = 64;

/// POST pods/NAME/binding, or POST bindings.
pub(super) async fn create(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let options = WriteOptions::parse(&call.head, "CreateOptions", false)?;
    let expected = ExpectedType::for_kind(&kinds::core::binding::KIND);
    let mut binding = verbs::read_expected(call, &expected, &options).await?;
    check_namespace(&mut binding, resource, &call.head.info.namespace)?;
    let name = binding.str("metadata.name").to_string();
    if !call.head.info.name.is_empty() && name != call.head.info.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    binding::validate(&binding).map_err(|status| *status)?;
    let pods = registry.storage.resources.find("", "v1", "pods").ok_or_else(Status::no_resource)?;
    let scope = Scope { subresource: "binding", ..verbs::scope(registry, &pods, call, options.dry_run)? };
    let attributes = scope.attributes(Operation::Create, &name);
    let mut warnings = Vec::new();
    let bound = match admission::admit(&attributes, &mut binding, &mut warnings).await {
        Ok(()) => bind(&scope, &name, &binding).await,
        Err(status) => Err(status),
    };
    call.warnings.append(&mut warnings);
    bound?;
    success(&call.head, 201)
}

/// Written as it is: a binding is not an update of the pod, and owns no fields.
async fn bind(scope: &Scope<'_>, name: &str, binding: &Tree) -> Result<(), Status> {
    let mut item = scope.current(name).await?;
    for _ in 0..MAX_TRIES {
        let old = scope.resource.read(&item);
        check_preconditions(scope.resource, binding, &old, name)?;
        let mut pod = old;
        binding::bind(&mut pod, binding, scope.now).map_err(|status| *status)?;
        if scope.dry_run {
            return Ok(());
        }
        match scope.put_at(name, &pod, item.revision).await {
            Ok(_) => return Ok(()),
            Err(store::Error::Conflict { .. }) => item = scope.newest(name).await?,
            Err(error) => return Err(store_status(error)),
        }
    }
    Err(Status::conflict("", "pods", name, MODIFIED))
}

fn check_preconditions(resource: &Resource, binding: &Tree, pod: &Tree, name: &str) -> Result<(), Status> {
    let uid = binding.str("metadata.uid");
    if !uid.is_empty() && uid != pod.str("metadata.uid") {
        return Err(update::wrong_uid(resource, uid, pod, name));
    }
    let version = binding.str("metadata.resourceVersion");
    if !version.is_empty() && version != pod.str("metadata.resourceVersion") {
        return Err(Status::conflict("", "pods", name, MODIFIED));
    }
    Ok(())
}
