//! Names, conditions, changes and deletion of definitions.

use super::*;

on_engines![
    a_taken_name_is_accepted_once_it_is_free,
    deletion_waits_for_the_objects,
    a_stricter_schema_keeps_unchanged_values,
    new_rules_warn_of_unchanged_values,
    many_definitions_are_served_at_once,
    groups_are_registered_while_they_are_served
];

async fn a_taken_name_is_accepted_once_it_is_free(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    let mut other = definition(SPEC);
    other.child("metadata").set("name", "gadgets.stable.example.com");
    other.child("spec.names").set("plural", "gadgets");
    assert_eq!(client.post(DEFINITIONS, &other).await.code, 201);
    let path = format!("{DEFINITIONS}/gadgets.stable.example.com");
    let judged = |_: u16, object: &Tree| !object.list("status.conditions").is_empty();
    let refused = client.until(&path, judged).await;
    assert!(!is_true(&refused, "NamesAccepted"));
    assert_eq!(client.get("/apis/stable.example.com/v1/gadgets").await.code, 404);
    assert_eq!(client.delete(&format!("{DEFINITIONS}/widgets.stable.example.com")).await.code, 200);
    client.until(&path, |_, object| is_true(object, "Established")).await;
    assert_eq!(client.get("/apis/stable.example.com/v1/gadgets").await.code, 200);
    cluster.stop().await;
}

async fn deletion_waits_for_the_objects(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    let mut held = widget("held", r#"{"size":"small"}"#);
    held.child("metadata").set("finalizers", api::list!["example.com/held"]);
    assert_eq!(client.post(WIDGETS, &held).await.code, 201);
    let path = format!("{DEFINITIONS}/widgets.stable.example.com");
    let deleted = client.delete(&path).await.tree();
    assert_eq!(deleted.list("metadata.finalizers")[0].as_str(), Some("customresourcecleanup.apiextensions.k8s.io"));
    let object = format!("{WIDGETS}/held");
    client.until(&object, |_, object| object.at("metadata").has("deletionTimestamp")).await;
    let refused = client.post(WIDGETS, &widget("late", r#"{"size":"small"}"#)).await;
    assert_eq!(refused.code, 403, "{}", refused.tree().str("message"));
    let release = r#"{"metadata":{"finalizers":null}}"#;
    assert_eq!(client.patch(&object, "merge", release).await.code, 200);
    client.until(&path, |code, _| code == 404).await;
    assert_eq!(client.get(WIDGETS).await.code, 404);
    cluster.stop().await;
}

async fn a_stricter_schema_keeps_unchanged_values(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    assert_eq!(client.post(WIDGETS, &widget("a", r#"{"size":"small"}"#)).await.code, 201);
    let patch = r#"[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/enum","value":["large"]}]"#;
    let path = format!("{DEFINITIONS}/widgets.stable.example.com");
    assert_eq!(client.patch(&path, "json", patch).await.code, 200);
    let object = format!("{WIDGETS}/a");
    let kept = client.patch(&object, "merge", r#"{"spec":{"replicas":2}}"#).await;
    assert_eq!(kept.code, 200, "{}", kept.tree().str("message"));
    assert_eq!(client.post(WIDGETS, &widget("b", r#"{"size":"small"}"#)).await.code, 422);
    cluster.stop().await;
}

async fn many_definitions_are_served_at_once(storage: Storage) {
    const COUNT: usize = 60;
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    for number in 0..COUNT {
        let mut one = definition(SPEC);
        one.child("metadata").set("name", format!("kind{number}s.group{}.example.com", number % 7));
        one.child("spec").set("group", format!("group{}.example.com", number % 7));
        one.child("spec")
            .set("names", api::tree! { "plural" => format!("kind{number}s"), "kind" => format!("Kind{number}") });
        let reply = client.post(DEFINITIONS, &one).await;
        assert_eq!(reply.code, 201, "{}", reply.tree().str("message"));
        let path = format!("/apis/group{}.example.com/v1/kind{number}s", number % 7);
        client.until(&path, |code, _| code == 200).await;
    }
    let groups = client.get("/apis").await.tree();
    let custom = groups.list("groups").iter().filter(|group| group.str("name").ends_with(".example.com")).count();
    assert_eq!(custom, 7);
    cluster.stop().await;
}

async fn groups_are_registered_while_they_are_served(storage: Storage) {
    const REGISTERED: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.stable.example.com";
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    define(client, &definition(SPEC)).await;
    let registered = client.until(REGISTERED, |code, _| code == 200).await;
    let spec = api::tree! {
        "group" => "stable.example.com", "version" => "v1", "groupPriorityMinimum" => 1000, "versionPriority" => 100,
    };
    assert_eq!(registered.at("spec"), &spec);
    assert_eq!(registered.map("metadata.labels").str("kube-aggregator.kubernetes.io/automanaged"), "true");
    let registered = client.until(REGISTERED, |_, object| is_true(object, "Available")).await;
    assert_eq!(registered.list("status.conditions")[0].str("reason"), "Local");

    // Changes and deletions by users are reverted.
    assert_eq!(client.patch(REGISTERED, "merge", r#"{"spec":{"versionPriority":7}}"#).await.code, 200);
    client.until(REGISTERED, |_, object| object.at("spec").int("versionPriority") == Some(100)).await;
    let uid = registered.str("metadata.uid");
    assert_eq!(client.delete(REGISTERED).await.code, 200);
    client.until(REGISTERED, |code, object| code == 200 && object.str("metadata.uid") != uid).await;
    assert_eq!(client.delete(&format!("{DEFINITIONS}/widgets.stable.example.com")).await.code, 200);
    client.until(REGISTERED, |code, _| code == 404).await;
    cluster.stop().await;
}

/// The resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a kernel with procfs");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// What an update of a definition may leave behind: its text in the history of the store, but not its schema, whose
/// rules alone take several times as much.
const LEFT_BY_UPDATE: u64 = 20 << 10;
/// What the allocator keeps, and the caches of a longer history, whatever the number of updates.
const SLACK: u64 = 8 << 20;

/// [`SPEC`] with fifty more rules.
fn ruled_spec() -> String {
    let rule =
        |n: usize| format!(r#"{{"rule":"self.size != 'none' && self.replicas > -{n} || self.size in ['a', 'b']"}}"#);
    let rules: Vec<String> = (0..50).map(rule).collect();
    SPEC.replace(r#""x-kubernetes-validations":["#, &format!(r#""x-kubernetes-validations":[{},"#, rules.join(",")))
}

/// The second half of the updates is compared with the first, in which caches and the allocator fill.
/// TIPHYS_DEFINITION_UPDATES=10000 is the long run.
#[tokio::test(flavor = "multi_thread")]
async fn updates_of_a_definition_leave_the_memory_flat() {
    let updates = std::env::var("TIPHYS_DEFINITION_UPDATES").ok().and_then(|count| count.parse().ok()).unwrap_or(400);
    let mut cluster = Cluster::start(Storage::Embedded).await;
    let client = &cluster.client;
    define(client, &definition(&ruled_spec())).await;
    let path = format!("{DEFINITIONS}/widgets.stable.example.com");
    let update = async |number: u64| {
        let at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas/maximum";
        let patch = format!(r#"[{{"op":"replace","path":"{at}","value":{}}}]"#, 10 + number);
        assert_eq!(client.patch(&path, "json", &patch).await.code, 200);
        // The first use builds the parts that an unused definition lacks.
        let created = client.post(&format!("{WIDGETS}?dryRun=All"), &widget("a", r#"{"size":"small"}"#)).await;
        assert_eq!(created.code, 201, "{}", created.tree().str("message"));
    };
    let mut sizes = vec![resident_bytes()];
    for half in 0..2 {
        for number in 0..updates / 2 {
            update(half * updates + number).await;
        }
        sizes.push(resident_bytes());
    }
    let grown = sizes[2].saturating_sub(sizes[1]);
    eprintln!("{updates} updates: {:?} KiB", sizes.iter().map(|size| size >> 10).collect::<Vec<_>>());
    let limit = SLACK + LEFT_BY_UPDATE * updates / 2;
    assert!(grown < limit, "the last {} updates took {} of {} KiB", updates / 2, grown >> 10, limit >> 10);
    cluster.stop().await;
}

/// The rules of `color` and of the ports, which the stored object violates.
const NEW_RULES: &str = r#"[
    {"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color",
     "value":{"type":"string","x-kubernetes-validations":[{"rule":"self == 'red'","message":"must be red"}]}},
    {"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/ports/items/x-kubernetes-validations",
     "value":[{"rule":"self.port > 0","message":"must be positive"}]}]"#;

async fn new_rules_warn_of_unchanged_values(storage: Storage) {
    let mut cluster = Cluster::start(storage).await;
    let client = &cluster.client;
    let free = SPEC.replace(r#""replicas":"#, r#""color":{"type":"string"},"replicas":"#);
    define(client, &definition(&free)).await;
    let spec = r#"{"size":"small","color":"blue","ports":[{"port":0},{"port":1}]}"#;
    assert_eq!(client.post(WIDGETS, &widget("a", spec)).await.code, 201);
    let path = format!("{DEFINITIONS}/widgets.stable.example.com");
    assert_eq!(client.patch(&path, "json", NEW_RULES).await.code, 200);
    let (color, port) = (
        r#"299 - "spec.color: Invalid value: \"blue\": must be red""#,
        r#"299 - "spec.ports[0]: Invalid value: must be positive""#,
    );
    for (patch, code, warnings) in [
        (r#"{"replicas":2}"#, 200, &[color, port][..]),
        // A refused request has the warnings of what it did not change, too.
        (r#"{"color":"green"}"#, 422, &[port]),
        (r#"{"ports":[{"port":0,"name":"x"},{"port":1}]}"#, 422, &[color]),
        // An item is the same in another position.
        (r#"{"ports":[{"port":1},{"port":0}],"color":"red"}"#, 200, &[&port.replace("[0]", "[1]")]),
        (r#"{"color":"blue","ports":null}"#, 422, &[]),
    ] {
        let reply = client.patch(&format!("{WIDGETS}/a"), "merge", &format!(r#"{{"spec":{patch}}}"#)).await;
        let seen: Vec<&str> = reply.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok()).collect();
        assert_eq!((reply.code, seen), (code, warnings.to_vec()), "{patch}: {}", reply.text());
    }
    cluster.stop().await;
}
