//! The objects that every cluster has from the start. They are created through the one write path, concurrently, and
//! only if they are missing: a second start on the same data writes nothing.

mod authentication;
mod base;
mod flowcontrol;
mod groups;
mod identity;
mod reconcile;
mod service;

use std::sync::Arc;

use api::Tree;
use api::status::Status;
use kinds::User;
use tokio::task::JoinSet;

use crate::Server;
use crate::aggregation::availability;
use crate::authorization::rbac;
use crate::common::users::system_user;
use crate::registry::edit::{Location, edit_object, own_options};
use crate::registry::verbs::patch::applied_object;
use crate::registry::write::Scope;
use crate::routes::health::Step;
use crate::storage::resource::Resource;

/// The name under which most of it is written.
const MANAGER: &str = "kube-apiserver";

/// One object: its resource, its content, and its field manager.
struct Object {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    manager: &'static str,
    tree: Tree,
}

/// A change to the status of an object by server-side apply.
struct StatusChange {
    group: &'static str,
    plural: &'static str,
    name: String,
    manager: &'static str,
    tree: Tree,
}

/// Creates what is missing, in steps: the first namespace, cluster-scoped objects, namespaced objects, objects that
/// need an address.
pub async fn run(server: &Arc<Server>) -> Result<(), Status> {
    // The system namespace is the oldest object of a cluster: some tools identify clusters by its UID.
    let mut namespaces = base::namespaces();
    let rest = namespaces.split_off(1);
    create_missing(server, namespaces).await?;
    let mut first = base::priority_classes();
    first.extend(flowcontrol::objects());
    first.extend(groups::api_services(&server.registry.storage.resources));
    first.extend(roles(rbac::policy::cluster_objects()));
    first.push(service::cidr(&server.config));
    create_missing(server, first).await?;
    for namespace in rest {
        create_missing(server, vec![namespace]).await?;
    }
    server.routes.health.set_done(Step::Cluster);
    reconcile::run(server, roles(rbac::policy::cluster_objects())).await?;

    let mut second = roles(rbac::policy::namespaced_objects());
    second.push(authentication::config_map(&server.registry.authentication.config));
    second.push(base::token_tracking(server.now()));
    second.push(identity::lease(server.now()));
    let mut changes = flowcontrol::status_changes(server);
    changes.extend(service::cidr_status(server));
    tokio::try_join!(create_missing(server, second), change(server, changes))?;
    server.routes.health.set_done(Step::Identity);

    reconcile::run(server, roles(rbac::policy::namespaced_objects())).await?;
    server.routes.health.set_done(Step::Roles);
    create_missing(server, service::objects(&server.config)).await?;
    service::sync(server).await?;
    server.routes.health.set_done(Step::Service);
    tokio::spawn(flowcontrol::keep_status(server.clone()));
    tokio::spawn(identity::keep(server.clone()));
    tokio::spawn(authentication::keep(server.clone()));
    tokio::spawn(availability::run(server.routes.aggregator.clone(), server.registry.clone()));
    Ok(())
}

/// The default roles and bindings as objects to create.
fn roles(objects: Vec<rbac::policy::Object>) -> Vec<Object> {
    let object = |rbac::policy::Object { plural, tree }| Object {
        group: rbac::GROUP,
        version: "v1",
        plural,
        manager: MANAGER,
        tree,
    };
    objects.into_iter().map(object).collect()
}

async fn create_missing(server: &Arc<Server>, objects: Vec<Object>) -> Result<(), Status> {
    let mut tasks = JoinSet::new();
    for object in objects {
        let resource = find(server, object.group, object.version, object.plural)?;
        let key = resource.key(object.tree.str("metadata.namespace"), object.tree.str("metadata.name"));
        if resource.cache()?.get(&key).is_none() {
            let server = server.clone();
            tasks.spawn(async move { create_object(&server, &resource, object).await });
        }
    }
    join(tasks).await
}

async fn change(server: &Arc<Server>, changes: Vec<StatusChange>) -> Result<(), Status> {
    let mut tasks = JoinSet::new();
    for change in changes {
        let server = server.clone();
        tasks.spawn(async move { apply_status(&server, &change).await });
    }
    join(tasks).await
}

async fn join(mut tasks: JoinSet<Result<(), Status>>) -> Result<(), Status> {
    while let Some(result) = tasks.join_next().await {
        result.map_err(Status::internal)??;
    }
    Ok(())
}

fn find(server: &Server, group: &str, version: &str, plural: &str) -> Result<Arc<Resource>, Status> {
    server.registry.storage.resources.find(group, version, plural).ok_or_else(Status::no_resource)
}

async fn create_object(server: &Server, resource: &Resource, object: Object) -> Result<(), Status> {
    let mut tree = object.tree;
    let expected = crate::request::codec::ExpectedType::of(&resource.kind);
    expected.shape(&mut tree, &mut Default::default()).map_err(Status::internal)?;
    resource.set_defaults(&mut tree);
    let user = system_user();
    let namespace = tree.str("metadata.namespace").to_string();
    let scope = scope(server, resource, &user, &namespace, "");
    match scope.create(tree, &own_options(object.manager), &mut Vec::new()).await {
        // Another server of the same cluster may have been first.
        Err(status) if status.reason == "AlreadyExists" => Ok(()),
        result => result.map(|_| ()),
    }
}

async fn apply_status(server: &Server, change: &StatusChange) -> Result<(), Status> {
    let resource = find(server, change.group, "v1", change.plural)?;
    let user = system_user();
    let scope = scope(server, &resource, &user, "", "status");
    let options = own_options(change.manager);
    let applied = |old: &Tree| applied_object(&scope, Some(old), &change.tree, &change.name, &options);
    scope.update(&change.name, &mut Vec::new(), |old, _| applied(old)).await.map(|_| ())
}

/// Changes an object of the server, if `edit` changes it.
async fn edit(
    server: &Server,
    (group, version, plural, namespace): (&str, &str, &str, &str),
    name: &str,
    edit: impl Fn(&mut Tree) + Send + Sync,
) -> Result<(), Status> {
    edit_object(&server.registry, Location { group, version, plural, namespace, name }, "", MANAGER, edit).await
}

fn scope<'a>(
    server: &'a Server,
    resource: &'a Resource,
    user: &'a User,
    namespace: &'a str,
    subresource: &'a str,
) -> Scope<'a> {
    Scope {
        registry: &server.registry,
        resource,
        user,
        namespace,
        subresource,
        now: server.now(),
        dry_run: false,
        origin: None,
    }
}
