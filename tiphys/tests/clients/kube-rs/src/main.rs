//! The dynamic client of kube-rs with a custom resource: definition, discovery, verbs, patches, subresources, watches.

use std::error::Error;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::core::PartialObjectMeta;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

type Done = Result<(), Box<dyn Error>>;

const GROUP: &str = "rust.example.com";
const NAME: &str = "letters.rust.example.com";

fn definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    let items = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "value": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {
            "text": {"type": "string", "maxLength": 20},
            "copies": {"type": "integer", "default": 1},
            "items": {"type": "array", "items": items, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"]}},
        "x-kubernetes-validations": [{"rule": "self.copies < 10", "message": "too many copies"}]});
    let status = json!({"type": "object", "properties": {"sent": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    let scale = json!({"specReplicasPath": ".spec.copies", "statusReplicasPath": ".status.sent"});
    serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": "letters", "kind": "Letter"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": scale}}],
        },
    }))
}

fn letter(kind: &ApiResource, name: &str, spec: Value) -> DynamicObject {
    DynamicObject::new(name, kind).data(json!({"spec": spec}))
}

fn code(result: Result<DynamicObject, kube::Error>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
    let client = Client::try_default().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition()?).await?;
    let established = await_condition(definitions.clone(), NAME, conditions::is_crd_established());
    tokio::time::timeout(Duration::from_secs(20), established).await??;

    let kind = discover(&client).await?;
    let letters: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
    objects(&letters, &kind).await?;
    patches(&letters, &kind).await?;
    subresources(&letters).await?;
    lists(&client, &letters, &kind).await?;
    watches(&letters, &kind).await?;

    definitions.delete(NAME, &DeleteParams::default()).await?;
    let uid = definitions.get_opt(NAME).await?.and_then(|one| one.uid());
    if let Some(uid) = uid {
        let deleted = await_condition(definitions, NAME, conditions::is_deleted(&uid));
        tokio::time::timeout(Duration::from_secs(20), deleted).await??;
    }
    println!("all done");
    Ok(())
}

/// The aggregated discovery, and that of one group.
async fn discover(client: &Client) -> Result<ApiResource, Box<dyn Error>> {
    let all = Discovery::new(client.clone()).run_aggregated().await?;
    let gvk = GroupVersionKind::gvk(GROUP, "v1", "Letter");
    let (kind, capabilities) = all.resolve_gvk(&gvk).ok_or("the kind is not in the aggregated discovery")?;
    assert_eq!((kind.plural.as_str(), capabilities.scope.clone()), ("letters", Scope::Namespaced));
    assert!(capabilities.supports_operation(verbs::WATCH));
    let subresources: Vec<&str> = capabilities.subresources.iter().map(|(one, _)| one.plural.as_str()).collect();
    assert_eq!(subresources.len(), 2, "{subresources:?}");
    let (plain, _) = kube::discovery::oneshot::pinned_kind(client, &gvk).await?;
    assert_eq!(plain, kind);
    Ok(plain)
}

async fn objects(letters: &Api<DynamicObject>, kind: &ApiResource) -> Done {
    let post = PostParams::default();
    let created = letters.create(&post, &letter(kind, "first", json!({"text": "hello"}))).await?;
    assert_eq!(created.data["spec"]["copies"], 1, "defaulted");
    let refused = letters.create(&post, &letter(kind, "bad", json!({"copies": 10}))).await;
    let (status, message) = code(refused);
    assert!(status == 422 && message.contains("too many copies"), "{message}");
    assert_eq!(code(letters.create(&post, &letter(kind, "first", json!({}))).await).0, 409);
    let dry = PostParams { dry_run: true, ..post.clone() };
    letters.create(&dry, &letter(kind, "dry", json!({}))).await?;
    assert!(letters.get_opt("dry").await?.is_none());
    let mut changed = letters.get("first").await?;
    changed.data["spec"]["text"] = json!("changed");
    let replaced = letters.replace("first", &post, &changed).await?;
    assert_eq!(replaced.metadata.generation, Some(2));
    assert_eq!(code(letters.replace("first", &post, &changed).await).0, 409, "an old resourceVersion");
    Ok(())
}

async fn patches(letters: &Api<DynamicObject>, kind: &ApiResource) -> Done {
    let apply = |name: &str| letter(kind, "first", json!({"items": [{"name": name, "value": "1"}]}));
    for manager in ["one", "two"] {
        let params = PatchParams::apply(manager);
        letters.patch("first", &params, &Patch::Apply(apply(manager))).await?;
    }
    let found = letters.get("first").await?;
    assert_eq!(found.data["spec"]["items"].as_array().map(Vec::len), Some(2), "{found:?}");
    let mut taken = apply("one");
    taken.data["spec"]["items"][0]["value"] = json!("2");
    let conflict = letters.patch("first", &PatchParams::apply("two"), &Patch::Apply(&taken)).await;
    assert_eq!(code(conflict).0, 409);
    letters.patch("first", &PatchParams::apply("two").force(), &Patch::Apply(&taken)).await?;
    let merge = Patch::Merge(json!({"spec": {"text": "merged"}}));
    assert_eq!(letters.patch("first", &PatchParams::default(), &merge).await?.data["spec"]["text"], "merged");
    let strategic = Patch::Strategic(json!({"spec": {"text": "no"}}));
    assert_eq!(code(letters.patch("first", &PatchParams::default(), &strategic).await).0, 415);
    let strict = PatchParams { field_manager: Some("one".into()), ..PatchParams::default() }.validation_strict();
    let unknown = letters.patch("first", &strict, &Patch::Merge(json!({"spec": {"nope": 1}}))).await;
    assert!(code(unknown).1.contains("unknown field \"spec.nope\""));
    Ok(())
}

async fn subresources(letters: &Api<DynamicObject>) -> Done {
    let params = PatchParams::default();
    let status = Patch::Merge(json!({"status": {"sent": 3}, "spec": {"text": "ignored"}}));
    let patched = letters.patch_status("first", &params, &status).await?;
    assert_eq!((&patched.data["status"]["sent"], &patched.data["spec"]["text"]), (&json!(3), &json!("merged")));
    assert_eq!(letters.get_scale("first").await?.status.map(|status| status.replicas), Some(3));
    letters.patch_scale("first", &params, &Patch::Merge(json!({"spec": {"replicas": 4}}))).await?;
    assert_eq!(letters.get("first").await?.data["spec"]["copies"], 4);
    Ok(())
}

async fn lists(client: &Client, letters: &Api<DynamicObject>, kind: &ApiResource) -> Done {
    for name in ["second", "third"] {
        letters.create(&PostParams::default(), &letter(kind, name, json!({}))).await?;
    }
    let page = letters.list(&ListParams::default().limit(2)).await?;
    let token = page.metadata.continue_.clone().ok_or("no token")?;
    let rest = letters.list(&ListParams::default().limit(2).continue_token(&token)).await?;
    assert_eq!((page.items.len(), rest.items.len()), (2, 1));
    let only = letters.list(&ListParams::default().fields("metadata.name=third")).await?;
    assert_eq!(only.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["third"]);
    let metadata: PartialObjectMeta<DynamicObject> = letters.get_metadata("third").await?;
    assert_eq!(metadata.name_any(), "third");
    let everywhere: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    assert_eq!(everywhere.list_metadata(&ListParams::default()).await?.items.len(), 3);
    Ok(())
}

/// A plain watch, and the reflector of controllers with a list and with a streamed list.
async fn watches(letters: &Api<DynamicObject>, kind: &ApiResource) -> Done {
    let from = letters.list(&ListParams::default()).await?.metadata.resource_version.ok_or("no version")?;
    letters.delete("second", &DeleteParams::default()).await?;
    let mut events = letters.watch(&WatchParams::default().timeout(10), &from).await?.boxed();
    let event = tokio::time::timeout(Duration::from_secs(20), events.try_next()).await??;
    assert!(matches!(event, Some(WatchEvent::Deleted(one)) if one.name_any() == "second"));
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let writer = Writer::new(kind.clone());
        let store = writer.as_reader();
        let stream = reflector::reflector(writer, watcher(letters.clone(), config)).applied_objects();
        let mut stream = std::pin::pin!(stream);
        for _ in 0..2 {
            tokio::time::timeout(Duration::from_secs(20), stream.try_next()).await??;
        }
        tokio::select! {
            () = async { while let Ok(Some(_)) = stream.try_next().await {} } => {}
            ready = tokio::time::timeout(Duration::from_secs(20), store.wait_until_ready()) => { ready??; }
        }
        let third = ObjectRef::new_with("third", kind.clone()).within("default");
        assert!(store.get(&third).is_some() && store.len() == 2);
    }
    Ok(())
}
