//! The objects that every cluster has from its first moment. They are made through the one write path,
//! all at once, and only where they are missing.

use std::sync::Arc;

use api::status::Status;
use api::{Map, Tree, tree};
use kinds::User;

use crate::Server;
use crate::codec::Validation;
use crate::options::WriteOptions;
use crate::write::Scope;

/// One object: where it belongs and what it is.
struct Object {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    namespace: &'static str,
    tree: Tree,
}

/// The identity under which the server writes for itself.
pub fn system_user() -> User {
    User {
        name: "system:apiserver".to_string(),
        uid: String::new(),
        groups: vec!["system:masters".to_string(), "system:authenticated".to_string()],
        extra: Map::new(),
    }
}

/// Makes what is missing. Namespaces come first: the rest may live in them.
pub async fn run(server: &Arc<Server>) -> Result<(), Status> {
    make(server, namespaces()).await?;
    make(server, priority_classes()).await?;
    server.health.set_ready();
    Ok(())
}

async fn make(server: &Arc<Server>, objects: Vec<Object>) -> Result<(), Status> {
    let mut tasks = tokio::task::JoinSet::new();
    for object in objects {
        let server = server.clone();
        tasks.spawn(async move { make_one(&server, object).await });
    }
    while let Some(result) = tasks.join_next().await {
        result.map_err(Status::internal)??;
    }
    Ok(())
}

async fn make_one(server: &Server, object: Object) -> Result<(), Status> {
    let resource = server.registry.find(object.group, object.version, object.plural).ok_or_else(Status::no_resource)?;
    let name = object.tree.str("metadata.name");
    if resource.cache()?.get(&resource.key(object.namespace, name)).is_some() {
        return Ok(());
    }
    let mut tree = object.tree;
    let ty = resource.ty();
    api::typed::conform(&mut tree, ty, &mut Default::default()).map_err(Status::internal)?;
    resource.set_defaults(&mut tree);
    let user = system_user();
    let scope = Scope {
        server,
        resource,
        user: &user,
        namespace: object.namespace,
        subresource: "",
        now: server.now(),
        dry_run: false,
    };
    let options = WriteOptions {
        dry_run: false,
        field_manager: "kube-apiserver".to_string(),
        validation: Validation::Ignore,
        force: false,
    };
    match scope.create(tree, &options, &mut Vec::new()).await {
        // Another server of the same cluster may have been first.
        Err(status) if status.reason == "AlreadyExists" => Ok(()),
        result => result.map(|_| ()),
    }
}

fn namespaces() -> Vec<Object> {
    let namespace = |name: &str| Object {
        group: "",
        version: "v1",
        plural: "namespaces",
        namespace: "",
        tree: tree! { "kind" => "Namespace", "apiVersion" => "v1", "metadata" => tree! { "name" => name } },
    };
    ["default", "kube-system", "kube-public", "kube-node-lease"].map(namespace).into()
}

fn priority_classes() -> Vec<Object> {
    let class = |(name, value, description): (&str, i64, &str)| Object {
        group: "scheduling.k8s.io",
        version: "v1",
        plural: "priorityclasses",
        namespace: "",
        tree: tree! {
            "kind" => "PriorityClass", "apiVersion" => "scheduling.k8s.io/v1", "metadata" => tree! { "name" => name },
            "value" => value, "description" => description,
        },
    };
    [
        ("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their current node."),
        ("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
    ]
    .map(class)
    .into()
}
