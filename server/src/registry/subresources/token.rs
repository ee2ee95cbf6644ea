//! serviceaccounts/token: tokens for a service account, optionally bound to a pod, a secret or a node.

use std::sync::Arc;

use api::apply::{self, SameVersion};
use api::field::{Errors, Path};
use api::status::Status;
use api::{Tree, time};

use crate::authentication::token::{BoundObjects, Subject, Tokens};
use crate::call::{Call, HttpResponse};
use crate::registry::Registry;
use crate::registry::admission::{self, Operation};
use crate::registry::options::WriteOptions;
use crate::registry::write::Scope;
use crate::registry::{respond, verbs};
use crate::request::codec::ExpectedType;
use crate::storage::resource::Resource;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;

/// The lifetime that the kubelet requests for pods. Such tokens are extended: clients that do not reread them get time
/// to adapt.
const POD_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

pub(super) async fn create(
    registry: &Registry,
    resource: &Arc<Resource>,
    call: &mut Call,
) -> Result<HttpResponse, Status> {
    let accepted = respond::accepted(&call.head)?;
    let options = WriteOptions::parse(&call.head, "CreateOptions", false)?;
    let expected = ExpectedType::named(GROUP, "v1", KIND).ok_or_else(Status::no_resource)?;
    let mut request = verbs::read_expected(call, &expected, &options).await?;
    if !request.at("spec").has("expirationSeconds") {
        request.child("spec").set("expirationSeconds", DEFAULT_SECONDS);
    }
    own_fields(&expected, &mut request, call.head.now, &options);
    let scope = verbs::scope(registry, resource, call, options.dry_run)?;
    let mut warnings = Vec::new();
    let admitted = admit(&scope, &call.head.info.name, &mut request, &mut warnings).await;
    call.warnings.append(&mut warnings);
    let account = admitted?;
    let tokens = registry
        .authentication
        .config
        .tokens
        .as_ref()
        .ok_or_else(|| Status::internal("no key to sign tokens is configured"))?;
    let id = issue(registry, tokens, &account, &mut request, call.head.now)?;
    call.audit.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={id}"));
    if let Some(ty) = expected.table_type() {
        api::typed::fill(&mut request, ty);
    }
    Ok(respond::encoded(201, &request, accepted))
}

/// Completes and admits the request; gives the service account.
async fn admit(scope: &Scope<'_>, name: &str, request: &mut Tree, warnings: &mut Vec<String>) -> Result<Tree, Status> {
    let attributes = scope.attributes(Operation::Create, name);
    // Mutating admission gets the audiences of the client.
    admission::mutate(&attributes, Some(request), None, warnings).await?;
    check_names(request, name, scope.namespace)?;
    let account = scope.current_object(name).await?;
    if request.list("spec.audiences").is_empty() {
        let known = &scope.registry.authentication.config.audiences;
        let audiences: Vec<Tree> = known.iter().map(Tree::from).collect();
        request.child("spec").set("audiences", audiences);
    }
    validate(request)?;
    admission::validate(&attributes, Some(request), None, warnings).await?;
    Ok(account)
}

fn own_fields(expected: &ExpectedType<'_>, request: &mut Tree, now: i64, options: &WriteOptions) {
    let Some(ty) = expected.table_type() else { return };
    let api_version = "authentication.k8s.io/v1";
    let write = apply::Request {
        manager: &options.field_manager,
        api_version,
        subresource: "token",
        now: time::format_seconds(now),
        reset: None,
        versions: &SameVersion { api_version, ty: ty.into() },
    };
    apply::update(None, request, &write);
}

/// The body may only name the account of the path.
fn check_names(request: &Tree, name: &str, namespace: &str) -> Result<(), Status> {
    let mut errors = Errors::new();
    let path = Path::root("metadata");
    for (key, want) in [("name", name), ("namespace", namespace)] {
        let given = request.at("metadata").str(key);
        if !given.is_empty() && given != want {
            let text = format!("must match the service account {key} if specified");
            errors.invalid(&path.field(key), given, &text);
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(GROUP, KIND, name, &errors)) }
}

fn validate(request: &Tree) -> Result<(), Status> {
    let seconds = request.int("spec.expirationSeconds").unwrap_or(0);
    let mut errors = Errors::new();
    let path = Path::root("spec");
    let path = path.field("expirationSeconds");
    if seconds < MIN_SECONDS {
        errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(GROUP, KIND, "", &errors)) }
}

/// Issues the token; returns its ID.
fn issue(registry: &Registry, tokens: &Tokens, account: &Tree, request: &mut Tree, now: i64) -> Result<String, Status> {
    let bound = bound_objects(registry, account, request.at("spec.boundObjectRef"))?;
    let requested = request.int("spec.expirationSeconds").unwrap_or(DEFAULT_SECONDS);
    let own = |audience: &Tree| {
        audience.as_str().is_some_and(|name| registry.authentication.config.audiences.iter().any(|own| own == name))
    };
    let extended = requested == POD_SECONDS && bound.pod.is_some() && request.list("spec.audiences").iter().all(own);
    let subject = Subject {
        namespace: account.str("metadata.namespace"),
        name: account.str("metadata.name"),
        uid: account.str("metadata.uid"),
        bound,
        audiences: request.list("spec.audiences").iter().filter_map(Tree::as_str).collect(),
        seconds: if extended { EXTENDED_SECONDS } else { requested },
        warn_after: extended.then_some(now + requested),
    };
    let (token, id) = tokens.sign(&subject, registry.config.issuer(), now).map_err(Status::internal)?;
    let meta = request.child("metadata");
    for key in ["name", "namespace", "uid"] {
        meta.set(key, account.at("metadata").at(key).clone());
    }
    meta.set("creationTimestamp", time::format_seconds(now));
    let expires = time::format_seconds(now + requested);
    request.set("status", api::tree! { "token" => token, "expirationTimestamp" => expires });
    Ok(id)
}

/// The objects whose deletion invalidates the token.
fn bound_objects(registry: &Registry, account: &Tree, reference: &Tree) -> Result<BoundObjects, Status> {
    let mut bound = BoundObjects::default();
    if reference.is_null() {
        return Ok(bound);
    }
    let (namespace, name) = (account.str("metadata.namespace"), reference.str("name"));
    let find = |storage: &str, plural: &str, key: &str| {
        registry.storage.object(storage, key).ok_or_else(|| Status::not_found("", plural, name))
    };
    let key = format!("{namespace}/{name}");
    let object = match (reference.str("apiVersion"), reference.str("kind")) {
        ("v1", "Pod") => {
            let pod = find("pods", "pods", &key)?;
            if pod.str("spec.serviceAccountName") != account.str("metadata.name") {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    account.str("metadata.name")
                )));
            }
            bound.pod = Some(identity(&pod));
            bound.node = node_of(registry, &pod);
            pod
        }
        ("v1", "Secret") => {
            let secret = find("secrets", "secrets", &key)?;
            bound.secret = Some(identity(&secret));
            secret
        }
        ("v1", "Node") => {
            let node = find("minions", "nodes", name)?;
            bound.node = Some(identity(&node));
            node
        }
        (api_version, kind) => {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    check_uid(reference, &object)?;
    Ok(bound)
}

fn identity(object: &Tree) -> (String, String) {
    (object.str("metadata.name").to_string(), object.str("metadata.uid").to_string())
}

/// A pod's token contains the node of the pod.
fn node_of(registry: &Registry, pod: &Tree) -> Option<(String, String)> {
    let name = pod.str("spec.nodeName");
    if name.is_empty() {
        return None;
    }
    let uid = registry.storage.object("minions", name).map(|node| node.str("metadata.uid").to_string());
    Some((name.to_string(), uid.unwrap_or_default()))
}

fn check_uid(reference: &Tree, object: &Tree) -> Result<(), Status> {
    let uid = reference.str("uid");
    if uid.is_empty() || uid == object.str("metadata.uid") {
        return Ok(());
    }
    let why = format!(
        "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
    );
    Err(Status::conflict("", reference.str("kind"), reference.str("name"), &why))
}
