//! One call of one webhook.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::status::Status;
use tokio::time::Instant;

use super::compiled::{Hook, WebhookKind};
use super::review;
use crate::outbound::callout::{self, CalloutResponse};
use crate::registry::admission::Attributes;
use crate::registry::admission::metrics::Outcome;
use crate::registry::admission::versioned_objects::VersionedObjects;
use crate::storage::resource::Resource;

/// A webhook to call, with the version of the resource that it expects.
pub(crate) struct Invocation<'a> {
    pub hook: &'a Hook,
    /// None if the version is that of the request.
    pub other: Option<Arc<Resource>>,
}

pub(super) fn find<'a>(
    hook: &'a Hook,
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
) -> Result<Option<Invocation<'a>>, Status> {
    let found = hook.criteria.find(attributes, object, old)?;
    Ok(found.map(|found| Invocation { hook, other: found.other }))
}

/// The result of a webhook call.
pub(super) struct CallResult {
    /// The patch of a webhook that allows the request and changes the object.
    pub verdict: Result<Option<Vec<u8>>, Failure>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
    pub took: Duration,
}

impl CallResult {
    /// The outcome for the metrics; the patch may still turn out to be invalid.
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

pub(super) async fn call(
    attributes: &Attributes<'_>,
    invocation: &Invocation<'_>,
    shown: &VersionedObjects,
    side: WebhookKind,
) -> CallResult {
    let began = Instant::now();
    let silent = |failure| CallResult {
        verdict: Err(failure),
        warnings: Vec::new(),
        annotations: Vec::new(),
        took: began.elapsed(),
    };
    match send(attributes, invocation, shown, side).await {
        Err(error) => silent(Failure::Calling(error)),
        Ok(reply) => read_result(invocation, reply, began.elapsed()),
    }
}

fn read_result(invocation: &Invocation<'_>, reply: review::Reply, took: Duration) -> CallResult {
    let name = &invocation.hook.name;
    let verdict = match (reply.allowed, reply.patch) {
        (false, _) => Err(Failure::Refused(review::refusal(name, &reply.status))),
        (true, patch) => Ok(Some(patch).filter(|patch| !patch.is_empty())),
    };
    let annotations = reply.annotations.into_iter().map(|(key, value)| (format!("{name}/{key}"), value)).collect();
    CallResult { verdict, warnings: reply.warnings, annotations, took }
}

async fn send(
    attributes: &Attributes<'_>,
    invocation: &Invocation<'_>,
    shown: &VersionedObjects,
    side: WebhookKind,
) -> Result<review::Reply, CallError> {
    let hook = invocation.hook;
    let version = hook.review_version.ok_or(CallError::Versions)?;
    let target = hook.target.as_ref().map_err(|error| CallError::Target(error.clone()))?;
    let uid = crate::common::ids::uid();
    let request = review::build_review(attributes, invocation, shown, version, &uid);
    let body = api::json::encode(&request, None);
    let response = target.post_json(&attributes.registry.dialer, body, hook.timeout).await?;
    if !response.is_success() {
        return Err(CallError::Response { code: response.code, text: describe(&response) });
    }
    Ok(review::read(&response.body, version, &uid, side)?)
}

/// The maximum length of a quoted response.
const MAX_SHOWN: usize = 1024;

/// The response in the words of upstream's client.
fn describe(response: &CalloutResponse) -> String {
    let text = String::from_utf8_lossy(&response.body[..response.body.len().min(MAX_SHOWN)]).trim().to_string();
    let status = api::json::decode(&response.body).unwrap_or_default();
    match response.code {
        _ if status.str("kind") == "Status" && !status.str("message").is_empty() => status.str("message").to_string(),
        404 => "the server could not find the requested resource".to_string(),
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}
