//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

use std::sync::Arc;

use api::apply::{self, ApplyError};
use api::field::{Errors, Path};
use api::json::Strict;
use api::patch::{self, json::Operation};
use api::schema::Type;
use api::status::{Cause, Details, Status};
use api::{Tree, json, time};
use bytes::Bytes;

use super::update::{check_name, check_version};
use super::{check_namespace, scope};
use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::options::WriteOptions;
use crate::registry::respond;
use crate::registry::versions::Versions;
use crate::registry::write::{Outcome, Scope};
use crate::request::codec::{self, ExpectedType, Validation};
use crate::request::head::RequestHead;
use crate::storage::resource::Resource;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    /// The type of a patch; custom resources have no strategic merge patch.
    pub(crate) fn of(head: &RequestHead, resource: &Resource) -> Result<PatchType, Status> {
        let name = head.header(http::header::CONTENT_TYPE).unwrap_or("").split(';').next().unwrap_or("").trim();
        match name {
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            "application/apply-patch+yaml" => Ok(PatchType::Apply),
            _ if resource.kind.definition().is_some() => Err(Status::unsupported_media_type(UNSUPPORTED_CUSTOM)),
            "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
            _ => Err(unsupported_patch()),
        }
    }
}

const UNSUPPORTED_CUSTOM: &str = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

fn unsupported_patch() -> Status {
    let mut status = Status::unsupported_media_type("415: Unsupported Media Type");
    status.details = Some(Details::default());
    status
}

/// A patch that was read.
enum Body {
    Json(Vec<Operation>),
    Merge(Tree),
    Strategic(Tree),
    Apply(Tree),
}

/// A patch, and what strict decoding has against its text.
pub(crate) struct Patch {
    body: Body,
    problems: Vec<String>,
}

impl Patch {
    /// The configuration of a server-side apply.
    pub(crate) fn applied(&self) -> Option<&Tree> {
        match &self.body {
            Body::Apply(applied) => Some(applied),
            _ => None,
        }
    }

    pub(crate) fn read(ty: PatchType, bytes: &Bytes) -> Result<Patch, Status> {
        let mut strict = Strict::default();
        let body = match ty {
            PatchType::Json => Body::Json(patch::json::decode(bytes, &mut strict).map_err(patch_status)?),
            PatchType::Merge => Body::Merge(patch::decode_object(bytes, &mut strict).map_err(patch_status)?),
            PatchType::Strategic => Body::Strategic(patch::decode_object(bytes, &mut strict).map_err(patch_status)?),
            PatchType::Apply => Body::Apply(read_apply(bytes, &mut strict)?),
        };
        Ok(Patch { body, problems: strict.problems })
    }

    /// The patched object in the format of errors.
    fn shown(&self, patched: &Tree, old: &Tree, ty: Option<&'static Type>) -> String {
        let touched = match &self.body {
            Body::Json(operations) => patch::json::without_touched(old.clone(), operations),
            _ => old.clone(),
        };
        String::from_utf8_lossy(&json::encode_changed(patched, &touched, ty)).into_owned()
    }

    /// The invalid values of a strategically merged object: upstream converts it without JSON in between.
    fn value_error(&self, patched: &Tree, ty: Option<&'static Type>) -> Option<String> {
        match &self.body {
            Body::Strategic(_) => patch::unconvertible(patched, ty?),
            _ => None,
        }
    }

    /// The text that decoding rejected: for a strategic merge patch, the patch itself.
    fn shown_strictly(&self, text: String) -> String {
        match &self.body {
            Body::Strategic(tree) => patch::printed(tree),
            _ => text,
        }
    }

    /// The patched object, not yet shaped.
    pub(crate) fn patched(&self, old: &Tree, ty: Option<&'static Type>) -> Result<Tree, Status> {
        let patched = match &self.body {
            Body::Json(operations) => patch::json::apply(old.clone(), operations),
            Body::Merge(tree) => Ok(patch::merge(old.clone(), tree)),
            Body::Strategic(tree) => match ty {
                Some(ty) => patch::strategic(old.clone(), tree, ty),
                None => return Err(unsupported_patch()),
            },
            Body::Apply(_) => {
                Err(patch::Error::Internal("an apply patch is not a patch of the stored object".to_string()))
            }
        };
        patched.map_err(patch_status)
    }
}

fn read_apply(bytes: &[u8], strict: &mut Strict) -> Result<Tree, Status> {
    api::yaml::decode_as(bytes, None, strict)
        .map_err(|error| Status::bad_request(format!("error encoding patch: {error}")))
}

fn patch_status(error: patch::Error) -> Status {
    match error {
        patch::Error::BadRequest(text) => Status::bad_request(text),
        patch::Error::TooLarge(text) => Status::too_large(text),
        patch::Error::Internal(text) => Status::new(500, "", text),
        patch::Error::Unprocessable(error) => {
            tracing::debug!(text = %error, "failed to apply patch");
            let mut status =
                Status::new(422, "Invalid", "the server rejected our request due to an error in our request");
            status.details = Some(Details::default());
            status
        }
    }
}

pub(crate) async fn patch(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    respond::accepted(&call.head)?;
    let ty = PatchType::of(&call.head, resource)?;
    let options = WriteOptions::parse(&call.head, "PatchOptions", ty == PatchType::Apply)?;
    let body = call.read_body().await?;
    let patch = Patch::read(ty, &body)?;
    let scope = scope(registry, resource, call, options.dry_run)?;
    let mut warnings = Vec::new();
    let patched = match &patch.body {
        Body::Apply(applied) => run_apply(&scope, &call.head, applied, &patch.problems, &options, &mut warnings).await,
        _ => run_patch(&scope, &call.head, &patch, &options, &mut warnings).await.map(|outcome| (200, outcome)),
    };
    call.warnings.append(&mut warnings);
    let (code, outcome) = patched?;
    respond::outcome(call, resource, code, &outcome)
}

async fn run_patch(
    scope: &Scope<'_>,
    head: &RequestHead,
    patch: &Patch,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Outcome, Status> {
    let name = &head.info.name;
    let mut problems = Vec::new();
    let patched = scope
        .update(name, warnings, |old, _| {
            let patched = patch.patched(old, scope.resource.table_type())?;
            let expected = ExpectedType::of(&scope.resource.kind);
            let mut object = shape_patched(&expected, old, patched, patch, options, &mut problems)?;
            check_identity(&mut object, name, scope)?;
            check_patch_version(scope.resource, &object, old, name)?;
            scope.resource.set_defaults(&mut object);
            scope.own_fields(Some(old), &mut object, options);
            Ok(object)
        })
        .await;
    if options.validation == Validation::Warn {
        warnings.splice(0..0, problems);
    }
    patched
}

/// A patch conflicts only by resourceVersion: a different uid is a change of an immutable field.
pub(crate) fn check_patch_version(resource: &Resource, object: &Tree, old: &Tree, name: &str) -> Result<(), Status> {
    let mut versioned = api::tree! { "metadata" => api::tree! {} };
    versioned.child("metadata").set("resourceVersion", object.str("metadata.resourceVersion"));
    if object.str("metadata.resourceVersion").is_empty() {
        return Ok(());
    }
    check_version(resource, &versioned, old, name)
}

/// A patched object must keep the namespace and the name of its URL.
pub(crate) fn check_identity(object: &mut Tree, name: &str, scope: &Scope<'_>) -> Result<(), Status> {
    check_namespace(object, scope.resource, scope.namespace)?;
    check_name(object, name)
}

/// Shapes a patched object; problems become errors or warnings.
pub(crate) fn shape_patched(
    expected: &ExpectedType<'_>,
    old: &Tree,
    mut patched: Tree,
    patch: &Patch,
    options: &WriteOptions,
    problems: &mut Vec<String>,
) -> Result<Tree, Status> {
    let mut strict = Strict { problems: patch.problems.clone() };
    let shown = |patched: &Tree| patch.shown(patched, old, expected.table_type());
    let invalid = |text: String, why: &str| {
        let mut errors = Errors::new();
        errors.invalid(&Path::root("patch"), text, why);
        let mut status = Status::invalid("", "", "", &errors);
        if let Some(details) = &mut status.details {
            details.kind.clear();
        }
        status
    };
    if let Err(why) = codec::require_kind(&patched, expected) {
        return Err(invalid(shown(&patched), &why.to_string()));
    }
    let judged = patched.clone();
    apply::keep_reset(&mut patched);
    if let Err(error) = expected.shape(&mut patched, &mut strict) {
        let why = patch.value_error(&judged, expected.table_type()).unwrap_or_else(|| error.to_string());
        return Err(invalid(patch.shown_strictly(shown(&judged)), &why));
    }
    if options.validation == Validation::Strict && !strict.problems.is_empty() {
        let text = patch.shown_strictly(shown(&judged));
        return Err(invalid(text, &format!("strict decoding error: {}", strict.problems.join(", "))));
    }
    *problems = strict.problems;
    Ok(patched)
}

/// Applies the patch to the live object, or creates the object.
async fn run_apply(
    scope: &Scope<'_>,
    head: &RequestHead,
    applied: &Tree,
    problems: &[String],
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<(u16, Outcome), Status> {
    let name = &head.info.name;
    check_applied(applied, scope, name)?;
    if options.validation == Validation::Strict && !problems.is_empty() {
        return Err(Status::bad_request(format!("error strict decoding YAML: {}", problems.join(", "))));
    }
    let updated = scope
        .update(name, warnings, |old, _| {
            check_patch_version(scope.resource, applied, old, name)?;
            applied_object(scope, Some(old), applied, name, options)
        })
        .await;
    match updated {
        Err(status)
            if status.code == 404 && is_own_not_found(&status, scope.resource) && scope.subresource.is_empty() =>
        {
            let uid = applied.str("metadata.uid");
            if !uid.is_empty() {
                let why =
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
                return Err(Status::conflict(scope.resource.kind.group(), scope.resource.kind.plural(), name, &why));
            }
            let object = applied_object(scope, None, applied, name, options)?;
            Ok((201, scope.create_applied(object, warnings).await?))
        }
        other => Ok((200, other?)),
    }
}

/// Whether the object is not found, as opposed to its namespace.
fn is_own_not_found(status: &Status, resource: &Resource) -> bool {
    status.details.as_ref().is_some_and(|details| details.kind == resource.kind.plural())
}

pub(crate) fn check_applied(applied: &Tree, scope: &Scope<'_>, name: &str) -> Result<(), Status> {
    if !matches!(applied, Tree::Map(_)) {
        return Err(Status::bad_request("error decoding patch: the patch is not an object"));
    }
    let given = applied.str("metadata.name");
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let mut probe = applied.clone();
    check_namespace(&mut probe, scope.resource, scope.namespace)
}

/// The object after an apply, with its managed fields.
pub(crate) fn applied_object(
    scope: &Scope<'_>,
    live: Option<&Tree>,
    applied: &Tree,
    name: &str,
    options: &WriteOptions,
) -> Result<Tree, Status> {
    let reset = scope.resource.reset(scope.subresource);
    let versions = Versions::new(scope.registry, scope.resource);
    let request = apply::Request {
        manager: &options.field_manager,
        api_version: scope.resource.api_version(),
        subresource: scope.subresource,
        now: time::format_seconds(scope.now),
        reset: Some(reset),
        versions: &versions,
    };
    let is_custom = scope.resource.kind.definition().is_some();
    let mut object = apply::apply(live, applied, options.force, &request).map_err(|error| match error {
        // The client has to know the types of a custom resource: the error is a bad request.
        ApplyError::Internal(text) if is_custom => Status::bad_request(text),
        error => apply_status(error),
    })?;
    let meta = object.child("metadata");
    meta.set("name", name);
    if scope.resource.kind.namespaced {
        meta.set("namespace", scope.namespace);
    }
    ExpectedType::of(&scope.resource.kind)
        .shape(&mut object, &mut Strict::default())
        .map_err(|error| Status::bad_request(error.to_string()))?;
    scope.resource.set_defaults(&mut object);
    Ok(object)
}

pub(crate) fn apply_status(error: ApplyError) -> Status {
    match error {
        ApplyError::BadRequest(text) => Status::bad_request(text),
        ApplyError::Internal(text) => Status::new(500, "", text),
        ApplyError::Conflict(conflicts) => {
            let causes = conflicts.causes().into_iter();
            let cause = |(message, field)| Cause { reason: "FieldManagerConflict".to_string(), message, field };
            let mut status = Status::new(409, "Conflict", conflicts.message());
            status.details = Some(Details { causes: causes.map(cause).collect(), ..Details::default() });
            status
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_patch_type_reports_wrong_types() {
        let old = crate::registry::admission::tests::json(
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}"#,
        );
        let expected = ExpectedType::named("", "v1", "ConfigMap").expect("a kind");
        let options = WriteOptions {
            dry_run: false,
            field_manager: "test".to_string(),
            validation: Validation::Ignore,
            force: false,
        };
        let check = |ty: PatchType, want: &str| {
            let bytes = Bytes::from(r#"{"immutable":"yes"}"#);
            let patch = Patch::read(ty, &bytes).expect("a patch");
            let patched = patch.patched(&old, expected.table_type()).expect("an object");
            let refused = shape_patched(&expected, &old, patched, &patch, &options, &mut Vec::new());
            assert_eq!(refused.expect_err("a wrong type").message, want);
        };
        check(
            PatchType::Strategic,
            r#" "" is invalid: patch: Invalid value: "map[immutable:yes]": unrecognized type: bool"#,
        );
        check(
            PatchType::Merge,
            concat!(
                r#" "" is invalid: patch: Invalid value: "{\"apiVersion\":\"v1\",\"immutable\":\"yes\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"m\"}}": "#,
                "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool",
            ),
        );
    }
}
