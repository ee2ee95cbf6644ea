//! Errors of volumes whose files the kubelet writes.

use api::base64::DecodeError;

use crate::model::fields::ResourceError;
use crate::objects::ObjectError;
use crate::volumes::certificates::CertificateError;
use crate::volumes::tokens::TokenError;
use crate::volumes::trust::TrustError;

/// A source of files that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("configmap {0:?} not found")]
    NoConfigMap(String),
    #[error("configmap references non-existent config key: {0}")]
    NoConfigMapKey(String),
    #[error("secret {0:?} not found")]
    NoSecret(String),
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    #[error(transparent)]
    Base64(#[from] DecodeError),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error("unsupported fieldPath: {0}")]
    FieldPath(String),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("projected volumes have no source {0}")]
    UnknownSource(String),
    #[error("{}", list(.0))]
    Several(Vec<SourceError>),
}

impl SourceError {
    /// A single error unchanged, several ones in upstream's format.
    pub(crate) fn all(mut errors: Vec<SourceError>) -> SourceError {
        match errors.len() {
            1 => errors.remove(0),
            _ => SourceError::Several(errors),
        }
    }
}

fn list(errors: &[SourceError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(", "))
}
