//! Reviews of identity and permission. They are never stored.

use std::sync::Arc;

use api::apply::{self, SameVersion};
use api::field::{Errors, Path, Value};
use api::status::Status;
use api::{Tree, time, tree};
use kinds::User;

use crate::authentication;
use crate::authorization::{self, Decision, Rule, Verdict};
use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::admission::{self, Operation};
use crate::registry::options::WriteOptions;
use crate::registry::{respond, verbs};
use crate::request::head::RequestHead;
use crate::storage::resource::Resource;

const SPEC: Path<'static> = Path::root("spec");
const ONE_OF: &str = "exactly one of nonResourceAttributes or resourceAttributes must be specified";

pub(super) async fn create(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    // A review has no columns, only its status.
    crate::request::negotiate::accept(call.head.header(http::header::ACCEPT), false)?;
    let options = WriteOptions::parse(&call.head, "CreateOptions", false)?;
    let mut review = verbs::read_object(call, resource, &options).await?;
    verbs::check_namespace(&mut review, resource, &call.head.info.namespace)?;
    own_fields(resource, &mut review, call.head.now, &options);
    let mut warnings = Vec::new();
    let scope = verbs::scope(registry, resource, call, options.dry_run)?;
    let admitted = admission::admit(&scope.attributes(Operation::Create, ""), &mut review, &mut warnings).await;
    call.warnings.append(&mut warnings);
    admitted?;
    let user = call.caller.user.as_ref().ok_or_else(Status::unauthorized)?;
    let reviewed = match resource.kind.kind() {
        "SelfSubjectReview" => self_subject(user, call.head.now),
        "TokenReview" => token(registry, review, call.head.now).await?,
        "SelfSubjectAccessReview" => access(registry, review, Some(user), &call.head).await?,
        "SubjectAccessReview" | "LocalSubjectAccessReview" => access(registry, review, None, &call.head).await?,
        "SelfSubjectRulesReview" => rules(registry, &review, user)?,
        _ => return Err(Status::method_not_allowed()),
    };
    respond::tree(&call.head, resource, 201, reviewed)
}

fn own_fields(resource: &Resource, review: &mut Tree, now: i64, options: &WriteOptions) {
    let request = apply::Request {
        manager: &options.field_manager,
        api_version: resource.api_version(),
        subresource: "",
        now: time::format_seconds(now),
        reset: None,
        versions: &SameVersion { api_version: resource.api_version(), ty: resource.ty() },
    };
    apply::update(None, review, &request);
}

fn self_subject(user: &User, now: i64) -> Tree {
    tree! {
        "kind" => "SelfSubjectReview",
        "apiVersion" => "authentication.k8s.io/v1",
        "metadata" => tree! { "creationTimestamp" => time::format_seconds(now) },
        "status" => tree! { "userInfo" => user_info(user) },
    }
}

fn user_info(user: &User) -> Tree {
    let mut info = tree! { "username" => user.name.as_str() };
    if !user.uid.is_empty() {
        info.set("uid", user.uid.as_str());
    }
    if !user.groups.is_empty() {
        info.set("groups", user.groups.iter().map(Tree::from).collect::<Vec<_>>());
    }
    if !user.extra.is_empty() {
        info.set("extra", user.extra.clone());
    }
    info
}

async fn token(registry: &Registry, mut review: Tree, now: i64) -> Result<Tree, Status> {
    let token = review.str("spec.token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let requested = review.list("spec.audiences").iter().filter_map(Tree::as_str).map(str::to_string);
    let requested: Vec<String> = requested.collect();
    let audiences = if requested.is_empty() { &registry.authentication.config.audiences } else { &requested };
    let status = match authentication::review(&registry.authentication, token, audiences, now).await {
        Ok(known) => tree! {
            "authenticated" => true,
            "user" => user_info(&known.user),
            "audiences" => known.audiences.iter().map(Tree::from).collect::<Vec<_>>(),
        },
        Err(error) => tree! { "user" => tree! {}, "error" => error.to_string() },
    };
    review.set("status", status);
    Ok(review)
}

/// May the user of the spec, or the caller, do this?
async fn access(
    registry: &Registry,
    mut review: Tree,
    caller: Option<&User>,
    head: &RequestHead,
) -> Result<Tree, Status> {
    let local = review.str("kind") == "LocalSubjectAccessReview";
    let mut errors = Errors::new();
    validate_access(review.at("spec"), caller.is_some(), local, &head.info.namespace, &mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid("authorization.k8s.io", "", "", &errors));
    }
    let named;
    let user = match caller {
        Some(user) => user,
        None => {
            named = user_of(review.at("spec"));
            &named
        }
    };
    let verdict = authorization::review(&registry.authorizer, user, review.at("spec")).await;
    review.set("status", access_status(&verdict));
    Ok(review)
}

fn user_of(spec: &Tree) -> User {
    let groups = spec.list("groups").iter().filter_map(Tree::as_str).map(str::to_string).collect();
    let extra = spec.map("extra").clone();
    User { name: spec.str("user").to_string(), uid: spec.str("uid").to_string(), groups, extra }
}

fn access_status(verdict: &Verdict) -> Tree {
    let mut status = tree! { "allowed" => verdict.is_allowed() };
    if verdict.decision == Decision::Deny {
        status.set("denied", true);
    }
    if !verdict.reason.is_empty() {
        status.set("reason", verdict.reason.to_string());
    }
    if let Some(error) = &verdict.error {
        status.set("evaluationError", error.as_str());
    }
    status
}

fn validate_access(spec: &Tree, of_caller: bool, local: bool, namespace: &str, errors: &mut Errors) {
    let (resource, path) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    if resource.is_null() == path.is_null() {
        if local && !path.is_null() {
            errors.invalid(
                &SPEC.field("nonResourceAttributes"),
                path_value(path),
                "disallowed on this kind of request",
            );
        } else {
            errors.invalid(&SPEC, path_value(path), ONE_OF);
        }
    } else if local && !path.is_null() {
        errors.invalid(&SPEC.field("nonResourceAttributes"), path_value(path), "disallowed on this kind of request");
    }
    if local && !resource.is_null() && resource.str("namespace") != namespace {
        let at = SPEC.field("resourceAttributes");
        errors.invalid(&at.field("namespace"), resource.str("namespace"), "must match metadata.namespace");
    }
    if !of_caller && spec.str("user").is_empty() && spec.list("groups").is_empty() {
        errors.invalid(&SPEC.field("user"), "", "at least one of user or group must be specified");
    }
    for selector in ["fieldSelector", "labelSelector"] {
        validate_selector(resource.at(selector), selector, errors);
    }
}

/// The value in the format of upstream's internal type.
fn path_value(attributes: &Tree) -> Value {
    if attributes.is_null() {
        return Value::raw("null");
    }
    let shown = tree! { "Path" => attributes.str("path"), "Verb" => attributes.str("verb") };
    Value::raw(String::from_utf8_lossy(&api::json::encode(&shown, None)).into_owned())
}

fn validate_selector(selector: &Tree, name: &str, errors: &mut Errors) {
    if selector.is_null() {
        return;
    }
    let at = SPEC.field("resourceAttributes");
    let at = at.field(name);
    let raw = selector.str("rawSelector");
    let requirements = selector.list("requirements");
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => {
            errors.invalid(&at.field("rawSelector"), raw, "may not specified at the same time as requirements");
        }
        (true, true) => errors.required(
            &at.field("requirements"),
            "when fieldSelector is specified, requirements or rawSelector is required",
        ),
        _ => {}
    }
}

fn rules(registry: &Registry, review: &Tree, user: &User) -> Result<Tree, Status> {
    let namespace = review.str("spec.namespace");
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let known = registry.authorizer.rules(user, namespace);
    let list =
        |is_listed: fn(&&Rule) -> bool| Tree::List(known.rules.iter().filter(is_listed).map(Rule::to_tree).collect());
    let mut status = tree! {
        "resourceRules" => list(|rule| !rule.resources.is_empty()),
        "nonResourceRules" => list(|rule| !rule.urls.is_empty()),
        "incomplete" => known.incomplete,
    };
    if let Some(error) = known.error {
        status.set("evaluationError", error);
    }
    Ok(tree! {
        "kind" => "SelfSubjectRulesReview",
        "apiVersion" => "authorization.k8s.io/v1",
        "metadata" => tree! {},
        "spec" => tree! {},
        "status" => status,
    })
}
