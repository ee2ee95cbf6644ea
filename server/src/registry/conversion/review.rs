//! ConversionReview: the request to a webhook, and the validation of its response.

use std::sync::Arc;

use api::field::{Errors, Path};
use api::{Str, Tree, tree};

use crate::authorization::aggregate;
use crate::outbound::callout::{Error, TargetError};

const GROUP: &str = "apiextensions.k8s.io";

/// Why an object could not be converted, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConversionError {
    #[error("conversion webhook for {from}, Kind={kind} failed: {why}")]
    Webhook { from: String, kind: String, why: Box<ConversionError> },
    #[error("the webhook accepts none of the versions of ConversionReview that this server has")]
    Versions,
    #[error("{0}")]
    Target(Arc<TargetError>),
    #[error(transparent)]
    Call(Error),
    #[error("an error on the server (\"unknown\") has prevented the request from succeeding")]
    Response(u16),
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(api::json::Error),
    #[error("expected webhook response of {GROUP}/{expected}, Kind=ConversionReview, got {version}, Kind={kind}")]
    Kind { expected: &'static str, version: String, kind: String },
    #[error("converting ({version}.ConversionReview) to ({expected}.ConversionReview): unknown conversion")]
    ReviewVersion { version: String, expected: &'static str },
    #[error("expected response.uid={expected:?}, got {got:?}")]
    Uid { expected: String, got: String },
    #[error("{0}")]
    Refused(String),
    #[error("response.result.status was '{0}', not 'Success'")]
    NoSuccess(String),
    #[error("conversion webhook for {from}, Kind={kind} returned {got} objects, expected {expected}")]
    Count { from: String, kind: String, got: usize, expected: usize },
    #[error(
        "conversion webhook for {from}, Kind={kind} returned invalid object at index {at}: invalid {what} (expected {expected}, received {got})"
    )]
    Object { from: String, kind: String, at: usize, what: &'static str, expected: String, got: String },
    #[error(
        "conversion webhook for {from}, Kind={kind} returned invalid object: must have the same {what}: {expected} != {got}"
    )]
    Metadata { from: String, kind: String, what: &'static str, expected: String, got: String },
    #[error("conversion webhook for {from}, Kind={kind} returned invalid metadata: {why}")]
    Labels { from: String, kind: String, why: String },
}

/// The first version of the webhook that this server has.
pub(super) fn version(accepted: &[Str]) -> Option<&'static str> {
    accepted.iter().find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| version == known))
}

pub(super) fn build_review(objects: &[Tree], to: &str, version: &str, uid: &str) -> Tree {
    tree! {
        "kind" => "ConversionReview",
        "apiVersion" => format!("{GROUP}/{version}"),
        "request" => tree! { "uid" => uid, "desiredAPIVersion" => to, "objects" => objects.to_vec() },
    }
}

/// The converted objects of a response.
pub(super) fn read(body: &[u8], expected: &'static str, uid: &str) -> Result<Vec<Tree>, ConversionError> {
    let review = api::json::decode(body).map_err(ConversionError::Json)?;
    let (group_version, kind) = (review.str("apiVersion"), review.str("kind"));
    if kind != "ConversionReview" || group_version != format!("{GROUP}/{expected}") {
        return Err(wrong_kind(group_version, kind, expected));
    }
    let response = review.at("response");
    if response.str("uid") != uid {
        return Err(ConversionError::Uid { expected: uid.to_string(), got: response.str("uid").to_string() });
    }
    match (response.str("result.status"), response.str("result.message")) {
        ("Success", _) => Ok(response.list("convertedObjects").to_vec()),
        (status, "") => Err(ConversionError::NoSuccess(status.to_string())),
        (_, message) => Err(ConversionError::Refused(message.to_string())),
    }
}

fn wrong_kind(group_version: &str, kind: &str, expected: &'static str) -> ConversionError {
    match group_version.split_once('/') {
        Some((GROUP, version)) if kind == "ConversionReview" => {
            ConversionError::ReviewVersion { version: version.to_string(), expected }
        }
        _ => {
            let version =
                if group_version.contains('/') { group_version.to_string() } else { format!("/{group_version}") };
            ConversionError::Kind { expected, version, kind: kind.to_string() }
        }
    }
}

/// Checks what a webhook returned. Of the metadata it may only change labels and annotations.
pub(super) fn accept(
    objects: Vec<Tree>,
    converted: Vec<Tree>,
    to: &str,
    from: &str,
    kind: &str,
) -> Result<Vec<Tree>, ConversionError> {
    let names = || (from.to_string(), kind.to_string());
    if converted.len() != objects.len() {
        let (got, expected) = (converted.len(), objects.len());
        let (from, kind) = names();
        return Err(ConversionError::Count { from, kind, got, expected });
    }
    for (at, object) in converted.iter().enumerate() {
        for (what, key, expected) in [("groupVersion", "apiVersion", to), ("kind", "kind", kind)] {
            if object.str(key) != expected {
                let (expected, got) = (expected.to_string(), object.str(key).to_string());
                let (from, kind) = names();
                return Err(ConversionError::Object { from, kind, at, what, expected, got });
            }
        }
    }
    let pairs = objects.into_iter().zip(converted);
    pairs.map(|(original, converted)| restore_metadata(&original, converted, from, kind)).collect()
}

fn restore_metadata(original: &Tree, mut converted: Tree, from: &str, kind: &str) -> Result<Tree, ConversionError> {
    for what in ["name", "namespace", "uid"] {
        let (expected, got) = (original.at("metadata").str(what), converted.at("metadata").str(what));
        if expected != got {
            let what = if what == "uid" { "UID" } else { what };
            return Err(ConversionError::Metadata {
                from: from.to_string(),
                kind: kind.to_string(),
                what,
                expected: expected.to_string(),
                got: got.to_string(),
            });
        }
    }
    let mut metadata = original.at("metadata").clone();
    for key in ["labels", "annotations"] {
        let invalid = |why: String| ConversionError::Labels { from: from.to_string(), kind: kind.to_string(), why };
        check_texts(&metadata, converted.at("metadata"), key).map_or(Ok(()), |why| Err(invalid(why)))?;
        kinds::kind::keep_old(&mut metadata, converted.at("metadata"), key);
    }
    converted.set("metadata", metadata);
    Ok(converted)
}

/// The error in the labels or annotations that a webhook returned.
fn check_texts(original: &Tree, converted: &Tree, key: &str) -> Option<String> {
    let texts = match converted.at(key) {
        Tree::Null => return None,
        Tree::Map(texts) => texts,
        _ => return Some(format!("metadata.{key} must be a map of strings in converted object")),
    };
    if let Some((name, _)) = texts.iter().find(|(_, text)| text.as_str().is_none()) {
        return Some(format!("metadata.{key}[{name}] must be a string in converted object"));
    }
    if original.at(key).as_map() == Some(texts) {
        return None;
    }
    let (mut errors, path) = (Errors::new(), Path::root("metadata"));
    let path = path.field(key);
    match key {
        "labels" => kinds::meta::validate_labels(texts, &path, &mut errors),
        _ => kinds::meta::validate_annotations(texts, &path, &mut errors),
    }
    aggregate(errors.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Tree>, String> {
        read(text.as_bytes(), "v1", "u").map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_complete_response_is_accepted() {
        let response = |rest: &str| {
            format!(r#"{{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{{{rest}}}}}"#)
        };
        let cases = [
            (
                "{nope".to_string(),
                "couldn't get version/kind; json parse error: invalid character 'n' looking for beginning of object key string",
            ),
            (
                "{}".to_string(),
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
            ),
            (response(r#""uid":"x""#), "expected response.uid=\"u\", got \"x\""),
            (response(r#""uid":"u""#), "response.result.status was '', not 'Success'"),
            (response(r#""uid":"u","result":{"status":"Failure","message":"no"}"#), "no"),
        ];
        for (text, want) in cases {
            assert_eq!(read_text(&text), Err(want.to_string()));
        }
        assert_eq!(read_text(&response(r#""uid":"u","result":{"status":"Success"}"#)), Ok(Vec::new()));
    }

    #[test]
    fn webhooks_may_change_labels_but_no_other_metadata() {
        let object = |text: &str| api::json::decode(text.as_bytes()).expect("valid JSON");
        let original =
            object(r#"{"apiVersion":"g/v1","kind":"K","metadata":{"name":"a","labels":{"l":"1"},"finalizers":["f"]}}"#);
        let converted = object(
            r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"a","labels":{"l":"2"},"finalizers":[]},"spec":{}}"#,
        );
        let accepted = accept(vec![original.clone()], vec![converted], "g/v2", "g/v1", "K").expect("valid");
        assert_eq!(accepted[0].str("metadata.labels.l"), "2");
        assert_eq!(accepted[0].list("metadata.finalizers").len(), 1);
        for labels in [r#""x""#, r#"{"l":7}"#, r#"{"l":"not a value"}"#, r#"{"not a key":"1"}"#] {
            let text = format!(r#"{{"apiVersion":"g/v2","kind":"K","metadata":{{"name":"a","labels":{labels}}}}}"#);
            let refused = accept(vec![original.clone()], vec![object(&text)], "g/v2", "g/v1", "K");
            assert!(matches!(refused, Err(ConversionError::Labels { .. })), "{labels}: {refused:?}");
        }
        let renamed = object(r#"{"apiVersion":"g/v2","kind":"K","metadata":{"name":"b"}}"#);
        let error = accept(vec![original], vec![renamed], "g/v2", "g/v1", "K").expect_err("another name");
        assert_eq!(
            error.to_string(),
            "conversion webhook for g/v1, Kind=K returned invalid object: must have the same name: a != b"
        );
    }
}
