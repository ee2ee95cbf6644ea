//! Why a pod is pending, according to its scheduler: `/tiphys/v1/why/NAMESPACE/POD`, for users who may get the pod. For
//! a manifest posted to `/tiphys/v1/why/NAMESPACE` it predicts the node, for users who may create it there; nothing is
//! stored. Discovery does not show these paths.

use std::sync::Arc;

use api::status::Status;
use api::{Tree, tree};
use http::Method;
use kinds::User;
use store::BoxFuture;

use crate::call::{Call, Caller, HttpResponse, json_response};
use crate::registry::options::WriteOptions;
use crate::registry::verbs::{check_namespace, read_object, scope};
use crate::routes::Routes;
use crate::storage::resource::Resource;

/// The path of explanations; namespace and name follow.
pub const ROOT: &str = "/tiphys/v1/why/";

/// Why a scheduling decision cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// No scheduler is available, or its response is invalid.
    #[error("{0}")]
    Unavailable(String),
    /// The pod cannot be simulated.
    #[error("{0}")]
    InvalidPod(String),
}

impl From<ExplainError> for Status {
    fn from(error: ExplainError) -> Status {
        match error {
            ExplainError::Unavailable(why) => Status::service_unavailable(why),
            ExplainError::InvalidPod(why) => Status::bad_request(why),
        }
    }
}

/// Explains scheduling decisions.
pub trait SchedulingExplainer: Send + Sync {
    /// Every node's verdict on a pending pod, by namespace and name; None if it was not tried yet.
    fn why<'a>(
        &'a self,
        user: &'a User,
        scheduler: &'a str,
        pod: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<Tree>, ExplainError>>;

    /// How a pod that does not exist would be scheduled, or why it is invalid.
    fn what_if<'a>(&'a self, user: &'a User, pod: Tree) -> BoxFuture<'a, Result<Tree, ExplainError>>;
}

pub(crate) async fn route(routes: &Routes, call: &mut Call) -> Result<HttpResponse, Status> {
    let resource = routes.registry.storage.resources.find("", "v1", "pods").ok_or_else(Status::no_resource)?;
    match (&call.head.method, call.head.info.name.is_empty()) {
        (&Method::GET | &Method::HEAD, false) => why(routes, call, &resource).await,
        (&Method::POST, true) => what_if(routes, call, &resource).await,
        _ => Err(Status::method_not_allowed()),
    }
}

async fn why(routes: &Routes, call: &Call, resource: &Arc<Resource>) -> Result<HttpResponse, Status> {
    let (namespace, name) = (&call.head.info.namespace, &call.head.info.name);
    let item =
        routes.registry.storage.read(resource, namespace, name).await?.ok_or_else(|| resource.not_found(name))?;
    let pod = resource.read(&item);
    let mut explanation = match pod.str("spec.nodeName") {
        "" => waits(routes, call, &pod).await?,
        node => tree! { "node" => node, "message" => format!("the pod is on node {node}") },
    };
    explanation.set("namespace", namespace.as_str());
    explanation.set("name", name.as_str());
    explanation.set("schedulerName", pod.str("spec.schedulerName"));
    Ok(json_response(200, &explanation))
}

async fn waits(routes: &Routes, call: &Call, pod: &Tree) -> Result<Tree, Status> {
    let requested = (call.head.info.namespace.as_str(), call.head.info.name.as_str());
    let explanation = scheduler(routes)?.why(&*user(&call.caller)?, pod.str("spec.schedulerName"), requested).await?;
    // A scheduling gate, or an external scheduler: the pod's condition has the reason.
    let condition = |condition: &&Tree| condition.str("type") == "PodScheduled";
    let message = pod.list("status.conditions").iter().find(condition).map(|condition| condition.str("message"));
    let message = message.filter(|message| !message.is_empty()).unwrap_or("no scheduler has tried the pod yet");
    Ok(explanation.unwrap_or_else(|| tree! { "message" => message }))
}

/// The pod is processed as if it were created: it gets its defaults and passes admission.
async fn what_if(routes: &Routes, call: &mut Call, resource: &Arc<Resource>) -> Result<HttpResponse, Status> {
    let options = WriteOptions { dry_run: true, ..WriteOptions::parse(&call.head, "CreateOptions", false)? };
    let mut pod = read_object(call, resource, &options).await?;
    check_namespace(&mut pod, resource, &call.head.info.namespace)?;
    // A pod of this name may exist: this one gets another name.
    let metadata = pod.child("metadata");
    metadata.remove("name");
    metadata.set("generateName", "what-if-");
    let mut warnings = Vec::new();
    let created = scope(&routes.registry, resource, call, true)?.create(pod, &options, &mut warnings).await;
    call.warnings.append(&mut warnings);
    let explanation = scheduler(routes)?.what_if(&*user(&call.caller)?, created?.tree(resource)).await?;
    Ok(json_response(200, &explanation))
}

fn user(caller: &Caller) -> Result<Arc<User>, Status> {
    caller.user.clone().ok_or_else(|| Status::internal("the request has no user"))
}

fn scheduler(routes: &Routes) -> Result<&Arc<dyn SchedulingExplainer>, Status> {
    let missing = || Status::service_unavailable("no scheduler is available to this server");
    routes.scheduler.get().ok_or_else(missing)
}
