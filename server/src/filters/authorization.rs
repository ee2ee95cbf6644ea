//! The authorization stage.

use std::sync::Arc;

use api::status::Status;
use kinds::User;

use crate::Server;
use crate::authorization::{Attributes, Verdict, refuse};
use crate::call::{Call, Step};

/// The stage of the chain.
pub(super) fn authorize<'a>(server: &'a Arc<Server>, call: &'a mut Call) -> Step<'a> {
    let Some(user) = call.caller.user.clone() else { return Step::Done(Err(Status::unauthorized())) };
    let decided = server.registry.authorizer.decide(&Attributes::of(&user, &call.head.info, &call.head.query));
    match decided {
        Some(verdict) => Step::Done(settle(call, &user, verdict)),
        None => Step::Later(Box::pin(async move {
            let verdict =
                server.registry.authorizer.wait(&Attributes::of(&user, &call.head.info, &call.head.query)).await;
            settle(call, &user, verdict)
        })),
    }
}

/// Records the decision for the audit log, and refuses what is not allowed.
fn settle(call: &mut Call, user: &User, verdict: Verdict) -> Result<(), Status> {
    if call.audit.trail.is_some() {
        call.audit.decision = Some((verdict.decision, verdict.reason.clone()));
    }
    if verdict.is_allowed() {
        return Ok(());
    }
    Err(refuse(&call.head.path, &Attributes::of(user, &call.head.info, &call.head.query), &verdict))
}
