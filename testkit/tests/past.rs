//! The past of objects over the wire, on both engines: versions with their causes, objects and lists at a revision or a
//! time, after restarts, and only for clients that may read the objects.

use api::{Tree, json, list, tree};
use testkit::{Client, Cluster, Reply, Storage};

const HISTORY: &str = "/tiphys/v1/history";
const NAMESPACE: &str = "/api/v1/namespaces/default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn map(name: &str, value: &str) -> Tree {
    tree! {
        "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => name },
        "data" => tree! { "value" => value },
    }
}

async fn write(client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: &Tree) -> Tree {
    let headers = [&[("content-type", "application/json")], headers].concat();
    let reply = client.raw(method, path, &headers, json::encode(body, None)).await;
    assert!(reply.code < 300, "{method} {path}: {}", reply.text());
    reply.tree()
}

async fn versions(client: &Client, path: &str) -> Vec<Tree> {
    let reply = client.get(&format!("{HISTORY}{path}")).await;
    assert_eq!(reply.code, 200, "{}", reply.text());
    reply.tree().list("versions").to_vec()
}

async fn at(client: &Client, path: &str, at: &str) -> Reply {
    client.get(&format!("{HISTORY}{path}?at={at}")).await
}

fn revision(object: &Tree) -> String {
    object.str("metadata.resourceVersion").to_string()
}

fn texts<'a>(versions: &'a [Tree], field: &str) -> Vec<&'a str> {
    versions.iter().map(|version| version.str(field)).collect()
}

async fn versions_say_who_wrote_what(kept: Storage) {
    let mut cluster = Cluster::start(kept).await;
    let client = &cluster.client;
    let (maps, path) = (format!("{NAMESPACE}/configmaps"), format!("{NAMESPACE}/configmaps/a"));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let ours = [("audit-id", "first"), ("traceparent", trace)];
    let first = write(client, "POST", &maps, &ours, &map("a", "1")).await;
    let claim = [("tiphys-cause", "deployment-controller deployments.apps default/web 7")];
    let second = write(client, "PUT", &path, &claim, &map("a", "2")).await;
    let controller = [
        ("impersonate-user", "system:serviceaccount:kube-system:generic-garbage-collector"),
        ("impersonate-group", "system:masters"),
        ("tiphys-cause", "garbage-collector-controller deployments.apps default/web 7"),
    ];
    write(client, "DELETE", &path, &controller, &tree! {}).await;
    let other = write(client, "POST", &maps, &[], &map("a", "3")).await;
    let found = versions(client, &path).await;
    assert_eq!(texts(&found, "object.data.value"), ["1", "2", "", "3"]);
    assert_eq!(texts(&found, "verb"), ["create", "update", "delete", "create"]);
    assert_eq!((found[0].str("userAgent"), found[0].str("auditID")), ("testkit/1", "first"));
    assert_eq!(found[0].str("traceparent"), &trace[3..]);
    assert!(found.iter().all(|version| !version.str("user").is_empty() && !version.str("time").is_empty()));
    assert!(found[2].bool("deleted"));
    assert_ne!(found[1].str("object.metadata.uid"), found[3].str("object.metadata.uid"));
    // Only a component says what it acted on.
    assert_eq!((found[1].str("component"), found[1].has("actedOn")), ("", false));
    assert_eq!(found[2].str("component"), "garbage-collector-controller");
    let of = found[2].at("actedOn");
    assert_eq!((of.str("resource"), of.str("key"), of.int("revision")), ("deployments.apps", "default/web", Some(7)));
    cluster.restart().await;
    let client = &cluster.client;
    assert_eq!(versions(client, &path).await, found, "a restart loses nothing");
    for (version, value) in [(&first, "1"), (&second, "2"), (&other, "3")] {
        let then = at(client, &path, &revision(version)).await;
        assert_eq!((then.code, then.tree().str("data.value")), (200, value), "{}", then.text());
    }
    let gone = found[2].int("revision").unwrap_or_default().to_string();
    assert_eq!(at(client, &path, &gone).await.code, 404);
    let limited = client.get(&format!("{HISTORY}{path}?limit=2")).await.tree();
    assert_eq!((limited.list("versions").len(), limited.bool("limited")), (2, true));
    cluster.stop().await;
}

async fn lists_are_served_as_they_were(kept: Storage) {
    let mut cluster = Cluster::start(kept).await;
    let client = &cluster.client;
    let maps = format!("{NAMESPACE}/configmaps");
    write(client, "POST", &maps, &[], &map("a", "1")).await;
    let then = revision(&write(client, "POST", &maps, &[], &map("b", "1")).await);
    write(client, "PUT", &format!("{maps}/a"), &[], &map("a", "2")).await;
    write(client, "DELETE", &format!("{maps}/b"), &[], &tree! {}).await;
    write(client, "POST", &maps, &[], &map("c", "1")).await;
    cluster.restart().await;
    let client = &cluster.client;
    let list = at(client, &maps, &then).await.tree();
    let value = |object: &Tree| format!("{}={}", object.str("metadata.name"), object.str("data.value"));
    let items: Vec<String> = list.list("items").iter().map(value).collect();
    assert_eq!((items.as_slice(), revision(&list)), (&["a=1".to_string(), "b=1".to_string()][..], then.clone()));
    let named = format!("{HISTORY}{maps}?at={then}&fieldSelector=metadata.name%3Db");
    assert_eq!(client.get(&named).await.tree().list("items").len(), 1);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = client.raw("GET", &format!("{HISTORY}{maps}?at={then}"), &table, Vec::new()).await.tree();
    assert_eq!((table.str("kind"), table.list("rows").len()), ("Table", 2));
    for (at, code, why) in [
        ("yesterday", 400, "neither a revision nor a time"),
        ("", 400, "is required"),
        ("9999999999999", 400, "is in the future"),
        ("2001-01-01T00:00:00Z", 410, "before the history of this server"),
    ] {
        let reply = client.get(&format!("{HISTORY}{maps}?at={at}")).await;
        assert!(reply.code == code && reply.text().contains(why), "{at}: {} {}", reply.code, reply.text());
    }
    let now = at(client, &maps, "2999-01-01T00:00:00Z").await.tree();
    assert_eq!(now.list("items").iter().map(value).collect::<Vec<_>>(), ["a=2", "c=1"]);
    assert_eq!(client.post(&format!("{HISTORY}{maps}"), &map("d", "1")).await.code, 405);
    assert_eq!(client.get(&format!("{HISTORY}{NAMESPACE}/nothings/a")).await.code, 404);
    assert_eq!(client.get(&format!("{HISTORY}/healthz")).await.code, 404);
    cluster.stop().await;
}

/// A role for one verb on one resource in a namespace, bound to a user.
async fn allow(client: &Client, user: &str, verb: &str, resource: &str) {
    let rule = tree! { "verbs" => list![verb], "apiGroups" => list![""], "resources" => list![resource] };
    let name = format!("{user}-{verb}-{resource}");
    let (version, group) = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io");
    let metadata = || tree! { "name" => name.as_str() };
    let role = tree! { "apiVersion" => version, "kind" => "Role", "metadata" => metadata(), "rules" => list![rule] };
    let binding = tree! {
        "apiVersion" => version, "kind" => "RoleBinding", "metadata" => metadata(),
        "roleRef" => tree! { "apiGroup" => group, "kind" => "Role", "name" => name.as_str() },
        "subjects" => list![tree! { "kind" => "User", "apiGroup" => group, "name" => user }],
    };
    write(client, "POST", &format!("{RBAC}/namespaces/default/roles"), &[], &role).await;
    write(client, "POST", &format!("{RBAC}/namespaces/default/rolebindings"), &[], &binding).await;
}

async fn only_readers_see_the_past(kept: Storage) {
    let mut cluster = Cluster::start(kept).await;
    let client = &cluster.client;
    let (maps, secrets) = (format!("{NAMESPACE}/configmaps"), format!("{NAMESPACE}/secrets"));
    let then = revision(&write(client, "POST", &maps, &[], &map("a", "1")).await);
    let secret = tree! {
        "apiVersion" => "v1", "kind" => "Secret", "metadata" => tree! { "name" => "s" },
        "stringData" => tree! { "password" => "hidden" },
    };
    write(client, "POST", &secrets, &[], &secret).await;
    allow(client, "getter", "get", "configmaps").await;
    allow(client, "lister", "list", "configmaps").await;
    let code =
        async |user: &str, path: String| client.raw("GET", &path, &[("impersonate-user", user)], Vec::new()).await.code;
    for (user, versions, object, list) in
        [("stranger", 403, 403, 403), ("getter", 200, 200, 403), ("lister", 403, 403, 200)]
    {
        assert_eq!(code(user, format!("{HISTORY}{maps}/a")).await, versions, "{user}");
        assert_eq!(code(user, format!("{HISTORY}{maps}/a?at={then}")).await, object, "{user}");
        assert_eq!(code(user, format!("{HISTORY}{maps}?at={then}")).await, list, "{user}");
        // A right to one resource is none to another, nor in another namespace.
        assert_eq!(code(user, format!("{HISTORY}{secrets}/s")).await, 403, "{user}");
        assert_eq!(code(user, format!("{HISTORY}/api/v1/namespaces/kube-system/configmaps/a")).await, 403, "{user}");
        assert_eq!(code(user, format!("{HISTORY}/api/v1/configmaps?at={then}")).await, 403, "{user}");
        // What authorizes as a collection must not be served as an object.
        assert_ne!(code(user, format!("{HISTORY}{maps}/?at={then}")).await, 500, "{user}");
    }
    let shown = client.get(&format!("{HISTORY}{secrets}/s")).await.text();
    assert!(shown.contains("*** (value 1)") && !shown.contains("aGlkZGVu"), "{shown}");
    let asked = client.get(&format!("{HISTORY}{secrets}/s?values=true")).await.text();
    assert!(asked.contains("aGlkZGVu"), "{asked}");
    cluster.stop().await;
}

macro_rules! on_both_engines {
    ($($check:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                super::$check(super::Storage::Embedded).await;
            })*
        }

        mod etcd {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $check() {
                super::$check(super::Storage::Etcd).await;
            })*
        }
    };
}

on_both_engines! {
    versions_say_who_wrote_what,
    lists_are_served_as_they_were,
    only_readers_see_the_past,
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retention_there_is_no_past() {
    let config = server::Config { history: store::embedded::Retention::OFF, ..server::Config::default() };
    let mut cluster = Cluster::start_with(Storage::Embedded, config, async |_| {}).await;
    let reply = cluster.client.get(&format!("{HISTORY}{NAMESPACE}/configmaps/a")).await;
    assert!(reply.code == 501 && reply.text().contains("--history-retention"), "{}", reply.text());
    cluster.stop().await;
}

/// What controllers, the scheduler and kubelets write leads back to what the user wrote.
#[tokio::test(flavor = "multi_thread")]
async fn components_say_what_they_acted_on() {
    let mut cluster = Cluster::start_with_nodes(1).await;
    let client = &cluster.client;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let containers = list![tree! { "name" => "c", "image" => "i" }];
    let labels = || tree! { "app" => "web" };
    let deployment = tree! {
        "apiVersion" => "apps/v1", "kind" => "Deployment", "metadata" => tree! { "name" => "web" },
        "spec" => tree! {
            "selector" => tree! { "matchLabels" => labels() },
            "template" => tree! {
                "metadata" => tree! { "labels" => labels() }, "spec" => tree! { "containers" => containers },
            },
        },
    };
    write(client, "POST", deployments, &[], &deployment).await;
    let is_ready = |_: u16, tree: &Tree| tree.int("status.readyReplicas") == Some(1);
    client.until(&format!("{deployments}/web"), is_ready).await;
    let first = async |path: &str| client.get(path).await.tree().list("items")[0].str("metadata.name").to_string();
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = first(sets).await;
    let pod = first(&format!("{NAMESPACE}/pods")).await;
    let of = |version: &Tree| format!("{} {}", version.str("component"), version.at("actedOn").str("key"));
    let of_set: Vec<String> = versions(client, &format!("{sets}/{set}")).await.iter().map(of).collect();
    assert_eq!(of_set[0], "deployment-controller default/web", "{of_set:?}");
    let of_pod: Vec<String> = versions(client, &format!("{NAMESPACE}/pods/{pod}")).await.iter().map(of).collect();
    let expected = [format!("replicaset-controller default/{set}"), format!("kube-scheduler default/{pod}")];
    assert_eq!(of_pod[..2], expected, "{of_pod:?}");
    assert!(of_pod[2..].iter().all(|of| *of == format!("kubelet default/{pod}")), "{of_pod:?}");
    cluster.stop().await;
}
