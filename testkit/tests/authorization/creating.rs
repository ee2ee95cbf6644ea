//! Verbs that create objects are authorized as `create`, and neither headers nor metadata bypass authorization.

use api::{Tree, list, tree};
use testkit::{Client, Cluster, Reply, Storage};

use super::{ImpersonatingClient, MAPS, RBAC, binding, in_default, make, role, user, with_plugin};

const APPLY: &str = "application/apply-patch+yaml";

async fn apply(client: &Client, user: &str, path: &str, body: &Tree) -> Reply {
    let headers = [("impersonate-user", user), ("content-type", APPLY)];
    client.raw("PATCH", &format!("{path}?fieldManager=test"), &headers, api::json::encode(body, None)).await
}

fn map(name: &str) -> Tree {
    tree! { "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => name } }
}

fn refused(reply: &Reply, want: &str) {
    assert_eq!((reply.code, reply.tree().str("message")), (403, want));
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_that_creates_needs_create_permission() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    make(client, &in_default("roles"), &role("Role", "patcher", &["patch"], "", "configmaps")).await;
    make(client, &in_default("rolebindings"), &binding("RoleBinding", "jane", ("Role", "patcher"), "jane")).await;
    make(client, MAPS, &map("there")).await;
    assert_eq!(apply(client, "jane", &format!("{MAPS}/there"), &map("there")).await.code, 200);
    let reply = apply(client, "jane", &format!("{MAPS}/new"), &map("new")).await;
    let why = r#"configmaps "new" is forbidden: User "jane" cannot create resource "configmaps" in API group "" in the namespace "default""#;
    refused(&reply, why);
    assert_eq!(client.get(&format!("{MAPS}/new")).await.code, 404);
    make(client, &in_default("roles"), &role("Role", "creator", &["create"], "", "configmaps")).await;
    make(client, &in_default("rolebindings"), &binding("RoleBinding", "jane2", ("Role", "creator"), "jane")).await;
    assert_eq!(apply(client, "jane", &format!("{MAPS}/new"), &map("new")).await.code, 201);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn put_that_creates_needs_create_permission() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = tree! {
        "apiVersion" => "coordination.k8s.io/v1", "kind" => "Lease", "metadata" => tree! { "name" => "l" },
        "spec" => tree! { "holderIdentity" => "secret-holder", "leaseTransitions" => 7 },
    };
    let updater = role("Role", "updater", &["update"], "coordination.k8s.io", "leases");
    make(client, &in_default("roles"), &updater).await;
    make(client, &in_default("rolebindings"), &binding("RoleBinding", "jane", ("Role", "updater"), "jane")).await;
    let jane = user(client, "jane");
    let path = format!("{leases}/l");
    let why = r#"leases.coordination.k8s.io "l" is forbidden: User "jane" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default""#;
    refused(&jane.send("PUT", &path, Some(&lease)).await, why);
    assert_eq!(client.get(&path).await.code, 404);
    make(client, leases, &lease).await;
    let there = client.get(&path).await.tree();
    assert_eq!(jane.send("PUT", &path, Some(&there)).await.code, 200);
    cluster.stop().await;
}

/// Only clients that may update a lease learn whether a guess of its holder is right; for others the response is the same
/// for a missing lease, a wrong guess and the right one. Controllers update no lease themselves.
#[tokio::test(flavor = "multi_thread")]
async fn fences_reveal_nothing_of_leases() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let lease = tree! {
        "apiVersion" => "coordination.k8s.io/v1", "kind" => "Lease", "metadata" => tree! { "name" => "there" },
        "spec" => tree! { "holderIdentity" => "secret-holder", "leaseTransitions" => 7 },
    };
    make(client, "/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease).await;
    let creator = role("Role", "creator", &["create"], "", "configmaps");
    make(client, &in_default("roles"), &creator).await;
    let controller = "system:serviceaccount:kube-system:deployment-controller";
    let add_on = "system:serviceaccount:kube-system:kube-dns";
    for (name, user) in [("jane", "jane"), ("joe", "joe"), ("controller", controller), ("add-on", add_on)] {
        make(client, &in_default("rolebindings"), &binding("RoleBinding", name, ("Role", "creator"), user)).await;
    }
    let updater = role("Role", "updater", &["update"], "coordination.k8s.io", "leases");
    make(client, &in_default("roles"), &updater).await;
    make(client, &in_default("rolebindings"), &binding("RoleBinding", "joe2", ("Role", "updater"), "joe")).await;
    let attempt = async |user: &str, guess: &str| {
        let mut headers =
            vec![("tiphys-fence", guess), ("content-type", "application/json"), ("impersonate-user", user)];
        if [controller, add_on].contains(&user) {
            headers.push(("impersonate-group", "system:serviceaccounts:kube-system"));
        }
        let reply =
            client.raw("POST", &format!("{MAPS}?dryRun=All"), &headers, api::json::encode(&map("n"), None)).await;
        (reply.code, reply.tree().str("message").to_string())
    };
    let forbidden = |name: &str| {
        let why = "only clients that may update the lease can send the header tiphys-fence";
        (403, format!("leases.coordination.k8s.io {name:?} is forbidden: {why}"))
    };
    for (lease, guess) in [("there", "secret-holder 7"), ("there", "me 1"), ("gone", "me 1")] {
        let guess = format!("default/{lease} {guess}");
        assert_eq!(attempt("jane", &guess).await, forbidden(lease), "{guess}");
        assert_eq!(attempt(add_on, &guess).await, forbidden(lease), "{guess}");
    }
    let fenced = async |user: &str, guess: &str| {
        let headers = [("tiphys-fence", guess), ("content-type", "application/json"), ("impersonate-user", user)];
        let reply = client.raw("POST", MAPS, &headers, api::json::encode(&map("m"), None)).await;
        (reply.code, reply.tree().str("message").to_string())
    };
    for name in ["there", "gone"] {
        let want = format!(r#"the write is fenced off: the lease default/{name} is not held by "me" in transition 1"#);
        assert_eq!(fenced("joe", &format!("default/{name} me 1")).await, (409, want));
    }
    assert_eq!(fenced("joe", "default/there secret-holder 7").await.0, 201);
    assert_eq!(attempt(controller, "default/there secret-holder 7").await.0, 201);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_scoped_object_loses_its_namespace() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let mut given = role("ClusterRole", "r", &["get"], "", "pods");
    make(client, &format!("{RBAC}/clusterroles"), &given).await;
    let path = format!("{RBAC}/clusterroles/r");
    given.child("metadata").set("namespace", "default");
    let with_namespace = r#"{"metadata":{"namespace":"default"}}"#;
    let add = r#"[{"op":"add","path":"/metadata/namespace","value":"default"}]"#;
    let applied = String::from_utf8(api::json::encode(&given, None)).expect("JSON is text");
    let created = client.patch(&format!("{path}2?fieldManager=a"), "apply", &applied.replace("\"r\"", "\"r2\"")).await;
    assert_eq!((created.code, created.tree().at("metadata").has("namespace")), (201, false), "applied");
    let replies = [
        client.patch(&format!("{path}?fieldManager=a&force=true"), "apply", &applied).await,
        client.put(&path, &given).await,
        client.patch(&path, "merge", with_namespace).await,
        client.patch(&path, "strategic-merge", with_namespace).await,
        client.patch(&path, "json", add).await,
    ];
    for (at, reply) in replies.iter().enumerate() {
        assert_eq!(reply.code, 200, "{at}: {}", reply.tree().str("message"));
        assert!(!reply.tree().at("metadata").has("namespace"), "{at}");
    }
    // A namespaced object keeps its own namespace, and gets it back if a patch removes it.
    make(client, MAPS, &map("m")).await;
    let (path, remove) = (format!("{MAPS}/m"), r#"[{"op":"remove","path":"/metadata/namespace"}]"#);
    assert_eq!(client.patch(&path, "json", remove).await.code, 200);
    let other = client.patch(&path, "merge", r#"{"metadata":{"namespace":"other"}}"#).await;
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!((other.code, other.tree().str("message")), (400, why));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_cannot_change_its_owners() {
    let mut cluster = with_plugin("NodeRestriction").await;
    let client = &cluster.client;
    let n1 = ImpersonatingClient { client, user: "system:node:n1", group: "system:nodes" };
    let node = tree! { "apiVersion" => "v1", "kind" => "Node", "metadata" => tree! { "name" => "n1" } };
    make(client, "/api/v1/nodes", &node).await;
    let owner = tree! { "apiVersion" => "v1", "kind" => "ConfigMap", "name" => "gone", "uid" => "u" };
    for path in ["/api/v1/nodes/n1", "/api/v1/nodes/n1/status"] {
        let mut node = client.get("/api/v1/nodes/n1").await.tree();
        node.child("metadata").set("ownerReferences", list![owner.clone()]);
        let reply = n1.send("PUT", path, Some(&node)).await;
        let why = r#"nodes "n1" is forbidden: node "n1" is not allowed to modify ownerReferences"#;
        refused(&reply, why);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_requests_the_audiences_of_its_pods() {
    let mut cluster = with_plugin("NodeRestriction").await;
    let client = &cluster.client;
    let core = "/api/v1/namespaces/default";
    let account =
        tree! { "apiVersion" => "v1", "kind" => "ServiceAccount", "metadata" => tree! { "name" => "default" } };
    make(client, &format!("{core}/serviceaccounts"), &account).await;
    let source = tree! { "serviceAccountToken" => tree! { "audience" => "vault", "path" => "t" } };
    let volume = tree! { "name" => "v", "projected" => tree! { "sources" => list![source] } };
    let pod = tree! {
        "apiVersion" => "v1", "kind" => "Pod", "metadata" => tree! { "name" => "p" },
        "spec" => tree! {
            "nodeName" => "n1", "containers" => list![tree! { "name" => "c", "image" => "i" }],
            "volumes" => list![volume],
        },
    };
    make(client, &format!("{core}/pods"), &pod).await;
    let uid = client.get(&format!("{core}/pods/p")).await.tree().str("metadata.uid").to_string();
    let n1 = ImpersonatingClient { client, user: "system:node:n1", group: "system:nodes" };
    let check = async |audiences: Tree, want: Result<(), &str>| {
        let bound = tree! { "apiVersion" => "v1", "kind" => "Pod", "name" => "p", "uid" => uid.as_str() };
        let request = tree! {
            "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest",
            "spec" => tree! { "audiences" => audiences, "boundObjectRef" => bound },
        };
        let reply = n1.send("POST", &format!("{core}/serviceaccounts/default/token"), Some(&request)).await;
        match want {
            Ok(()) => assert_eq!(reply.code, 201, "{}", reply.tree().str("message")),
            Err(why) => refused(&reply, &format!(r#"serviceaccounts "default" is forbidden: {why}"#)),
        }
    };
    check(list!["vault"], Ok(())).await;
    // The ServiceAccount plugin mounts a token for the API server into each pod.
    check(list![], Ok(())).await;
    check(list!["vault", "bank"], Err("node may only request 0 or 1 audiences")).await;
    let why = r#"system:node:n1 is not authorized to request tokens for audience "bank""#;
    check(list!["bank"], Err(why)).await;
    let verb = "request-serviceaccounts-token-audience";
    make(client, &in_default("roles"), &role("Role", "banker", &[verb], "", "bank")).await;
    let bind = binding("RoleBinding", "banker", ("Role", "banker"), "system:node:n1");
    make(client, &in_default("rolebindings"), &bind).await;
    check(list!["bank"], Ok(())).await;
    cluster.stop().await;
}

/// The API server would dial the address with its own certificate.
#[tokio::test(flavor = "multi_thread")]
async fn only_schedulers_publish_their_address() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let place = "namespaces/kube-system";
    let leases = format!("/apis/coordination.k8s.io/v1/{place}/leases");
    let elected = role("Role", "elected", &["*"], "coordination.k8s.io", "leases");
    make(client, &format!("{RBAC}/{place}/roles"), &elected).await;
    let bind = binding("RoleBinding", "jane", ("Role", "elected"), "jane");
    make(client, &format!("{RBAC}/{place}/rolebindings"), &bind).await;
    let lease = |name: &str, address: &str| {
        let mut lease = tree! {
            "apiVersion" => "coordination.k8s.io/v1", "kind" => "Lease", "metadata" => tree! { "name" => name },
        };
        if !address.is_empty() {
            lease.child("metadata.annotations").set("tiphys.io/address", address);
        }
        lease
    };
    let jane = user(client, "jane");
    let why = "only a client that may create pods/binding in all namespaces can set the annotation tiphys.io/address";
    let refusal = |name: &str| format!("leases.coordination.k8s.io {name:?} is forbidden: {why}");
    refused(&jane.send("POST", &leases, Some(&lease("l", "10.0.0.1:1"))).await, &refusal("l"));
    assert_eq!(jane.send("POST", &leases, Some(&lease("l", ""))).await.code, 201);
    let path = format!("{leases}/l");
    refused(&apply(client, "jane", &path, &lease("l", "10.0.0.1:1")).await, &refusal("l"));
    let scheduler = user(client, "system:kube-scheduler");
    let announced = scheduler.send("POST", &leases, Some(&lease("kube-scheduler", "10.0.0.1:1"))).await;
    assert_eq!(announced.code, 201, "{}", announced.tree().str("message"));
    cluster.stop().await;
}

/// Leases of servers decide which addresses are endpoints of the Service `kubernetes`.
#[tokio::test(flavor = "multi_thread")]
async fn only_servers_write_leases_of_servers() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let place = "namespaces/kube-system";
    let leases = format!("/apis/coordination.k8s.io/v1/{place}/leases");
    make(client, &format!("{RBAC}/{place}/roles"), &role("Role", "elected", &["*"], "coordination.k8s.io", "leases"))
        .await;
    let bind = binding("RoleBinding", "jane", ("Role", "elected"), "jane");
    make(client, &format!("{RBAC}/{place}/rolebindings"), &bind).await;
    let lease = |name: &str, labels: Tree, holder: &str| {
        tree! {
            "apiVersion" => "coordination.k8s.io/v1", "kind" => "Lease",
            "metadata" => tree! { "name" => name, "labels" => labels },
            "spec" => tree! { "holderIdentity" => holder },
        }
    };
    let of_server = || {
        let mut labels = tree! {};
        labels.set("tiphys.io/server", "10.0.0.1");
        labels
    };
    let jane = user(client, "jane");
    let why = "only a client that may update the EndpointSlice default/kubernetes can change the lease of a server";
    let refusal = |name: &str| format!("leases.coordination.k8s.io {name:?} is forbidden: {why}");
    let own = "tiphys-server-10-0-0-1";
    refused(&jane.send("POST", &leases, Some(&lease("l", of_server(), "10.0.0.1"))).await, &refusal("l"));
    refused(&jane.send("POST", &leases, Some(&lease(own, tree! {}, "10.0.0.1"))).await, &refusal(own));
    assert_eq!(jane.send("POST", &leases, Some(&lease("l", tree! {}, "jane"))).await.code, 201);
    refused(&apply(client, "jane", &format!("{leases}/l"), &lease("l", of_server(), "jane")).await, &refusal("l"));
    make(client, &leases, &lease(own, of_server(), "10.0.0.1")).await;
    let path = format!("{leases}/{own}");
    let mut taken = client.get(&path).await.tree();
    taken.child("spec").set("holderIdentity", "10.0.0.2");
    refused(&jane.send("PUT", &path, Some(&taken)).await, &refusal(own));
    cluster.stop().await;
}
