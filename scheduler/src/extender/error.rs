//! Why an extender gives no decision.

use std::sync::Arc;

use thiserror::Error;

/// The cause of a request that failed.
pub type TransportError = Box<dyn std::error::Error + Send + Sync>;

/// Why the response of an extender is missing or not used.
#[derive(Debug, Clone, Error)]
pub(super) enum ResponseError {
    #[error(transparent)]
    Transport(Arc<dyn std::error::Error + Send + Sync>),
    #[error("the response is not valid JSON: {0}")]
    Json(#[source] api::json::Error),
    #[error("the response is not a list")]
    NotAList,
    /// The error that the extender reports.
    #[error("{0}")]
    Extender(String),
    #[error("the response contains node {0:?}, which was not in the request")]
    UnknownNode(String),
    #[error("expected at least one victim pod on node {0:?}")]
    NoVictim(String),
    #[error("claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node")]
    UnknownVictim { uid: String, node: String },
    #[error("claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not of lower priority")]
    VictimPriority { uid: String, node: String },
}

impl From<TransportError> for ResponseError {
    fn from(error: TransportError) -> ResponseError {
        ResponseError::Transport(Arc::from(error))
    }
}

/// An extender that may not be ignored has failed.
#[derive(Debug, Clone, Error)]
#[error("extender {url_prefix}: {source}")]
pub struct ExtenderError {
    pub(super) url_prefix: String,
    pub(super) source: ResponseError,
}
