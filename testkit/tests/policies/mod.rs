//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: definitions, bindings, params, custom resources, status.

mod mutating;
mod validating;

use api::{Tree, json};
use testkit::{Client, Cluster, Storage};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).expect("valid JSON")
}

/// Rules for creates and updates of these resources.
fn rules(group: &str, resource: &str) -> String {
    format!(
        r#""matchConstraints":{{"resourceRules":[{{"operations":["CREATE","UPDATE"],"apiGroups":["{group}"],"apiVersions":["v1"],"resources":["{resource}"]}}]}}"#
    )
}

/// A policy of a kind: `Validating` or `Mutating`.
async fn post_policy(client: &Client, kind: &str, name: &str, spec: &str) -> testkit::Reply {
    let object = format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"{kind}AdmissionPolicy","metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}"#
    );
    client.post(&format!("{GROUP}/{}admissionpolicies", kind.to_lowercase()), &read(&object)).await
}

/// A policy with a binding of the same name.
async fn bind(client: &Client, kind: &str, name: &str, spec: &str, binding: &str) {
    let reply = post_policy(client, kind, name, spec).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
    let object = format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"{kind}AdmissionPolicyBinding","metadata":{{"name":"{name}"}},"spec":{{"policyName":"{name}"{binding}}}}}"#
    );
    let reply = client.post(&format!("{GROUP}/{}admissionpolicybindings", kind.to_lowercase()), &read(&object)).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
}

const DENY: &str = r#","validationActions":["Deny"]"#;

fn config_map(name: &str, data: &str) -> Tree {
    read(&format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{data}}}"#))
}

/// Creates in a dry run; the code, and the message of an error.
async fn attempt(client: &Client, path: &str, object: &Tree) -> (u16, String) {
    let reply = client.post(&format!("{path}?dryRun=All"), object).await;
    (reply.code, reply.tree().str("message").to_string())
}

/// A definition of Limits, which are custom resources.
async fn define_limits(client: &Client) {
    let definition = read(
        r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
            "metadata":{"name":"limits.stable.example.com"},
            "spec":{"group":"stable.example.com","scope":"Namespaced","names":{"plural":"limits","kind":"Limit"},
                "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
                    "properties":{"spec":{"type":"object","properties":{"max":{"type":"integer"},
                        "names":{"type":"array","items":{"type":"string"}},
                        "tags":{"type":"object","additionalProperties":{"type":"string"}}}}}}}}]}}"#,
    );
    let reply = client.post(DEFINITIONS, &definition).await;
    assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
    let is_established = |object: &Tree| {
        let conditions = object.list("status.conditions");
        conditions.iter().any(|condition| condition.str("type") == "Established" && condition.str("status") == "True")
    };
    client.until(&format!("{DEFINITIONS}/limits.stable.example.com"), |_, object| is_established(object)).await;
}

const LIMITS: &str = "/apis/stable.example.com/v1/namespaces/default/limits";

fn limit(name: &str, spec: &str) -> Tree {
    read(&format!(
        r#"{{"apiVersion":"stable.example.com/v1","kind":"Limit","metadata":{{"name":"{name}"}},"spec":{spec}}}"#
    ))
}

#[tokio::test]
async fn definitions_are_compiled() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let rules = rules("", "configmaps");
    let validating = [
        (r#""validations":[{"expression":"object.data.x == 'y'"}]"#, ""),
        (r#""validations":[{"expression":"nope"}]"#, "undeclared reference to 'nope' (in container '')"),
        (r#""validations":[{"expression":"'x'"}]"#, "must evaluate to bool but got string"),
        (r#""validations":[{"expression":"true","messageExpression":"1"}]"#, "must evaluate to string but got int"),
        (
            r#""variables":[{"name":"a","expression":"variables.b"},{"name":"b","expression":"1"}],"validations":[{"expression":"true"}]"#,
            "spec.variables[0].expression: Invalid value: \"variables.b\": compilation failed: ERROR: <input>:1:10: undefined field 'b'",
        ),
        (r#""validations":[{"expression":"[1].includes(1)"}]"#, "undeclared reference to 'includes'"),
    ];
    for (spec, want) in validating {
        let reply = post_policy(client, "Validating", "p", &format!("{rules},{spec}")).await;
        let message = reply.tree().str("message").to_string();
        assert_eq!(reply.code, if want.is_empty() { 201 } else { 422 }, "{spec}: {message}");
        assert!(message.contains(want), "{spec}: {message}");
    }
    let mutation = |kind: &str, field: &str, text: &str| {
        format!(
            r#"{rules},"reinvocationPolicy":"Never","mutations":[{{"patchType":"{kind}","{field}":{{"expression":"{text}"}}}}]"#
        )
    };
    let mutating = [
        (mutation("ApplyConfiguration", "applyConfiguration", "Object{data: {'a': 'b'}}"), ""),
        (mutation("ApplyConfiguration", "applyConfiguration", "{'a': 'b'}"), "must evaluate to Object but got map"),
        (mutation("JSONPatch", "jsonPatch", "[1]"), "must evaluate to list(JSONPatch) but got list(int)"),
        (mutation("JSONPatch", "applyConfiguration", "Object{}"), "must be specified when patchType is JSONPatch"),
    ];
    for (spec, want) in mutating {
        let reply = post_policy(client, "Mutating", "p", &spec).await;
        let message = reply.tree().str("message").to_string();
        assert_eq!(reply.code, if want.is_empty() { 201 } else { 422 }, "{spec}: {message}");
        assert!(message.contains(want), "{spec}: {message}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_policies_may_read_their_params() {
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    let role = read(
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"writer"},
            "rules":[{"apiGroups":["admissionregistration.k8s.io"],"resources":["*"],"verbs":["create"]}]}"#,
    );
    assert_eq!(client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.code, 201);
    let binding = read(
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"writer"},
            "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"writer"},
            "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"bob"}]}"#,
    );
    assert_eq!(client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.code, 201);
    let as_bob = [("impersonate-user", "bob"), ("content-type", "application/json")];
    let policy = |name: &str, params: &str| {
        let rules = rules("", "configmaps");
        format!(
            r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{{"name":"{name}"}},"spec":{{{rules}{params},"validations":[{{"expression":"true"}}]}}}}"#
        )
    };
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let reply = client.raw("POST", &path, &as_bob, policy("plain", "").into_bytes()).await;
    assert_eq!(reply.code, 201, "{}", reply.text());
    let secrets = r#","paramKind":{"apiVersion":"v1","kind":"Secret"}"#;
    let reply = client.raw("POST", &path, &as_bob, policy("secrets", secrets).into_bytes()).await;
    assert_eq!(reply.code, 422, "{}", reply.text());
    let want = r#"spec.paramKind: Forbidden: user &{bob  [system:authenticated] map[]} must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"#;
    assert!(reply.tree().str("message").contains(want), "{}", reply.text());
    assert_eq!(
        post_policy(
            client,
            "Validating",
            "secrets",
            &format!(r#"{}{secrets},"validations":[{{"expression":"true"}}]"#, rules("", "configmaps"))
        )
        .await
        .code,
        201
    );
    let binding = r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"b"},
        "spec":{"policyName":"secrets","validationActions":["Deny"],"paramRef":{"name":"x","namespace":"default","parameterNotFoundAction":"Deny"}}}"#;
    let path = format!("{GROUP}/validatingadmissionpolicybindings");
    let reply = client.raw("POST", &path, &as_bob, binding.as_bytes().to_vec()).await;
    let want = r#"does not have "get" permission on the object referenced by paramRef"#;
    assert!(reply.code == 422 && reply.tree().str("message").contains(want), "{}", reply.text());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn types_are_checked_into_the_status() {
    let mut cluster = Cluster::start_whole().await;
    let client = &cluster.client;
    let spec =
        format!(r#"{},"validations":[{{"expression":"object.spec.replicas > 'x'"}}]"#, rules("apps", "deployments"));
    assert_eq!(post_policy(client, "Validating", "typed", &spec).await.code, 201);
    let path = format!("{GROUP}/validatingadmissionpolicies/typed");
    let policy = client.until(&path, |_, policy| policy.int("status.observedGeneration") == Some(1)).await;
    let [warning] = policy.list("status.typeChecking.expressionWarnings") else { panic!("{policy:?}") };
    assert_eq!(warning.str("fieldRef"), "spec.validations[0].expression");
    assert_eq!(
        warning.str("warning"),
        "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > 'x'\n | .....................^\n"
    );
    let fixed = r#"{"spec":{"validations":[{"expression":"object.spec.replicas > 1"}]}}"#;
    assert_eq!(client.patch(&path, "merge", fixed).await.code, 200);
    let policy = client.until(&path, |_, policy| policy.int("status.observedGeneration") == Some(2)).await;
    assert!(policy.list("status.typeChecking.expressionWarnings").is_empty(), "{policy:?}");
    cluster.stop().await;
}
