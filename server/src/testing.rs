//! A whole server on a store in memory, for tests of parts that need one.

use std::sync::Arc;

use api::Tree;
use kinds::User;
use store::Precondition;

use crate::call::{Call, Peer};
use crate::registry::Registry;
use crate::registry::write::Scope;
use crate::storage::cache::Caches;
use crate::storage::resource::{self, Resource};
use crate::{Config, Server, authentication, bootstrap};

pub(crate) async fn server(config: Config) -> Arc<Server> {
    let caches = Arc::new(Caches::new(&config.storage_prefix, resource::storage_paths(), resource::adopt_own));
    let store = store::memory::open(caches.clone()).expect("a store in memory");
    let auth = authentication::Authentication {
        audiences: config.issuers.clone(),
        ..authentication::Authentication::default()
    };
    let server = Server::start(config, Arc::new(store), caches, auth, false).await.expect("a server");
    bootstrap::run(&server).await.expect("the first objects");
    server
}

/// The registry of such a server.
pub(crate) async fn registry(config: Config) -> Arc<Registry> {
    server(config).await.registry.clone()
}

/// A write in the namespace `default`.
pub(crate) fn scope<'a>(registry: &'a Registry, resource: &'a Resource, user: &'a User) -> Scope<'a> {
    Scope {
        registry,
        resource,
        user,
        namespace: "default",
        subresource: "",
        now: 1_700_000_000,
        dry_run: false,
        origin: None,
    }
}

/// Stores an object unchanged, without the write path.
pub(crate) async fn put(registry: &Registry, group: &str, version: &str, plural: &str, object: Tree) {
    let resource = registry.storage.resources.find(group, version, plural).expect("a resource");
    let user = User::default();
    let write = scope(registry, &resource, &user).put(object.str("metadata.name"), &object, Precondition::Absent);
    registry.storage.store.commit(vec![write]).await.expect("a commit");
}

/// A call of a user, as it is after authentication.
pub(crate) fn call(method: http::Method, path: &str, user: &str) -> Call {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let peer = Peer {
        address: std::net::SocketAddr::from(([192, 0, 2, 1], 1)),
        certificates: Arc::default(),
        watched: Default::default(),
        leave: Default::default(),
        seat: None,
    };
    let user = User { name: user.to_string(), groups: vec!["system:authenticated".to_string()], ..User::default() };
    let mut call = Call::new(method, path.to_string(), query.to_string(), peer, 1_700_000_000);
    call.caller.user = Some(Arc::new(user));
    call
}
