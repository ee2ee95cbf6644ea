//! The fence stage: who may have writes checked against a Lease. The result of such a check shows whether a guess of the
//! holder and its transition is right.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use api::status::Status;
use kinds::User;

use crate::Server;
use crate::authorization::Attributes;
use crate::authorization::rbac::policy;
use crate::call::{Call, StageResult};
use crate::storage::fence::{HEADER, lease_of};

const GROUP: &str = "coordination.k8s.io";
const RESOURCE: &str = "leases";
/// Controllers act as service accounts that may not update the lease of their manager. Other accounts of their namespace,
/// such as those of add-ons, are clients like any other.
static CONTROLLERS: LazyLock<BTreeSet<String>> = LazyLock::new(policy::controller_users);

/// The stage of the chain. Requests with an invalid header are rejected where it is used.
pub(super) fn authorize<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> StageResult<'a> {
    let lease = call.head.header(HEADER).and_then(lease_of);
    let (Some((namespace, name)), Some(user)) = (lease, &call.caller.user) else { return StageResult::Done(Ok(())) };
    if CONTROLLERS.contains(&*user.name) {
        return StageResult::Done(Ok(()));
    }
    let attributes = update_of(user, namespace, name);
    match server.registry.authorizer.decide(&attributes) {
        Some(verdict) => StageResult::Done(settle(verdict.is_allowed(), name)),
        None => StageResult::Later(Box::pin(async move {
            settle(server.registry.authorizer.wait(&attributes).await.is_allowed(), name)
        })),
    }
}

fn update_of<'a>(user: &'a User, namespace: &'a str, name: &'a str) -> Attributes<'a> {
    let name = Cow::Borrowed(name);
    Attributes { version: "v1", namespace, name, ..Attributes::resource(user, "update", GROUP, RESOURCE) }
}

/// One text, whether or not the lease exists.
fn settle(is_allowed: bool, name: &str) -> Result<(), Status> {
    if is_allowed {
        return Ok(());
    }
    let why = format!("only clients that may update the lease can send the header {HEADER}");
    Err(Status::forbidden(GROUP, RESOURCE, name, &why))
}
