//! Permissions of resource claims: admin access, allocations, and the devices of single drivers.

use api::json::decode;
use api::{Tree, tree};

use super::{binding, make, role, user};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const RBAC: &str = super::RBAC;

fn read(text: &str) -> Tree {
    decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_access_needs_a_label_of_the_namespace() {
    let cluster = testkit::Cluster::start(testkit::Storage::Embedded).await;
    let client = &cluster.client;
    let claim = read(
        r#"{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu",
            "allocationMode":"All","adminAccess":true}}]}}}"#,
    );
    let refused = client.post(CLAIMS, &claim).await;
    let want = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the \
                `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    assert_eq!(refused.code, 422);
    assert!(refused.tree().str("message").ends_with(want), "{:?}", refused.tree());
    let template =
        tree! { "metadata" => tree! { "name" => "t" }, "spec" => tree! { "spec" => claim.at("spec").clone() } };
    let templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    assert_eq!(client.post(templates, &template).await.code, 422);
    let label = r#"{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}"#;
    assert_eq!(client.patch("/api/v1/namespaces/default", "merge", label).await.code, 200);
    make(client, CLAIMS, &claim).await;
    make(client, templates, &template).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_write_the_status_of_their_own_devices() {
    let cluster = testkit::Cluster::start(testkit::Storage::Embedded).await;
    let client = &cluster.client;
    let claim = read(
        r#"{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"gpu"}}]}}}"#,
    );
    make(client, CLAIMS, &claim).await;
    let status = role("ClusterRole", "status", &["get", "update", "patch"], "resource.k8s.io", "resourceclaims/status");
    make(client, &format!("{RBAC}/clusterroles"), &status).await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    make(client, &bindings, &binding("ClusterRoleBinding", "status", ("ClusterRole", "status"), "driver")).await;
    let driver = user(client, "driver");
    let path = format!("{CLAIMS}/c");
    let mut allocated = client.get(&path).await.tree();
    let result = read(r#"{"devices":{"results":[{"request":"r","driver":"x","pool":"p","device":"d"}]}}"#);
    allocated.child("status").set("allocation", result);
    let refused = driver.send("PUT", &format!("{path}/status"), Some(&allocated)).await;
    let want = "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires \
                resource=\"resourceclaims/binding\", verb=\"update\" permission: resourceclaims.resource.k8s.io is \
                forbidden: User \"driver\" cannot update resource \"resourceclaims/binding\" in API group \
                \"resource.k8s.io\" at the cluster scope";
    assert_eq!(refused.code, 422);
    assert!(refused.tree().str("message").ends_with(want), "{:?}", refused.tree());
    let reply = client.put(&format!("{path}/status"), &allocated).await;
    assert_eq!(reply.code, 200, "{:?}", reply.tree());
    let mut reported = reply.tree();
    reported.child("status").set("devices", api::list![read(r#"{"driver":"x","pool":"p","device":"d"}"#)]);
    let refused = driver.send("PUT", &format!("{path}/status"), Some(&reported)).await;
    let text = refused.tree().str("message").to_string();
    let want = "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:update]\"";
    assert!(refused.code == 422 && text.contains(want), "{text}");
    let own = role("ClusterRole", "own", &["arbitrary-node:update"], "resource.k8s.io", "resourceclaims/driver");
    make(client, &format!("{RBAC}/clusterroles"), &own).await;
    make(client, &bindings, &binding("ClusterRoleBinding", "own", ("ClusterRole", "own"), "driver")).await;
    let reply = driver.send("PUT", &format!("{path}/status"), Some(&reported)).await;
    assert_eq!(reply.code, 200, "{:?}", reply.tree());
}
