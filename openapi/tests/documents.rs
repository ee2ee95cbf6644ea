//! The documents from a client's point of view.

use std::collections::HashSet;

use api::{Map, Tree, json, list, tree};
use kinds::Kind;
use openapi::{Api, DescriptionSource, Encoding, Extra, NoDescriptions, Resource, v2, v3};

const API: Api<'static> = Api { version: "v1.37.0", kinds: kinds::ALL, texts: &NoDescriptions, extras: &[] };

struct UpstreamTexts(descriptions::Descriptions);

impl DescriptionSource for UpstreamTexts {
    fn type_description(&self, ty: &str) -> Option<&str> {
        self.0.of_type(ty)
    }

    fn field_description(&self, ty: &str, field: &str) -> Option<&str> {
        self.0.of_field(ty, field)
    }
}

fn v2_of(api: &Api<'_>) -> Tree {
    json::decode(&v2::document(api, Encoding::Json)).expect("the document is JSON")
}

fn v3_of(api: &Api<'_>, name: &str) -> Tree {
    json::decode(&v3::document(api, name, Encoding::Json).expect(name)).expect("the document is JSON")
}

fn document_name(kind: &Kind) -> String {
    match kind.group {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

fn definitions_of(kind: &Kind, definitions: &Map) -> usize {
    let gvk = tree! { "group" => kind.group, "kind" => kind.kind, "version" => kind.version };
    let has = |schema: &Tree| schema.list("x-kubernetes-group-version-kind").contains(&gvk);
    definitions.iter().filter(|(_, schema)| has(schema)).count()
}

#[test]
fn every_kind_has_one_definition() {
    let v2 = v2_of(&API);
    for kind in kinds::ALL {
        let v3 = v3_of(&API, &document_name(kind));
        assert_eq!(definitions_of(kind, v2.map("definitions")), 1, "v2: {}", kind.kind);
        assert_eq!(definitions_of(kind, v3.map("components.schemas")), 1, "v3: {}", kind.kind);
    }
}

fn collect_references(tree: &Tree, out: &mut HashSet<String>) {
    match tree {
        Tree::List(items) => items.iter().for_each(|item| collect_references(item, out)),
        Tree::Map(map) => {
            out.extend(map.get("$ref").and_then(Tree::as_str).map(str::to_string));
            map.iter().for_each(|(_, value)| collect_references(value, out));
        }
        _ => {}
    }
}

fn check_references(document: &Tree) -> usize {
    let mut references = HashSet::new();
    collect_references(document, &mut references);
    for reference in &references {
        let mut here = document;
        for step in reference.strip_prefix("#/").expect("a local reference").split('/') {
            here = here.get(step).unwrap_or_else(|| panic!("{reference} leads nowhere"));
        }
    }
    references.len()
}

#[test]
fn every_reference_resolves() {
    assert!(check_references(&v2_of(&API)) > 600);
    for name in v3::index(&API).map("paths").keys() {
        check_references(&v3_of(&API, name));
    }
}

#[test]
fn operation_ids_are_unique() {
    let document = v2_of(&API);
    let mut ids = HashSet::new();
    for (path, item) in document.map("paths").iter() {
        for (method, operation) in item.as_map().expect("a path item").iter().filter(|(key, _)| *key != "parameters") {
            assert!(ids.insert(operation.str("operationId").to_string()), "{method} {path}");
        }
    }
    for id in [
        "createCoreV1NamespacedPod",
        "createCoreV1NamespacedPodBinding",
        "connectCoreV1GetNamespacedPodExec",
        "connectCoreV1PutNodeProxyWithPath",
        "deleteCoreV1CollectionNamespacedPod",
        "getAppsAPIGroup",
        "getAppsV1APIResources",
        "getCodeVersion",
        "getCoreAPIVersions",
        "listCoreV1PodForAllNamespaces",
        "patchAppsV1NamespacedDeploymentScale",
        "readCoreV1NamespacedPodLog",
        "replaceCoreV1NamespaceFinalize",
        "replaceCertificatesV1CertificateSigningRequestApproval",
        "watchRbacAuthorizationV1ClusterRoleList",
        "watchCoreV1PodListForAllNamespaces",
    ] {
        assert!(ids.contains(id), "{id}");
    }
}

#[test]
fn index_lists_every_document() {
    let index = v3::index(&API);
    for name in [
        ".well-known/openid-configuration",
        "api",
        "api/v1",
        "apis",
        "apis/apps",
        "apis/apps/v1",
        "apis/autoscaling/v1",
        "openid/v1/jwks",
        "version",
    ] {
        let url = index.map("paths").get(name).unwrap_or_else(|| panic!("{name}")).str("serverRelativeURL");
        assert_eq!(url, format!("/openapi/v3/{name}?hash={}", v3::hash(&API, name).expect(name)));
    }
    assert!(v3::document(&API, "apis/nothing/v1", Encoding::Json).is_none());
}

fn find_patch<'a>(document: &'a Tree, path: &str) -> &'a Tree {
    document.map("paths").get(path).and_then(|item| item.get("patch")).expect(path)
}

fn named<'a>(parameters: &'a [Tree], name: &str) -> &'a Tree {
    parameters.iter().find(|parameter| parameter.str("name") == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn patch_schemas_support_kubectl() {
    let path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
    let (v2, v3) = (v2_of(&API), v3_of(&API, "apis/apps/v1"));
    for patch in [find_patch(&v2, path), find_patch(&v3, path)] {
        let gvk = tree! { "group" => "apps", "kind" => "Deployment", "version" => "v1" };
        assert_eq!(patch.get("x-kubernetes-group-version-kind"), Some(&gvk));
        assert_eq!(patch.str("operationId"), "patchAppsV1NamespacedDeployment");
        assert_eq!(patch.str("x-kubernetes-action"), "patch");
        for name in ["dryRun", "fieldValidation"] {
            assert_eq!(named(patch.list("parameters"), name).str("in"), "query");
        }
    }
    let content = find_patch(&v3, path).map("requestBody.content");
    assert_eq!(
        content.keys().collect::<Vec<_>>(),
        [
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json"
        ]
    );
}

/// Upstream's texts of these fields.
#[test]
fn descriptions_match_upstream() {
    let texts = UpstreamTexts(descriptions::descriptions());
    let api = Api { texts: &texts, ..API };
    let document = v3_of(&api, "api/v1");
    let pod_spec = document.map("components.schemas").get("io.k8s.api.core.v1.PodSpec").expect("PodSpec");
    let check = |field: &str, expected: &str| {
        let found = pod_spec.map("properties").get(field).expect(field);
        assert_eq!(*found, json::decode(expected.as_bytes()).expect("JSON"), "{field}");
    };
    check(
        "containers",
        r##"{"description": "List of containers belonging to the pod. Containers cannot currently be added or removed. There must be at least one container in a Pod. Cannot be updated.",
            "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}], "default": {}},
            "type": "array", "x-kubernetes-list-map-keys": ["name"], "x-kubernetes-list-type": "map",
            "x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge"}"##,
    );
    check(
        "nodeSelector",
        r#"{"additionalProperties": {"default": "", "type": "string"},
            "description": "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's labels for the pod to be scheduled on that node. More info: https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
            "type": "object", "x-kubernetes-map-type": "atomic"}"#,
    );
    check(
        "dnsConfig",
        r##"{"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodDNSConfig"}],
            "description": "Specifies the DNS parameters of a pod. Parameters specified here will be merged to the generated DNS configuration based on DNSPolicy."}"##,
    );
    assert_eq!(pod_spec.list("required"), [Tree::from("containers")]);
    let volumes = pod_spec.at("properties.volumes");
    assert_eq!(volumes.str("x-kubernetes-patch-strategy"), "merge,retainKeys");
}

#[test]
fn every_type_has_a_description() {
    let texts = UpstreamTexts(descriptions::descriptions());
    let document = v2_of(&Api { texts: &texts, ..API });
    for (name, definition) in document.map("definitions").iter() {
        assert!(!definition.str("description").is_empty(), "{name}");
    }
}

#[test]
fn extras_are_included() {
    let schema = "com.example.stable.v1.CronTab".to_string();
    let crontab = Resource {
        group: "stable.example.com".into(),
        version: "v1".into(),
        kind: "CronTab".into(),
        plural: "crontabs".into(),
        namespaced: true,
        verbs: kinds::kind::ALL_VERBS,
        subresources: &[],
        list_schema: schema.clone(),
        schema: schema.clone(),
        returns_deleted: false,
        strategic_merge: false,
    };
    let meta = tree! { "$ref" => "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" };
    let spec = tree! { "type" => "object", "nullable" => true, "x-kubernetes-preserve-unknown-fields" => true };
    let properties = tree! { "metadata" => meta, "spec" => spec };
    let mut schemas = Map::new();
    schemas.insert(schema.as_str(), tree! { "type" => "object", "properties" => properties });
    let extras = [Extra { resources: vec![crontab], schemas }];
    let api = Api { extras: &extras, ..API };

    let v3 = v3_of(&api, "apis/stable.example.com/v1");
    check_references(&v3);
    let patch = find_patch(&v3, "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}");
    assert_eq!(patch.str("operationId"), "patchStableExampleComV1NamespacedCronTab");
    assert_eq!(patch.map("requestBody.content").len(), 3, "no strategic merge patch");
    let v2 = v2_of(&api);
    check_references(&v2);
    let lowered = v2.map("definitions").get(&schema).expect("its definition").at("properties.spec");
    assert!(!lowered.has("nullable"));
    let (before, after) = (v3::index(&API), v3::index(&api));
    for (name, entry) in before.map("paths").iter() {
        assert_eq!(after.map("paths").get(name), Some(entry), "an extra changes no other document");
    }
    assert_eq!(after.map("paths").len(), before.map("paths").len() + 2);
    assert_eq!(after.map("paths").keys().collect::<Vec<_>>(), v3::names(&api));
}

/// Upstream describes custom resources with another builder than its own kinds.
#[test]
fn operations_of_custom_resources_have_their_kind() {
    let names = tree! { "kind" => "Doc", "listKind" => "DocList", "plural" => "docs" };
    let row = tree! { "name" => "v1", "schema" => tree! { "openAPIV3Schema" => tree! { "type" => "object" } } };
    let spec = tree! {
        "group" => "doc.example.com", "scope" => "Namespaced", "names" => names, "versions" => list![row],
    };
    let scale = kinds::find("apps", "v1", "deployments").expect("a kind").subresources;
    let extra = Extra::of_definition(&tree! { "spec" => spec }, "v1", kinds::kind::ALL_VERBS, scale);
    let extras = [extra];
    let v2 = v2_of(&Api { extras: &extras, ..API });
    let path = "/apis/doc.example.com/v1/namespaces/{namespace}/docs";
    let find = |rest: &str| v2.map("paths").get(&format!("{path}{rest}")).expect(rest).clone();
    assert_eq!(find("").at("get").str("description"), "list objects of kind Doc");
    for rest in ["/{name}", "/{name}/scale", "/{name}/status"] {
        let get = find(rest).at("get").clone();
        assert_eq!(get.at("x-kubernetes-group-version-kind").str("kind"), "Doc", "{rest}");
        let parameters = get.list("parameters");
        assert!(parameters[0].str("$ref").starts_with("#/parameters/resourceVersion-"), "{rest}: {parameters:?}");
    }
}

#[test]
fn enums_are_listed() {
    let (v2, v3) = (v2_of(&API), v3_of(&API, "api/v1"));
    let check = |ty: &str, field: &str, place: &str, want: &[&str]| {
        for schemas in [v2.map("definitions"), v3.map("components.schemas")] {
            let property = schemas.get(ty).expect(ty).map("properties").get(field).expect(field).clone();
            let holder = if place.is_empty() { &property } else { property.at(place) };
            let values: Vec<&str> = holder.list("enum").iter().filter_map(Tree::as_str).collect();
            assert_eq!(values, want, "{ty}.{field}");
        }
    };
    check("io.k8s.api.core.v1.PodSpec", "restartPolicy", "", &["Always", "Never", "OnFailure"]);
    check("io.k8s.api.core.v1.EphemeralContainer", "imagePullPolicy", "", &["Always", "IfNotPresent", "Never"]);
    check("io.k8s.api.core.v1.ServiceSpec", "ipFamilies", "items", &["", "IPv4", "IPv6"]);
    check("io.k8s.api.core.v1.PodSpec", "nodeName", "", &[]);
    let v3 = v3_of(&API, "apis/certificates.k8s.io/v1");
    let spec = v3.map("components.schemas").get("io.k8s.api.certificates.v1.CertificateSigningRequestSpec").cloned();
    let usages = spec.expect("a schema").at("properties.usages.items").list("enum").to_vec();
    assert!(usages.contains(&Tree::from("digital signature")), "{usages:?}");
}

#[test]
fn operations_have_descriptions() {
    let v2 = v2_of(&API);
    let check = |path: &str, method: &str, want: &str| {
        let operation = v2.map("paths").get(path).expect(path).at(method).clone();
        assert_eq!(operation.str("description"), want);
    };
    check("/api/v1/pods", "get", "list or watch objects of kind Pod");
    check("/api/v1/componentstatuses", "get", "list objects of kind ComponentStatus");
    check("/api/v1/namespaces/{namespace}/pods/{name}/eviction", "post", "create eviction of a Pod");
}
