//! Services against a whole server on a store in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::status::Status;
use api::{Tree, list, tree};

use super::*;
use crate::Config;
use crate::common::users::system_user;
use crate::registry::options::DeleteOptions;
use crate::registry::verbs::delete::delete_one;
use crate::registry::write::Outcome;
use crate::testing;

async fn registry(cidrs: &[&str], node_ports: std::ops::RangeInclusive<u16>) -> Arc<Registry> {
    let config = Config {
        service_cidrs: cidrs.iter().map(|cidr| cidr.parse().expect("a network")).collect(),
        node_ports,
        ..Config::default()
    };
    testing::registry(config).await
}

fn options() -> WriteOptions {
    WriteOptions { dry_run: false, field_manager: "test".to_string(), validation: Validation::Ignore, force: false }
}

fn scope<'a>(registry: &'a Registry, user: &'a kinds::User, dry_run: bool) -> Scope<'a> {
    let is_service = |resource: &&std::sync::Arc<crate::storage::resource::Resource>| resource.kind.kind() == "Service";
    let resource = registry.storage.resources.built_in().iter().find(is_service).expect("services are served");
    Scope { dry_run, ..testing::scope(registry, resource, user) }
}

async fn create(registry: &Registry, name: &str, spec: Tree, dry_run: bool) -> Result<Tree, Status> {
    let user = system_user();
    let scope = scope(registry, &user, dry_run);
    let mut service =
        tree! { "kind" => "Service", "apiVersion" => "v1", "metadata" => tree! { "name" => name }, "spec" => spec };
    api::typed::conform(&mut service, scope.resource.table_type().expect("a type"), &mut Default::default())
        .expect("a service");
    scope.resource.kind.set_defaults(&mut service);
    let outcome: Outcome = scope.create(service, &options(), &mut Vec::new()).await?;
    Ok(outcome.tree(scope.resource))
}

async fn update(registry: &Registry, name: &str, change: impl Fn(&mut Tree) + Send + Sync) -> Result<Tree, Status> {
    let user = system_user();
    let scope = scope(registry, &user, false);
    let changed = |old: &Tree, _: &Arc<crate::storage::cache::Item>| {
        let mut object = old.clone();
        change(object.child("spec"));
        scope.resource.kind.set_defaults(&mut object);
        Ok(object)
    };
    Ok(scope.update(name, &mut Vec::new(), changed).await?.tree(scope.resource))
}

async fn delete(registry: &Registry, name: &str) {
    let user = system_user();
    let scope = scope(registry, &user, false);
    delete_one(&scope, name, &DeleteOptions::default(), &mut Vec::new()).await.expect("the service is there");
}

fn objects(registry: &Registry, storage: &str) -> Vec<Tree> {
    registry.storage.caches.get(storage).expect("a cache").snapshot().map.values().map(|item| item.tree()).collect()
}

fn node_port(spec: Tree) -> Tree {
    let mut spec = spec;
    spec.set("type", "NodePort");
    spec.set("ports", list![tree! { "port" => 80 }]);
    spec
}

/// Every address of a service has its object, every object its service, and no port is held twice.
fn check_nothing_leaked(registry: &Registry) {
    let mut addresses = BTreeSet::new();
    let mut ports = BTreeSet::new();
    for service in objects(registry, "services/specs") {
        for ip in allocation::cluster_ips(&service) {
            assert!(addresses.insert((ip.to_string(), service.str("metadata.name").to_string())), "{ip} twice");
        }
        for port in allocation::node_ports(&service) {
            assert!(ports.insert(port.number), "{} twice", port.number);
        }
    }
    let claimed: BTreeSet<(String, String)> = objects(registry, "ipaddresses")
        .iter()
        .map(|object| (object.str("metadata.name").to_string(), object.str("spec.parentRef.name").to_string()))
        .collect();
    assert_eq!(addresses, claimed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn allocates_each_port_once_and_releases_all() {
    let registry = registry(&["10.0.0.0/26"], 30000..=30039).await;
    let before = objects(&registry, "services/specs").len();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..80 {
        let registry = registry.clone();
        tasks.spawn(async move {
            let name = format!("s{number}");
            create(&registry, &name, node_port(tree! {}), false).await.map(|_| name)
        });
    }
    let results = tasks.join_all().await;
    let made: Vec<String> = results.into_iter().filter_map(Result::ok).collect();
    assert_eq!(made.len(), 40, "as many as there are node ports");
    check_nothing_leaked(&registry);
    let mut tasks = tokio::task::JoinSet::new();
    for (number, name) in made.iter().cloned().enumerate() {
        let registry = registry.clone();
        tasks.spawn(async move {
            match number % 3 {
                0 => delete(&registry, &name).await,
                1 => drop(update(&registry, &name, |spec| spec.set("type", "ClusterIP")).await.expect("a new type")),
                _ => drop(create(&registry, &format!("late-{name}"), node_port(tree! {}), false).await),
            }
        });
    }
    tasks.join_all().await;
    check_nothing_leaked(&registry);
    let names: Vec<String> =
        objects(&registry, "services/specs").iter().map(|object| object.str("metadata.name").to_string()).collect();
    for name in names.iter().filter(|name| *name != "kubernetes") {
        delete(&registry, name).await;
    }
    check_nothing_leaked(&registry);
    assert_eq!(objects(&registry, "services/specs").len(), before);
    create(&registry, "again", node_port(tree! {}), false).await.expect("everything is free again");
}

#[tokio::test]
async fn new_index_contains_held_ports() {
    let registry = registry(&["10.0.0.0/24"], 30000..=32767).await;
    let spec = tree! { "type" => "NodePort", "ports" => list![tree! { "port" => 80, "nodePort" => 30123 }] };
    create(&registry, "a", spec, false).await.expect("a service");
    let ports = ports::Ports::new(30000..=32767);
    let services = registry.storage.caches.get("services/specs").expect("a cache");
    assert_eq!(ports.begin(&services, "default/b").take(30123), Err(PortError::Taken));
    assert_eq!(ports.begin(&services, "default/a").take(30123), Ok(()));
}

#[tokio::test]
async fn dry_run_allocates_nothing() {
    let registry = registry(&["10.0.0.0/24"], 30000..=32767).await;
    let before = objects(&registry, "ipaddresses").len();
    let shown = create(&registry, "a", node_port(tree! {}), true).await.expect("a service");
    assert_eq!(shown.str("spec.clusterIP"), "10.0.0.0");
    assert!(shown.list("spec.ports")[0].int("nodePort").is_some());
    assert_eq!(objects(&registry, "ipaddresses").len(), before);
}

#[tokio::test]
async fn the_second_family_comes_and_goes() {
    let registry = registry(&["10.0.0.0/24", "fd00::/112"], 30000..=32767).await;
    let spec = tree! { "ports" => list![tree! { "port" => 80 }], "ipFamilyPolicy" => "RequireDualStack" };
    let service = create(&registry, "a", spec, false).await.expect("a service");
    assert_eq!(service.at("spec.ipFamilies"), &list!["IPv4", "IPv6"]);
    assert_eq!(service.list("spec.clusterIPs").len(), 2);
    check_nothing_leaked(&registry);
    let service = update(&registry, "a", |spec| spec.set("ipFamilyPolicy", "SingleStack")).await.expect("one family");
    assert_eq!(service.list("spec.clusterIPs").len(), 1);
    check_nothing_leaked(&registry);
    let named = tree! {
        "ports" => list![tree! { "port" => 80 }], "ipFamilyPolicy" => "PreferDualStack",
        "clusterIP" => "fd00::5", "clusterIPs" => list!["fd00::5"],
    };
    let service = create(&registry, "b", named, false).await.expect("a service");
    assert_eq!(service.at("spec.ipFamilies"), &list!["IPv6", "IPv4"]);
    check_nothing_leaked(&registry);
}

#[tokio::test]
async fn duplicate_port_error_names_the_node_port() {
    let registry = registry(&["10.0.0.0/24"], 30000..=30000).await;
    let port = |name: &str| tree! { "name" => name, "port" => 80, "protocol" => "TCP" };
    let spec = tree! { "type" => "NodePort", "ports" => list![port("a"), port("b")] };
    let status = create(&registry, "twice", spec, false).await.expect_err("a duplicate");
    let want = "spec.ports[1].nodePort: Duplicate value: 30000, spec.ports[1]: Duplicate value:";
    assert!(status.message.contains(want), "{}", status.message);
    let spec = node_port(tree! {});
    create(&registry, "once", spec, false).await.expect("the number was not kept");
}
