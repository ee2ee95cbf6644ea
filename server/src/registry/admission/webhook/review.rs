//! AdmissionReview: the request to a webhook, and the meaning of its response.

use api::status::Status;
use api::{Tree, tree};

use super::compiled::WebhookKind;
use super::invoke::Invocation;
use crate::registry::admission::Attributes;
use crate::registry::admission::request::describe_request;
use crate::registry::admission::versioned_objects::VersionedObjects;

const GROUP: &str = "admission.k8s.io";

pub(super) fn build_review(
    attributes: &Attributes<'_>,
    invocation: &Invocation<'_>,
    shown: &VersionedObjects,
    version: &str,
    uid: &str,
) -> Tree {
    let mut request = describe_request(attributes, invocation.other.as_deref());
    request.set("uid", uid);
    request.set("object", shown.object.clone());
    request.set("oldObject", shown.old.clone());
    tree! { "kind" => "AdmissionReview", "apiVersion" => format!("{GROUP}/{version}"), "request" => request }
}

/// The response of a webhook.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Reply {
    pub allowed: bool,
    /// The JSON patch; empty if nothing changes.
    pub patch: Vec<u8>,
    pub status: Tree,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

/// A response that is not a valid AdmissionReview.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplyError {
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(#[from] api::json::Error),
    #[error("expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {version}, Kind={kind}")]
    Kind { version: String, kind: String },
    #[error("webhook response was absent")]
    Absent,
    #[error("expected response.uid={expected:?}, got {given:?}")]
    Uid { expected: String, given: String },
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// A patch that the response may not have, or that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    #[error("validating webhook may not return response.patchType")]
    ValidatingType,
    #[error("validating webhook may not return response.patch")]
    Validating,
    #[error("webhook returned response.patchType but not response.patch")]
    Missing,
    #[error("webhook returned response.patch but not response.patchType")]
    MissingType,
    #[error("webhook returned invalid response.patchType of \"\"")]
    EmptyType,
    #[error("unsupported patch type {0:?}")]
    Type(String),
    #[error(transparent)]
    Base64(#[from] api::base64::DecodeError),
}

/// Parses a response.
pub(super) fn read(bytes: &[u8], version: &str, uid: &str, side: WebhookKind) -> Result<Reply, ReplyError> {
    let review = api::json::decode(bytes)?;
    if version == "v1" {
        let (given, kind) = (review.str("apiVersion"), review.str("kind"));
        if given != format!("{GROUP}/v1") || kind != "AdmissionReview" {
            return Err(ReplyError::Kind { version: given.to_string(), kind: kind.to_string() });
        }
    }
    let response = review.get("response").filter(|response| matches!(response, Tree::Map(_)));
    let response = response.ok_or(ReplyError::Absent)?;
    let given = response.str("uid");
    if version == "v1" && given != uid {
        return Err(ReplyError::Uid { expected: uid.to_string(), given: given.to_string() });
    }
    Ok(Reply {
        allowed: response.bool("allowed"),
        patch: read_patch(response, version, side)?,
        status: response.at("status").clone(),
        warnings: response.list("warnings").iter().filter_map(Tree::as_str).map(str::to_string).collect(),
        annotations: response
            .map("auditAnnotations")
            .iter()
            .filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_string())))
            .collect(),
    })
}

fn read_patch(response: &Tree, version: &str, side: WebhookKind) -> Result<Vec<u8>, PatchError> {
    let (text, ty) = (response.str("patch"), response.at("patchType").as_str());
    if side == WebhookKind::Validating {
        return match (text, ty) {
            _ if version != "v1" => Ok(Vec::new()),
            ("", None) => Ok(Vec::new()),
            ("", Some(_)) => Err(PatchError::ValidatingType),
            _ => Err(PatchError::Validating),
        };
    }
    match (text, ty) {
        ("", None) => return Ok(Vec::new()),
        ("", Some(_)) if version == "v1" => return Err(PatchError::Missing),
        (_, None) if version == "v1" => return Err(PatchError::MissingType),
        (_, Some("")) if version == "v1" => return Err(PatchError::EmptyType),
        (_, Some(ty)) if version == "v1" && ty != "JSONPatch" => return Err(PatchError::Type(ty.to_string())),
        _ => {}
    }
    Ok(api::base64::decode(text)?)
}

/// The rejection in the response to the client.
pub(super) fn refusal(name: &str, result: &Tree) -> Status {
    let mut status = Status::from_tree(result);
    // A rejection must not have a success code.
    if status.code < 400 {
        status.code = 400;
    }
    let denied = format!("admission webhook {name:?} denied the request");
    status.message = match (status.message.as_str(), &*status.reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    status
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::json;
    use super::*;

    #[test]
    fn answers_are_judged() {
        let check = |version: &str, side: WebhookKind, response: &str, want: &str| {
            let review = format!(r#"{{"apiVersion":"{GROUP}/v1","kind":"AdmissionReview","response":{response}}}"#);
            let got = match read(review.as_bytes(), version, "u", side) {
                Ok(reply) => format!("{} {}", reply.allowed, String::from_utf8_lossy(&reply.patch)),
                Err(error) => error.to_string(),
            };
            assert_eq!(got, want, "{response}");
        };
        use WebhookKind::{Mutating, Validating};
        check("v1", Validating, r#"{"uid":"u","allowed":true}"#, "true ");
        check("v1", Validating, r#"{"uid":"x","allowed":true}"#, r#"expected response.uid="u", got "x""#);
        check("v1beta1", Validating, r#"{"allowed":true}"#, "true ");
        check("v1", Validating, "null", "webhook response was absent");
        check("v1", Validating, r#"{"uid":"u","patch":"W10="}"#, "validating webhook may not return response.patch");
        check(
            "v1",
            Mutating,
            r#"{"uid":"u","patch":"W10="}"#,
            "webhook returned response.patch but not response.patchType",
        );
        check(
            "v1",
            Mutating,
            r#"{"uid":"u","patchType":"JSONPatch"}"#,
            "webhook returned response.patchType but not response.patch",
        );
        check("v1", Mutating, r#"{"uid":"u","patch":"W10=","patchType":"Other"}"#, "unsupported patch type \"Other\"");
        check("v1", Mutating, r#"{"uid":"u","allowed":true,"patch":"W10=","patchType":"JSONPatch"}"#, "true []");
        check(
            "v1",
            Mutating,
            r#"{"uid":"u","patch":"!","patchType":"JSONPatch"}"#,
            "illegal base64 data at input byte 0",
        );
        let garbage = |text: &str, want: &str| {
            let error = read(text.as_bytes(), "v1", "u", Validating).expect_err("no review").to_string();
            assert!(error.starts_with(want), "{error}");
        };
        garbage("garbage", "couldn't get version/kind; json parse error: ");
        garbage("{}", "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got , Kind=");
    }

    #[test]
    fn refusals_are_failures() {
        let check = |result: &str, code: u16, message: &str| {
            let status = refusal("h", &json(result));
            assert_eq!((status.code, status.message.as_str()), (code, message));
        };
        check("null", 400, "admission webhook \"h\" denied the request without explanation");
        check(r#"{"code":200,"reason":"Odd"}"#, 400, "admission webhook \"h\" denied the request: Odd");
        check(r#"{"code":403,"message":"no"}"#, 403, "admission webhook \"h\" denied the request: no");
    }
}
