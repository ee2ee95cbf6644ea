//! One call of one webhook.

use std::sync::Arc;
use std::time::Duration;

use api::status::Status;
use tokio::time::Instant;

use super::compiled::{Hook, Side};
use super::matching::Invocation;
use super::review;
use super::shown::Shown;
use crate::outbound::callout::{self, Answer};
use crate::registry::admission::Attributes;
use crate::registry::admission::metrics::Outcome;

/// The result of a webhook call.
pub(super) struct Said {
    /// The patch of one that agrees and changes something.
    pub verdict: Result<Option<Vec<u8>>, Failure>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
    pub took: Duration,
}

impl Said {
    /// For the metrics; a patch may still turn out to be of no use.
    pub(super) fn outcome(&self, hook: &Hook) -> Outcome {
        match &self.verdict {
            Ok(_) => Outcome::Allowed,
            Err(Failure::Refused(status)) => Outcome::Refused(status.code),
            Err(Failure::Calling(error)) => Outcome::Failed(error.code(), hook.ignore_failure),
        }
    }
}

pub(crate) enum Failure {
    /// The call failed, or its response was invalid.
    Calling(CallError),
    Refused(Status),
}

/// Why a webhook gave no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("webhook does not accept known AdmissionReview versions (v1, v1beta1)")]
    Versions,
    #[error(transparent)]
    Target(Arc<callout::TargetError>),
    #[error("failed to call webhook: {0}")]
    Call(#[from] callout::Error),
    /// A response other than 200, in the words of upstream's client.
    #[error("failed to call webhook: {text}")]
    Response { code: u16, text: String },
    #[error("failed to call webhook: {0}")]
    NotReview(review::ReplyError),
    #[error(transparent)]
    Reply(review::ReplyError),
}

impl CallError {
    /// Upstream's code for the metrics.
    fn code(&self) -> u16 {
        match self {
            CallError::Versions => 400,
            CallError::Target(_) => 500,
            CallError::Call(_) | CallError::NotReview(_) | CallError::Reply(_) => 503,
            CallError::Response { code, .. } => *code,
        }
    }
}

impl From<review::ReplyError> for CallError {
    fn from(error: review::ReplyError) -> CallError {
        match error {
            review::ReplyError::Json(_) => CallError::NotReview(error),
            error => CallError::Reply(error),
        }
    }
}

pub(super) async fn call(attributes: &Attributes<'_>, invocation: &Invocation<'_>, shown: &Shown, side: Side) -> Said {
    let began = Instant::now();
    let silent =
        |failure| Said { verdict: Err(failure), warnings: Vec::new(), annotations: Vec::new(), took: began.elapsed() };
    if invocation.hook.has_conditions {
        let why = format!(
            "webhook {:?} has matchConditions, which need the CEL engine, which is not built in yet",
            invocation.hook.name
        );
        return silent(Failure::Refused(Status::internal(why)));
    }
    match send(attributes, invocation, shown, side).await {
        Err(error) => silent(Failure::Calling(error)),
        Ok(reply) => said(invocation, reply, began.elapsed()),
    }
}

fn said(invocation: &Invocation<'_>, reply: review::Reply, took: Duration) -> Said {
    let name = &invocation.hook.name;
    let verdict = match (reply.allowed, reply.patch) {
        (false, _) => Err(Failure::Refused(review::refusal(name, &reply.status))),
        (true, patch) => Ok(Some(patch).filter(|patch| !patch.is_empty())),
    };
    let annotations = reply.annotations.into_iter().map(|(key, value)| (format!("{name}/{key}"), value)).collect();
    Said { verdict, warnings: reply.warnings, annotations, took }
}

async fn send(
    attributes: &Attributes<'_>,
    invocation: &Invocation<'_>,
    shown: &Shown,
    side: Side,
) -> Result<review::Reply, CallError> {
    let hook = invocation.hook;
    let version = hook.review_version.ok_or(CallError::Versions)?;
    let target = hook.target.as_ref().map_err(|error| CallError::Target(error.clone()))?;
    let uid = crate::common::ids::uid();
    let question = review::question(attributes, invocation, shown, version, &uid);
    let body = api::json::encode(&question, None);
    let answer = target.post_json(&attributes.registry.storage, body, hook.timeout).await?;
    if !answer.is_success() {
        return Err(CallError::Response { code: answer.code, text: describe(&answer) });
    }
    Ok(review::read(&answer.body, version, &uid, side)?)
}

/// How much of an unexpected response is quoted.
const MAX_SHOWN: usize = 1024;

/// In the words of upstream's client.
fn describe(answer: &Answer) -> String {
    let text = String::from_utf8_lossy(&answer.body[..answer.body.len().min(MAX_SHOWN)]).trim().to_string();
    let status = api::json::decode(&answer.body).unwrap_or_default();
    match answer.code {
        _ if status.str("kind") == "Status" && !status.str("message").is_empty() => status.str("message").to_string(),
        404 => "the server could not find the requested resource".to_string(),
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}
