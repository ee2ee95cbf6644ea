//! Admission plugins that are enabled by flags, through the API.

use std::path::Path;
use std::sync::Arc;

use api::{Tree, list, tree};
use server::registry::admission::Setup;
use server::registry::admission::initial_resources::{Usage, UsageQuery};
use testkit::{Client, Cluster, Hook, HookResponse, Storage};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn named(api_version: &str, kind: &str, name: &str) -> Tree {
    tree! { "apiVersion" => api_version, "kind" => kind, "metadata" => tree! { "name" => name } }
}

fn pod(name: &str) -> Tree {
    let mut pod = named("v1", "Pod", name);
    pod.set(
        "spec",
        tree! {
            "automountServiceAccountToken" => false,
            "containers" => list![tree! { "name" => "c", "image" => "app:1" }],
        },
    );
    pod
}

fn setup(enable: &[&str], file: Option<&Path>) -> Setup {
    let enable: Vec<String> = enable.iter().map(ToString::to_string).collect();
    Setup::new(&enable, &[], file).unwrap_or_else(|errors| panic!("{errors:?}"))
}

async fn start(setup: Setup) -> Cluster {
    let config = server::Config { admission: Arc::new(setup), ..server::Config::default() };
    let cluster = Cluster::start_with(Storage::Embedded, config, async |_| {}).await;
    let account = named("v1", "ServiceAccount", "default");
    let created = cluster.client.post("/api/v1/namespaces/default/serviceaccounts", &account).await.code;
    assert!(matches!(created, 201 | 409), "{created}");
    cluster
}

/// An AdmissionConfiguration with one plugin's configuration.
fn file(dir: &Path, plugin: &str, configuration: &str) -> std::path::PathBuf {
    let path = dir.join("admission.yaml");
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
    std::fs::write(&path, format!("{head}plugins: [{{name: {plugin}, configuration: {configuration}}}]\n"))
        .expect("a file");
    path
}

async fn refused(client: &Client, path: &str, object: &Tree, code: u16, want: &str) {
    let reply = client.post(path, object).await;
    let message = reply.tree().str("message").to_string();
    assert_eq!(reply.code, code, "{message}");
    assert!(message.contains(want), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn enabled_plugins_work() {
    let names = [
        "NamespaceAutoProvision",
        "AlwaysPullImages",
        "DenyServiceExternalIPs",
        "LimitPodHardAntiAffinityTopology",
        "ExtendedResourceToleration",
        "PodNodeSelector",
        "PodTolerationRestriction",
        "NamespaceExists",
    ];
    let mut cluster = start(setup(&names, None)).await;
    let client = &cluster.client;
    let created = client.post("/api/v1/namespaces/fresh/configmaps", &named("v1", "ConfigMap", "a")).await;
    assert_eq!(created.code, 201, "{}", created.tree().str("message"));
    let namespace = client.get("/api/v1/namespaces/fresh").await.tree();
    assert_eq!(namespace.map("metadata.labels").str("kubernetes.io/metadata.name"), "fresh");
    assert_eq!(namespace.list("spec.finalizers").len(), 1);

    let annotate = r#"{"metadata":{"annotations":{"scheduler.alpha.kubernetes.io/node-selector":"disk=ssd",
        "scheduler.alpha.kubernetes.io/defaultTolerations":"[{\"key\":\"k\",\"operator\":\"Exists\"}]"}}}"#;
    assert_eq!(client.patch("/api/v1/namespaces/default", "merge", annotate).await.code, 200);
    let mut object = pod("a");
    let amounts = tree! { "limits" => tree! { "x.io/gpu" => "1" } };
    object.list_mut("spec.containers")[0].set("resources", amounts);
    let created = client.post(PODS, &object).await.tree();
    assert_eq!(created.list("spec.containers")[0].str("imagePullPolicy"), "Always", "{created:?}");
    assert_eq!(created.at("spec.nodeSelector"), &tree! { "disk" => "ssd" });
    let keys: Vec<&str> = created.list("spec.tolerations").iter().map(|toleration| toleration.str("key")).collect();
    assert!(keys.contains(&"k") && keys.contains(&"x.io/gpu"), "{keys:?}");

    let mut service = named("v1", "Service", "s");
    service.set("spec", tree! { "ports" => list![tree! { "port" => 80 }], "externalIPs" => list!["9.9.9.9"] });
    let why = "Use of external IPs is denied by admission control";
    refused(client, "/api/v1/namespaces/default/services", &service, 403, why).await;
    let mut wide = pod("b");
    let term = tree! { "topologyKey" => "zone", "labelSelector" => tree! {} };
    wide.child("spec.affinity.podAntiAffinity").set("requiredDuringSchedulingIgnoredDuringExecution", list![term]);
    refused(client, PODS, &wide, 403, "has TopologyKey zone but only key kubernetes.io/hostname is allowed").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_limited() {
    let dir = tempfile::tempdir().expect("a directory");
    let limits = "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Namespace, qps: 1, burst: 3}]}";
    let mut cluster = start(setup(&["EventRateLimit"], Some(&file(dir.path(), "EventRateLimit", limits)))).await;
    let mut codes = Vec::new();
    for number in 0..20 {
        let mut event = named("v1", "Event", &format!("e{number}"));
        event.set("involvedObject", tree! { "namespace" => "default", "name" => "x", "kind" => "Pod" });
        codes.push(cluster.client.post("/api/v1/namespaces/default/events", &event).await.code);
    }
    assert_eq!(codes[..3], [201; 3]);
    assert!(codes.contains(&429), "{codes:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_policy_webhook_decides() {
    let hook = Hook::start(&[], |_, review| {
        let bad = review.list("spec.containers").iter().any(|container| container.str("image") == "bad:1");
        let mut review = review.clone();
        review.set("status", tree! { "allowed" => !bad, "reason" => if bad { "too old" } else { "" } });
        HookResponse::Json(review)
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k}}}}]\nclusters: [{{name: k, cluster: {{server: 'https://{}/images', certificate-authority-data: {}}}}}]\n",
        hook.address, hook.ca_bundle
    );
    std::fs::write(dir.path().join("images.kubeconfig"), kubeconfig).expect("a file");
    let configuration = "{imagePolicy: {kubeConfigFile: images.kubeconfig, retryBackoff: 1}}";
    let path = file(dir.path(), "ImagePolicyWebhook", configuration);
    let mut cluster = start(setup(&["ImagePolicyWebhook"], Some(&path))).await;
    let client = &cluster.client;
    assert_eq!(client.post(PODS, &pod("a")).await.code, 201);
    assert_eq!(client.post(PODS, &pod("b")).await.code, 201);
    assert_eq!(hook.asked().len(), 1, "the answer is kept");
    let mut bad = pod("c");
    bad.list_mut("spec.containers")[0].set("image", "bad:1");
    refused(client, PODS, &bad, 403, "image policy webhook backend denied one or more images: too old").await;
    cluster.stop().await;
}

struct FakeUsage;

impl Usage for FakeUsage {
    fn percentile(&self, question: &UsageQuery<'_>) -> Option<(i64, u64)> {
        let known = question.image == "app:1" && question.namespace == "default";
        known.then_some((if question.resource == "cpu" { 250 } else { 64_000_000 }, 100))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn initial_resources_come_from_history() {
    let mut cluster = start(setup(&["InitialResources"], None).with_usage(Arc::new(FakeUsage))).await;
    let created = cluster.client.post(PODS, &pod("a")).await.tree();
    let requests = created.list("spec.containers")[0].at("resources.requests").clone();
    assert_eq!(requests, tree! { "cpu" => "250m", "memory" => "64M" });
    let said = created.map("metadata.annotations").str("kubernetes.io/initial-resources").to_string();
    assert_eq!(said, "Initial Resources plugin set: cpu, memory request for container c");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn container_usage_is_collected_and_served() {
    let agent = Hook::start(&[], |path, _| {
        assert_eq!(path, "/stats/summary");
        let usage = tree! { "cpu" => tree! { "usageNanoCores" => 500_000_000 }, "memory" => tree! { "workingSetBytes" => 1 << 20 } };
        let mut container = usage;
        container.set("name", "c");
        let pod = tree! { "podRef" => tree! { "namespace" => "default", "name" => "a" }, "containers" => list![container] };
        HookResponse::Json(tree! { "pods" => list![pod] })
    })
    .await;
    let mut cluster = start(setup(&["InitialResources"], None)).await;
    let client = &cluster.client;
    assert_eq!(client.post(PODS, &pod("a")).await.tree().list("spec.containers")[0].at("resources"), &tree! {});
    assert_eq!(client.post("/api/v1/nodes", &named("v1", "Node", "n1")).await.code, 201);
    let port = agent.address.port();
    let status = format!(
        r#"{{"status":{{"addresses":[{{"type":"InternalIP","address":"127.0.0.1"}}],"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{port}}}}}}}}}"#
    );
    assert_eq!(client.patch("/api/v1/nodes/n1/status", "merge", &status).await.code, 200);
    // Kubelets are polled when a server starts, and then at intervals.
    cluster.restart().await;
    let client = &cluster.client;
    let shown = client.until("/tiphys/v1/usage", |_, shown| !shown.list("items").is_empty()).await;
    let one = &shown.list("items")[0];
    assert_eq!((one.str("image"), one.str("namespace"), one.int("samples")), ("app:1", "default", Some(1)));
    let created = client.post(PODS, &pod("b")).await.tree();
    let requests = created.list("spec.containers")[0].at("resources.requests");
    assert!(!requests.str("cpu").is_empty() && !requests.str("memory").is_empty(), "{requests:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_security_levels_have_cluster_defaults() {
    let dir = tempfile::tempdir().expect("a directory");
    let configuration = "{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: baseline}, exemptions: {namespaces: [kube-system]}}";
    let mut cluster = start(setup(&[], Some(&file(dir.path(), "PodSecurity", configuration)))).await;
    let client = &cluster.client;
    let mut object = pod("a");
    object.child("spec").set("hostNetwork", true);
    refused(client, PODS, &object, 403, "violates PodSecurity \"baseline:latest\": host namespaces").await;
    let account = named("v1", "ServiceAccount", "default");
    client.post("/api/v1/namespaces/kube-system/serviceaccounts", &account).await;
    let created = client.post("/api/v1/namespaces/kube-system/pods", &object).await;
    assert_eq!(created.code, 201, "{}", created.tree().str("message"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_share_a_quota() {
    const HARD: usize = 10;
    let mut cluster = start(setup(&[], None)).await;
    let mut quota = named("v1", "ResourceQuota", "q");
    quota.set("spec", tree! { "hard" => tree! { "count/secrets" => HARD.to_string() } });
    let created = cluster.client.post("/api/v1/namespaces/default/resourcequotas", &quota).await;
    assert_eq!(created.code, 201, "{}", created.tree().str("message"));
    let used = r#"{"status":{"hard":{"count/secrets":"10"},"used":{"count/secrets":"0"}}}"#;
    let path = "/api/v1/namespaces/default/resourcequotas/q/status";
    assert_eq!(cluster.client.patch(path, "merge", used).await.code, 200);
    let writers = (0..64).map(|number| {
        let client = cluster.client.clone();
        tokio::spawn(async move {
            let secret = named("v1", "Secret", &format!("s{number}"));
            client.post("/api/v1/namespaces/default/secrets", &secret).await.code
        })
    });
    let mut codes = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        codes.push(writer.await.expect("a writer"));
    }
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), HARD, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 64 - HARD, "{codes:?}");
    let used = cluster.client.get("/api/v1/namespaces/default/resourcequotas/q").await.tree();
    assert_eq!(used.at("status.used").str("count/secrets"), "10");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_without_a_class_get_the_default_one() {
    let mut cluster = start(setup(&[], None)).await;
    let client = &cluster.client;
    let default = |object: &mut Tree, key: &str| {
        object.child("metadata").set("annotations", tree! { key => "true" });
    };
    let mut ingress = named("networking.k8s.io/v1", "Ingress", "i");
    let service = tree! { "name" => "s", "port" => tree! { "number" => 80 } };
    ingress.set("spec", tree! { "defaultBackend" => tree! { "service" => service } });
    let mut claim = named("v1", "PersistentVolumeClaim", "c");
    let amount = tree! { "requests" => tree! { "storage" => "1Gi" } };
    claim.set("spec", tree! { "accessModes" => list!["ReadWriteOnce"], "resources" => amount });
    let places = [
        ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", &ingress, "spec.ingressClassName"),
        ("/api/v1/namespaces/default/persistentvolumeclaims", &claim, "spec.storageClassName"),
    ];
    for (path, object, field) in places {
        let dry = client.post(&format!("{path}?dryRun=All"), object).await;
        assert_eq!((dry.code, dry.tree().str(field)), (201, ""), "there is none yet: {}", dry.tree().str("message"));
    }
    let mut class = named("networking.k8s.io/v1", "IngressClass", "front");
    class.set("spec", tree! { "controller" => "example.com/c" });
    default(&mut class, "ingressclass.kubernetes.io/is-default-class");
    assert_eq!(client.post("/apis/networking.k8s.io/v1/ingressclasses", &class).await.code, 201);
    let mut class = named("storage.k8s.io/v1", "StorageClass", "disk");
    class.set("provisioner", "example.com/p");
    default(&mut class, "storageclass.kubernetes.io/is-default-class");
    assert_eq!(client.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.code, 201);
    for ((path, object, field), want) in places.into_iter().zip(["front", "disk"]) {
        assert_eq!(client.post(path, object).await.tree().str(field), want);
        let mut chosen = object.clone();
        chosen.child("metadata").set("name", "own");
        chosen.child("spec").set(field.trim_start_matches("spec."), "mine");
        assert_eq!(client.post(path, &chosen).await.tree().str(field), "mine", "who chooses is left alone");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trust_bundles_need_attest_permission() {
    let mut cluster = start(setup(&[], None)).await;
    let client = &cluster.client;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rule = |verb: &str, resource: &str| {
        tree! { "apiGroups" => list!["certificates.k8s.io"], "resources" => list![resource], "verbs" => list![verb] }
    };
    let mut role = named("rbac.authorization.k8s.io/v1", "ClusterRole", "jane");
    role.set("rules", list![rule("create", "clustertrustbundles")]);
    assert_eq!(client.post(&format!("{rbac}/clusterroles"), &role).await.code, 201);
    let mut binding = named("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "jane");
    let api_group = "rbac.authorization.k8s.io";
    binding.set("subjects", list![tree! { "kind" => "User", "apiGroup" => api_group, "name" => "jane" }]);
    binding.set("roleRef", tree! { "apiGroup" => api_group, "kind" => "ClusterRole", "name" => "jane" });
    assert_eq!(client.post(&format!("{rbac}/clusterrolebindings"), &binding).await.code, 201);

    let ca = cluster.pki().read("ca").expect("a pair").expect("a pair").certificate;
    let mut bundle = named("certificates.k8s.io/v1", "ClusterTrustBundle", "example.com:x:a");
    bundle.set("spec", tree! { "signerName" => "example.com/x", "trustBundle" => ca });
    let path = "/apis/certificates.k8s.io/v1/clustertrustbundles";
    let headers = [("content-type", "application/json"), ("impersonate-user", "jane")];
    let as_jane = async || client.raw("POST", path, &headers, api::json::encode(&bundle, None)).await;
    let reply = as_jane().await;
    assert_eq!(reply.code, 403, "{}", reply.tree().str("message"));
    let why = "user not permitted to attest for signerName \"example.com/x\"";
    assert!(reply.tree().str("message").ends_with(why), "{}", reply.tree().str("message"));
    let mut attest = rule("attest", "signers");
    attest.set("resourceNames", list!["example.com/*"]);
    role.set("rules", list![rule("create", "clustertrustbundles"), attest]);
    assert_eq!(client.put(&format!("{rbac}/clusterroles/jane"), &role).await.code, 200);
    assert_eq!(as_jane().await.code, 201);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn always_admit_and_always_deny() {
    let mut cluster = start(setup(&["AlwaysAdmit"], None)).await;
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(cluster.client.post(path, &named("v1", "ConfigMap", "a")).await.code, 201);
    let admission = std::sync::Arc::new(setup(&["AlwaysDeny"], None));
    cluster.restart_with(server::Config { admission, ..server::Config::default() }).await;
    let why = "admission control is denying all modifications";
    refused(&cluster.client, path, &named("v1", "ConfigMap", "b"), 403, why).await;
    assert_eq!(cluster.client.get(&format!("{path}/a")).await.code, 200);
    cluster.stop().await;
}
