//! The authorization stage.

use std::sync::Arc;

use api::status::Status;
use kinds::User;

use crate::Server;
use crate::authorization::{Attributes, Verdict, refuse};
use crate::call::{Call, StageResult};

/// The stage of the chain.
pub(super) fn authorize<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> StageResult<'a> {
    let Some(user) = call.caller.user.clone() else { return StageResult::Done(Err(Status::unauthorized())) };
    let decided = server.registry.authorizer.decide(&Attributes::of(&user, &call.head.info, &call.head.query));
    match decided {
        Some(verdict) => StageResult::Done(settle(call, &user, verdict)),
        None => StageResult::Later(Box::pin(async move {
            let verdict =
                server.registry.authorizer.wait(&Attributes::of(&user, &call.head.info, &call.head.query)).await;
            settle(call, &user, verdict)
        })),
    }
}

/// Records the decision for the audit log, and rejects a request that is not allowed.
fn settle(call: &mut Call, user: &User, verdict: Verdict) -> Result<(), Status> {
    if call.audit.trail.is_some() {
        call.audit.decision = Some((verdict.decision, verdict.reason.clone()));
    }
    if verdict.is_allowed() {
        return Ok(());
    }
    Err(refuse(&call.head.path, &Attributes::of(user, &call.head.info, &call.head.query), &verdict))
}
