//! Authorization: whether a user may do what a request does. The authorizers are consulted in their configured
//! order: the first that allows or denies decides; without any opinion the request is denied. An authorizer reads the
//! caches, never the store, and decides from memory if it can.

pub mod abac;
mod always;
mod attributes;
mod conditions;
pub mod config;
mod forbidden;
pub(crate) mod metrics;
pub mod node;
pub mod rbac;
mod rules;
mod union;
pub mod webhook;

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use api::Tree;
use api::status::Status;
use kinds::User;

use crate::request::info::{Query, RequestInfo};

pub(crate) use attributes::Attributes;
pub use conditions::Conditions;
pub(crate) use forbidden::forbidden;
pub(crate) use rules::Rule;
pub(crate) use union::Union;
pub(crate) use union::{aggregate, is_master};

pub use crate::common::users::MASTERS;

/// The decision of an authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// No other authorizer is consulted.
    Deny,
    NoOpinion,
}

/// A decision and why.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub decision: Decision,
    pub reason: Reason,
    /// An error during the evaluation.
    pub error: Option<String>,
}

/// Formatted only if it is read.
#[derive(Debug, Clone, Default)]
pub(crate) enum Reason {
    #[default]
    None,
    Text(Cow<'static, str>),
    Granted(Arc<rbac::Grant>),
}

const GRANTED: &str = "RBAC: allowed by ";

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::None => Ok(()),
            Reason::Text(text) => f.write_str(text),
            Reason::Granted(grant) => write!(f, "{GRANTED}{grant}"),
        }
    }
}

impl Reason {
    /// Appends the text as a JSON string. The text of a grant is built once, since it is the most frequent.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Reason::Granted(grant) => out.extend_from_slice(grant.quoted(GRANTED)),
            reason => api::json::write_string(out, &reason.to_string()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Reason::None => true,
            Reason::Text(text) => text.is_empty(),
            Reason::Granted(_) => false,
        }
    }
}

impl Verdict {
    pub(crate) const ALLOW: Verdict = Verdict { decision: Decision::Allow, reason: Reason::None, error: None };
    pub(crate) const NO_OPINION: Verdict = Verdict { decision: Decision::NoOpinion, reason: Reason::None, error: None };

    pub(crate) fn no_opinion(why: impl Into<Cow<'static, str>>) -> Verdict {
        Verdict { reason: Reason::Text(why.into()), ..Verdict::NO_OPINION }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }
}

/// The rules that one authorizer contributes to a rules review.
#[derive(Debug, Default)]
pub(crate) struct UserRules {
    pub rules: Vec<Rule>,
    /// True if not all rules can be listed.
    pub incomplete: bool,
    pub error: Option<String>,
}

pub(crate) type VerdictFuture<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// One authorizer; each has its own file.
pub(crate) trait Authorizer: Send + Sync {
    /// The verdict, or None if it has to wait.
    fn decide(&self, attributes: &Attributes<'_>) -> Option<Verdict>;

    /// The verdict; it may wait for a remote server.
    fn wait<'a>(&'a self, attributes: &'a Attributes<'a>) -> VerdictFuture<'a> {
        Box::pin(std::future::ready(self.decide(attributes).unwrap_or(Verdict::NO_OPINION)))
    }

    /// The rules of a user in a namespace.
    fn rules(&self, user: &User, namespace: &str) -> UserRules;
}

/// A failure to decide is not the caller's fault, and still a no.
pub(crate) fn refuse(path: &str, attributes: &Attributes<'_>, verdict: &Verdict) -> Status {
    match &verdict.error {
        Some(error) => Status::new(500, "InternalError", format!("Internal Server Error: {path:?}: {error}")),
        None => forbidden(attributes, &verdict.reason),
    }
}

/// Authorizes the `create` behind a request of another verb.
pub(crate) async fn authorize_create(
    authorizer: &Union,
    user: &User,
    (info, query): (&RequestInfo, &Query),
    name: &str,
) -> Result<(), Status> {
    let attributes = Attributes { verb: "create", name: Cow::Borrowed(name), ..Attributes::of(user, info, query) };
    let verdict = authorizer.wait(&attributes).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    match &verdict.error {
        Some(error) => Err(Status::internal(error)),
        None => Err(forbidden(&attributes, &verdict.reason)),
    }
}

/// Whether a user may send the request in the spec of an access review.
pub(crate) async fn review(authorizer: &Union, user: &User, spec: &Tree) -> Verdict {
    authorizer.wait(&Attributes::from_review(user, spec)).await
}
