//! Authorization over the wire: roles and bindings apply at once, no user grants what they lack, kubelets read only
//! objects of their pods, and reviews match authorization.

mod creating;
mod devices;

use api::{Tree, json, list, tree};
use testkit::{Client, Cluster, Reply, Storage, Watch};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A caller that an administrator acts as.
struct ImpersonatingClient<'a> {
    client: &'a Client,
    user: &'a str,
    group: &'a str,
}

impl ImpersonatingClient<'_> {
    async fn send(&self, method: &str, path: &str, body: Option<&Tree>) -> Reply {
        let mut headers = vec![("impersonate-user", self.user), ("content-type", "application/json")];
        if !self.group.is_empty() {
            headers.push(("impersonate-group", self.group));
        }
        let body = body.map(|body| json::encode(body, None)).unwrap_or_default();
        self.client.raw(method, path, &headers, body).await
    }

    async fn get(&self, path: &str) -> u16 {
        self.send("GET", path, None).await.code
    }
}

fn user<'a>(client: &'a Client, user: &'a str) -> ImpersonatingClient<'a> {
    ImpersonatingClient { client, user, group: "" }
}

fn role(kind: &str, name: &str, verbs: &[&str], group: &str, resource: &str) -> Tree {
    let verbs: Vec<Tree> = verbs.iter().map(|verb| Tree::from(*verb)).collect();
    let rule = tree! { "verbs" => verbs, "apiGroups" => list![group], "resources" => list![resource] };
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1", "kind" => kind,
        "metadata" => tree! { "name" => name }, "rules" => list![rule],
    }
}

fn binding(kind: &str, name: &str, role: (&str, &str), user: &str) -> Tree {
    let group = "rbac.authorization.k8s.io";
    tree! {
        "apiVersion" => "rbac.authorization.k8s.io/v1", "kind" => kind, "metadata" => tree! { "name" => name },
        "roleRef" => tree! { "apiGroup" => group, "kind" => role.0, "name" => role.1 },
        "subjects" => list![tree! { "kind" => "User", "apiGroup" => group, "name" => user }],
    }
}

async fn make(client: &Client, path: &str, object: &Tree) {
    let reply = client.post(path, object).await;
    assert_eq!(reply.code, 201, "{path}: {}", reply.tree().str("message"));
}

fn in_default(plural: &str) -> String {
    format!("{RBAC}/namespaces/default/{plural}")
}

#[tokio::test(flavor = "multi_thread")]
async fn bindings_take_effect_before_the_response() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let jane = user(client, "jane");
    make(client, &in_default("roles"), &role("Role", "reader", &["get", "list"], "", "configmaps")).await;
    for _ in 0..20 {
        assert_eq!(jane.get(MAPS).await, 403);
        let bind = binding("RoleBinding", "jane", ("Role", "reader"), "jane");
        make(client, &in_default("rolebindings"), &bind).await;
        assert_eq!(jane.get(MAPS).await, 200);
        client.delete(&format!("{}/jane", in_default("rolebindings"))).await;
    }
    make(client, &in_default("rolebindings"), &binding("RoleBinding", "jane", ("Role", "reader"), "jane")).await;
    let narrowed = role("Role", "reader", &["get"], "", "configmaps");
    client.put(&format!("{}/reader", in_default("roles")), &narrowed).await;
    assert_eq!(jane.get(MAPS).await, 403, "a list is allowed no more");
    assert_eq!(jane.get(&format!("{MAPS}/none")).await, 404);
    assert_eq!(jane.get("/api/v1/namespaces/kube-system/configmaps/none").await, 403);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_privilege_escalation() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let ed = user(client, "ed");
    let writer = role("ClusterRole", "writer", &["create", "get", "update"], "rbac.authorization.k8s.io", "*");
    make(client, &format!("{RBAC}/clusterroles"), &writer).await;
    let bind = binding("ClusterRoleBinding", "ed", ("ClusterRole", "writer"), "ed");
    make(client, &format!("{RBAC}/clusterrolebindings"), &bind).await;
    let held = role("Role", "held", &["get"], "rbac.authorization.k8s.io", "roles");
    assert_eq!(ed.send("POST", &in_default("roles"), Some(&held)).await.code, 201);
    let refused = |reply: Reply, want: &str| {
        let message = reply.tree().str("message").to_string();
        assert_eq!(reply.code, 403, "{message}");
        assert!(message.contains(want), "{message}");
    };
    let more = role("Role", "more", &["get"], "", "secrets");
    let why = "is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
    refused(ed.send("POST", &in_default("roles"), Some(&more)).await, why);
    let more = role("Role", "held", &["get"], "", "secrets");
    refused(ed.send("PUT", &format!("{}/held", in_default("roles")), Some(&more)).await, why);
    let bind = binding("RoleBinding", "up", ("ClusterRole", "cluster-admin"), "ed");
    refused(ed.send("POST", &in_default("rolebindings"), Some(&bind)).await, "not currently held");
    let mut gathering = role("ClusterRole", "all", &[], "", "");
    gathering.remove("rules");
    let selector = tree! { "matchLabels" => tree! { "a" => "b" } };
    gathering.set("aggregationRule", tree! { "clusterRoleSelectors" => list![selector] });
    let why = "must have cluster-admin privileges to use the aggregationRule";
    refused(ed.send("POST", &format!("{RBAC}/clusterroles"), Some(&gathering)).await, why);
    let bind = binding("RoleBinding", "miss", ("Role", "missing"), "ed");
    assert_eq!(ed.send("POST", &in_default("rolebindings"), Some(&bind)).await.code, 404);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_read_objects_of_their_pods() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let kubelet = |user| ImpersonatingClient { client, user, group: "system:nodes" };
    let (n1, n2) = (kubelet("system:node:n1"), kubelet("system:node:n2"));
    let named =
        |kind: &str, name: &str| tree! { "apiVersion" => "v1", "kind" => kind, "metadata" => tree! { "name" => name } };
    let core = "/api/v1/namespaces/default";
    make(client, &format!("{core}/serviceaccounts"), &named("ServiceAccount", "default")).await;
    make(client, &format!("{core}/secrets"), &named("Secret", "s")).await;
    let secret = format!("{core}/secrets/s");
    assert_eq!((n1.get(&secret).await, n2.get(&secret).await), (403, 403));
    let mut pod = named("Pod", "p");
    let volume = tree! { "name" => "v", "secret" => tree! { "secretName" => "s" } };
    let container = tree! { "name" => "c", "image" => "i" };
    pod.set("spec", tree! { "nodeName" => "n1", "containers" => list![container], "volumes" => list![volume] });
    make(client, &format!("{core}/pods"), &pod).await;
    assert_eq!((n1.get(&secret).await, n2.get(&secret).await), (200, 403));
    assert_eq!((n1.get(&format!("{core}/pods/p")).await, n2.get(&format!("{core}/pods/p")).await), (200, 403));
    assert_eq!(n1.get("/api/v1/pods").await, 403);
    assert_eq!(n1.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await, 200);
    client.raw("DELETE", &format!("{core}/pods/p?gracePeriodSeconds=0"), &[], Vec::new()).await;
    assert_eq!(n1.get(&secret).await, 403, "the pod is deleted");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_match_authorization() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    make(client, &in_default("roles"), &role("Role", "reader", &["get"], "", "configmaps")).await;
    make(client, &in_default("rolebindings"), &binding("RoleBinding", "jane", ("Role", "reader"), "jane")).await;
    let jane = user(client, "jane");
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, resource, name) in
        [("get", "configmaps", "x"), ("list", "configmaps", ""), ("get", "secrets", "x"), ("get", "pods", "x")]
    {
        let attributes = tree! { "namespace" => "default", "verb" => verb, "resource" => resource, "name" => name };
        let review = tree! {
            "apiVersion" => "authorization.k8s.io/v1", "kind" => "SelfSubjectAccessReview",
            "spec" => tree! { "resourceAttributes" => attributes },
        };
        let said = jane.send("POST", reviews, Some(&review)).await.tree().bool("status.allowed");
        let path = format!("/api/v1/namespaces/default/{resource}/{name}");
        let met = jane.get(path.trim_end_matches('/')).await != 403;
        assert_eq!(said, met, "{verb} {resource} {name}");
        // Reviews for another user, in the two forms that name the user.
        for (kind, place) in [
            ("SubjectAccessReview", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
            ("LocalSubjectAccessReview", "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"),
        ] {
            let mut other = review.clone();
            other.set("kind", kind);
            other.child("spec").set("user", "jane");
            if kind.starts_with("Local") {
                other.child("metadata").set("namespace", "default");
            }
            let reply = client.post(place, &other).await;
            assert_eq!((reply.code, reply.tree().bool("status.allowed")), (201, met), "{kind} {verb} {resource}");
            other.child("spec").child("resourceAttributes").set("namespace", "kube-system");
            let reply = client.post(place, &other).await;
            let refused = kind.starts_with("Local");
            assert_eq!(reply.code, if refused { 422 } else { 201 }, "{kind}: {}", reply.tree().str("message"));
            assert!(!reply.tree().bool("status.allowed"), "the role is of another namespace");
        }
    }
    let review = tree! {
        "apiVersion" => "authorization.k8s.io/v1", "kind" => "SelfSubjectRulesReview",
        "spec" => tree! { "namespace" => "default" },
    };
    let reply = jane.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", Some(&review)).await.tree();
    let of_maps = |rule: &&Tree| rule.at("resources") == &list!["configmaps"];
    let known = reply.list("status.resourceRules").iter().find(of_maps).expect("her rule");
    assert_eq!(known.at("verbs"), &list!["get"]);
    assert!(!reply.list("status.resourceRules").iter().any(|rule| rule.at("resources") == &list!["secrets"]));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_create_objects_that_authorization_needs() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let named = tree! { "apiVersion" => "v1", "kind" => "Namespace", "metadata" => tree! { "name" => "fresh" } };
    make(client, "/api/v1/namespaces", &named).await;
    let mut accounts = client.watch("/api/v1/namespaces/fresh/serviceaccounts?watch=true&resourceVersion=0").await;
    assert_eq!(accounts.names(1).await, ["ADDED default"]);
    client.delete("/api/v1/namespaces/fresh/serviceaccounts/default").await;
    assert_eq!(accounts.names(2).await, ["DELETED default", "ADDED default"]);
    let mut maps = client.watch("/api/v1/namespaces/fresh/configmaps?watch=true&resourceVersion=0").await;
    let created = maps.next().await.expect("an event");
    assert_eq!(created.str("object.metadata.name"), "kube-root-ca.crt");
    let data = created.at("object").map("data").str("ca.crt").to_string();
    assert!(data.starts_with("-----BEGIN CERTIFICATE-----"), "{data}");
    let spoiled = r#"{"data":{"ca.crt":"x"}}"#;
    client.patch("/api/v1/namespaces/fresh/configmaps/kube-root-ca.crt", "merge", spoiled).await;
    assert_eq!(maps.names(2).await, ["MODIFIED kube-root-ca.crt"; 2]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregated_roles_follow_their_parts() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let bind = binding("RoleBinding", "viewer", ("ClusterRole", "view"), "jane");
    make(client, &in_default("rolebindings"), &bind).await;
    let jane = user(client, "jane");
    let mut roles = client
        .watch(&format!("{RBAC}/clusterroles?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Dview"))
        .await;
    gathered(&mut roles, "pods").await;
    assert_eq!(jane.get("/api/v1/namespaces/default/pods").await, 200);
    assert_eq!(jane.get("/api/v1/namespaces/default/secrets").await, 403);
    let mut more = role("ClusterRole", "more", &["list"], "", "secrets");
    let mut labels = tree! {};
    labels.set("rbac.authorization.k8s.io/aggregate-to-view", "true");
    more.child("metadata").set("labels", labels);
    make(client, &format!("{RBAC}/clusterroles"), &more).await;
    gathered(&mut roles, "secrets").await;
    assert_eq!(jane.get("/api/v1/namespaces/default/secrets").await, 200);
    cluster.stop().await;
}

/// Waits until the role that is watched has a rule about a resource.
async fn gathered(roles: &mut Watch, resource: &str) {
    let has = |rule: &Tree| rule.list("resources").contains(&Tree::from(resource));
    while !roles.next().await.expect("the watch goes on").list("object.rules").iter().any(has) {}
}

/// The start adds the rules of a later version to the bootstrap roles; added rules stay.
#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_roles_are_repaired_at_the_next_start() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let path = format!("{RBAC}/clusterroles/system:discovery");
    let spoiled = r#"{"rules":[{"verbs":["get"],"nonResourceURLs":["/mine"]}]}"#;
    assert_eq!(cluster.client.patch(&path, "merge", spoiled).await.code, 200);
    let subjects = r#"{"subjects":null}"#;
    let bound = format!("{RBAC}/clusterrolebindings/system:discovery");
    assert_eq!(cluster.client.patch(&bound, "merge", subjects).await.code, 200);
    assert_eq!(user(&cluster.client, "jo").get("/api").await, 403);
    cluster.restart().await;
    assert_eq!(user(&cluster.client, "jo").get("/api").await, 200);
    assert_eq!(user(&cluster.client, "jo").get("/mine").await, 404);
    cluster.stop().await;
}

async fn with_plugin(name: &str) -> Cluster {
    let admission = server::registry::admission::Setup::new(&[name.to_string()], &[], None).expect("a plugin").into();
    let config = server::Config { admission, ..server::Config::default() };
    Cluster::start_with(Storage::Embedded, config, async |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_write_only_their_own_objects() {
    let mut cluster = with_plugin("NodeRestriction").await;
    let client = &cluster.client;
    let n1 = ImpersonatingClient { client, user: "system:node:n1", group: "system:nodes" };
    let named =
        |kind: &str, name: &str| tree! { "apiVersion" => "v1", "kind" => kind, "metadata" => tree! { "name" => name } };
    let refused = |reply: Reply, want: &str| {
        let message = reply.tree().str("message").to_string();
        assert!(reply.code == 403 && message.contains(want), "{}: {message}", reply.code);
    };
    let nodes = "/api/v1/nodes";
    assert_eq!(n1.send("POST", nodes, Some(&named("Node", "n1"))).await.code, 201);
    let other = n1.send("POST", nodes, Some(&named("Node", "n2"))).await;
    refused(other, r#"node "n1" is not allowed to modify node "n2""#);
    let mut node = client.get("/api/v1/nodes/n1").await.tree();
    let uid = node.str("metadata.uid").to_string();
    node.child("metadata.labels").set("node-restriction.kubernetes.io/x", "y");
    refused(n1.send("PUT", "/api/v1/nodes/n1", Some(&node)).await, "is not allowed to modify labels: node-restriction");
    let core = "/api/v1/namespaces/default";
    make(client, &format!("{core}/serviceaccounts"), &named("ServiceAccount", "default")).await;
    let mut pod = named("Pod", "p");
    pod.set("spec", tree! { "nodeName" => "n1", "containers" => list![tree! { "name" => "c", "image" => "i" }] });
    let plain = n1.send("POST", &format!("{core}/pods"), Some(&pod)).await;
    refused(plain, "node \"n1\" can only create mirror pods");
    let mut mirror = pod.clone();
    mirror.child("metadata.annotations").set("kubernetes.io/config.mirror", "x");
    let owner = tree! { "apiVersion" => "v1", "kind" => "Node", "name" => "n1", "uid" => uid, "controller" => true };
    mirror.child("metadata").set("ownerReferences", list![owner]);
    let created = n1.send("POST", &format!("{core}/pods"), Some(&mirror)).await;
    assert_eq!(created.code, 201, "{}", created.tree().str("message"));
    let mut elsewhere = named("Pod", "q");
    elsewhere.set("spec", tree! { "nodeName" => "n2", "containers" => list![tree! { "name" => "c", "image" => "i" }] });
    make(client, &format!("{core}/pods"), &elsewhere).await;
    let gone = n1.send("DELETE", &format!("{core}/pods/q"), None).await;
    refused(gone, "can only delete pods with spec.nodeName set to itself");
    let eviction = tree! { "apiVersion" => "policy/v1", "kind" => "Eviction", "metadata" => tree! { "name" => "q" } };
    let evicted = n1.send("POST", &format!("{core}/pods/q/eviction"), Some(&eviction)).await;
    refused(evicted, "can only evict pods with spec.nodeName set to itself");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_get_tokens_for_their_own_pods() {
    let mut cluster = with_plugin("NodeRestriction").await;
    let client = &cluster.client;
    let core = "/api/v1/namespaces/default";
    let named =
        |kind: &str, name: &str| tree! { "apiVersion" => "v1", "kind" => kind, "metadata" => tree! { "name" => name } };
    make(client, &format!("{core}/serviceaccounts"), &named("ServiceAccount", "default")).await;
    let mut pod = named("Pod", "p");
    pod.set("spec", tree! { "nodeName" => "n1", "containers" => list![tree! { "name" => "c", "image" => "i" }] });
    make(client, &format!("{core}/pods"), &pod).await;
    make(client, "/api/v1/nodes", &named("Node", "n1")).await;
    let uid = client.get(&format!("{core}/pods/p")).await.tree().str("metadata.uid").to_string();
    let request = |bound: Tree| {
        tree! {
            "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest",
            "spec" => tree! { "audiences" => list![], "boundObjectRef" => bound },
        }
    };
    let bound = |uid: &str| tree! { "apiVersion" => "v1", "kind" => "Pod", "name" => "p", "uid" => uid };
    let path = format!("{core}/serviceaccounts/default/token");
    let (n1, n2) = (
        ImpersonatingClient { client, user: "system:node:n1", group: "system:nodes" },
        ImpersonatingClient { client, user: "system:node:n2", group: "system:nodes" },
    );
    assert_eq!(n1.send("POST", &path, Some(&request(bound(&uid)))).await.code, 201);
    let unbound = n1.send("POST", &path, Some(&request(Tree::Null))).await;
    assert!(unbound.tree().str("message").contains("node requested token not bound to a pod"));
    let stale = n1.send("POST", &path, Some(&request(bound("other")))).await;
    assert!(stale.tree().str("message").contains("does not match the UID in record"));
    let stranger = n2.send("POST", &path, Some(&request(bound(&uid)))).await;
    assert!(stranger.tree().str("message").contains("no relationship found between node 'n2' and this object"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_of_certificates_needs_permission() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let csr = tree! {
        "apiVersion" => "certificates.k8s.io/v1", "kind" => "CertificateSigningRequest",
        "metadata" => tree! { "name" => "r" },
        "spec" => tree! {
            "request" => REQUEST, "signerName" => "example.com/one", "usages" => list!["digital signature"],
        },
    };
    make(client, requests, &csr).await;
    let parts = role("ClusterRole", "parts", &["*"], "certificates.k8s.io", "certificatesigningrequests/approval");
    make(client, &format!("{RBAC}/clusterroles"), &parts).await;
    let bind = binding("ClusterRoleBinding", "parts", ("ClusterRole", "parts"), "jane");
    make(client, &format!("{RBAC}/clusterrolebindings"), &bind).await;
    let condition = tree! { "type" => "Approved", "status" => "True", "reason" => "r", "message" => "m" };
    let mut approved = client.get(&format!("{requests}/r")).await.tree();
    approved.set("status", tree! { "conditions" => list![condition] });
    let jane = user(client, "jane");
    let path = format!("{requests}/r/approval");
    let refused = jane.send("PUT", &path, Some(&approved)).await.tree();
    let why = r#"user not permitted to approve requests with signerName "example.com/one""#;
    assert!(refused.str("message").contains(why), "{}", refused.str("message"));
    let mut signer = role("ClusterRole", "signer", &["approve"], "certificates.k8s.io", "signers");
    signer.list_mut("rules")[0].set("resourceNames", list!["example.com/*"]);
    make(client, &format!("{RBAC}/clusterroles"), &signer).await;
    let bind = binding("ClusterRoleBinding", "signer", ("ClusterRole", "signer"), "jane");
    make(client, &format!("{RBAC}/clusterrolebindings"), &bind).await;
    let reply = jane.send("PUT", &path, Some(&approved)).await;
    assert_eq!(reply.code, 200, "{}", reply.tree().str("message"));
    cluster.stop().await;
}

/// `openssl req -new -subj '/O=system:masters/CN=x'`
const REQUEST: &str = concat!(
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIZk1JR0hBZ0VBTUNVeEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRw",
    "dFlYTjBaWEp6TVFvd0NBWURWUVFEREFGNApNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUVhaGQ4eUxDbVhGZExx",
    "bFljTVVYMEVTOVM0UmZGCmw3RHc0SGMvam9DeG14OUhhSytaL0QxNkxsam05ZS9URGZEVXBMZVR0YzQ4TDhxSC92emQ3RW1BaWFB",
    "QU1Bb0cKQ0NxR1NNNDlCQU1DQTBjQU1FUUNJRTZ0UWJZQ1QySjBKMS82VjkzVHNkMkYyNGVLNEF1azdhbm91dlFoUTdwOQpBaUJp",
    "UUdZK2pNdEgvUVpzVGhWZWpzOEFTaEp4empvRkxqT0ZBdmNJTnFtSGlnPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0t",
    "LS0tCg==",
);

#[tokio::test(flavor = "multi_thread")]
async fn setting_owners_needs_permission() {
    let mut cluster = with_plugin("OwnerReferencesPermissionEnforcement").await;
    let client = &cluster.client;
    make(client, &in_default("roles"), &role("Role", "writer", &["create", "get", "update"], "", "configmaps")).await;
    make(client, &in_default("rolebindings"), &binding("RoleBinding", "jane", ("Role", "writer"), "jane")).await;
    let map = |name: &str, owner: Option<(&str, bool)>| {
        let mut meta = tree! { "name" => name };
        if let Some((uid, blocks)) = owner {
            let owner = tree! {
                "apiVersion" => "v1", "kind" => "ConfigMap", "name" => "owner", "uid" => uid,
                "blockOwnerDeletion" => blocks,
            };
            meta.set("ownerReferences", list![owner]);
        }
        tree! { "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => meta }
    };
    make(client, MAPS, &map("owner", None)).await;
    let jane = user(client, "jane");
    assert_eq!(jane.send("POST", MAPS, Some(&map("a", Some(("u", false))))).await.code, 201, "it is hers to make");
    let refused = jane.send("PUT", &format!("{MAPS}/a"), Some(&map("a", Some(("v", false))))).await.tree();
    assert!(refused.str("message").contains("cannot set an ownerRef on a resource you can't delete: , <nil>"));
    let refused = jane.send("POST", MAPS, Some(&map("b", Some(("u", true))))).await.tree();
    assert!(refused.str("message").contains("cannot set blockOwnerDeletion if an ownerReference refers to a resource"));
    cluster.stop().await;
}
