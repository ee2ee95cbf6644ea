//! POST to a collection.

use std::sync::Arc;

use api::status::Status;

use super::{check_namespace, read_object, scope};
use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::options::WriteOptions;
use crate::registry::respond;
use crate::storage::resource::Resource;

pub(crate) async fn create(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let options = WriteOptions::parse(&call.head, "CreateOptions", false)?;
    let mut object = read_object(call, resource, &options).await?;
    check_namespace(&mut object, resource, &call.head.info.namespace)?;
    let mut warnings = Vec::new();
    let created = scope(registry, resource, call, options.dry_run)?.create(object, &options, &mut warnings).await;
    call.warnings.append(&mut warnings);
    respond::outcome(call, resource, 201, &created?)
}
