//! Tokens that are bound to objects become invalid with them.

use api::{Tree, list, tree};
use testkit::{Client, Cluster, Storage};

use super::jwt::claims_of;
use super::remote::user_of;

const CORE: &str = "/api/v1/namespaces/default";

fn named(kind: &str, name: &str) -> Tree {
    tree! { "apiVersion" => "v1", "kind" => kind, "metadata" => tree! { "name" => name } }
}

async fn request(client: &Client, kind: &str, name: &str, uid: &str) -> (u16, Tree) {
    let bound = tree! { "apiVersion" => "v1", "kind" => kind, "name" => name, "uid" => uid };
    let request = tree! {
        "apiVersion" => "authentication.k8s.io/v1", "kind" => "TokenRequest",
        "spec" => tree! { "boundObjectRef" => bound, "expirationSeconds" => 600 },
    };
    let reply = client.post(&format!("{CORE}/serviceaccounts/robot/token"), &request).await;
    (reply.code, reply.tree())
}

#[tokio::test(flavor = "multi_thread")]
async fn bound_tokens_end_with_their_object() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let (client, anonymous) = (&cluster.client, cluster.client_as(None));
    assert_eq!(client.post(&format!("{CORE}/serviceaccounts"), &named("ServiceAccount", "robot")).await.code, 201);
    let mut pod = named("Pod", "p");
    let container = tree! { "name" => "c", "image" => "i:1" };
    pod.set("spec", tree! { "serviceAccountName" => "robot", "containers" => list![container] });
    let objects = [
        ("Pod", "p", format!("{CORE}/pods"), pod),
        ("Secret", "s", format!("{CORE}/secrets"), named("Secret", "s")),
        ("Node", "n", "/api/v1/nodes".to_string(), named("Node", "n")),
    ];
    for (kind, name, path, object) in objects {
        let created = client.post(&path, &object).await;
        assert_eq!(created.code, 201, "{}", created.tree().str("message"));
        let uid = created.tree().str("metadata.uid").to_string();
        assert_eq!(request(client, kind, name, "another").await.0, 409, "{kind}");
        assert_eq!(request(client, kind, "none", "").await.0, 404, "{kind}");
        let (code, reply) = request(client, kind, name, &uid).await;
        assert_eq!(code, 201, "{}", reply.str("message"));
        let token = reply.str("status.token");
        let private = claims_of(token).get("kubernetes.io").cloned().unwrap_or_default();
        assert_eq!(private.at(&kind.to_lowercase()), &tree! { "name" => name, "uid" => &uid });
        assert!(claims_of(token).str("jti").len() > 30);
        assert_eq!(user_of(&anonymous, token).await.0, 201, "{kind}");
        let gone = client.raw("DELETE", &format!("{path}/{name}?gracePeriodSeconds=0"), &[], Vec::new()).await;
        assert_eq!(gone.code, 200, "{kind}");
        assert_eq!(user_of(&anonymous, token).await.0, 401, "{kind} is deleted");
        assert_eq!(client.post(&path, &object).await.code, 201);
        assert_eq!(user_of(&anonymous, token).await.0, 401, "another {kind} of the same name is another one");
    }
    cluster.stop().await;
}
