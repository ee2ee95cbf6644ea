//! postStart and preStop hooks.

use std::time::Duration;

use api::Tree;

use crate::pod::action::{self, Outcome, Target};
use crate::runtime::Runtime;

/// A hook has no timeout of its own: the caller limits it.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

const AGENT: &str = "kube-lifecycle/1.37";

/// A hook that has failed, with its output.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HookError(String);

pub(crate) async fn run(runtime: &Runtime, id: &str, spec: &Tree, hook: &Tree, address: &str) -> Result<(), HookError> {
    let target = Target { runtime, container_id: id, address, container: spec };
    let outcome = match hook.get("httpGet") {
        // Any response is a success: the container has received the request.
        Some(get) => action::answered(get, &target, AGENT).await.map_or_else(|outcome| outcome, |_| Outcome::Success),
        None => action::run(hook, &target, LONGEST, AGENT).await,
    };
    match outcome {
        Outcome::Success | Outcome::Warning(_) => Ok(()),
        Outcome::Failure(why) | Outcome::Unknown(why) => Err(HookError(why)),
    }
}
