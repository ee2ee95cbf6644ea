//! Sequences of writes with the managed fields of upstream.

use super::codec::{decode as decode_fields, encode as encode_fields};
use super::remove::{extract_items, remove_items};
use super::set::Element;
use super::*;
use crate::json;
use crate::schema::{Type, type_of};
use crate::tree::{Str, Tree};

fn tree(text: &str) -> Tree {
    json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text(tree: &Tree) -> String {
    String::from_utf8(json::encode(tree, None)).expect("UTF-8")
}

fn ty(api_version: &str, kind: &str) -> &'static Type {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    type_of(group, version, kind).expect("a known kind")
}

/// An object and the clock of its writes.
struct TestObject {
    api_version: &'static str,
    ty: &'static Type,
    live: Option<Tree>,
    seconds: i64,
}

impl TestObject {
    fn new(api_version: &'static str, kind: &str) -> TestObject {
        TestObject { api_version, ty: ty(api_version, kind), live: None, seconds: 0 }
    }

    fn shaped(&self, object: &str) -> Tree {
        let mut new = tree(object);
        keep_reset(&mut new);
        // The tests use names instead of times.
        let managed = new.child("metadata").remove("managedFields").unwrap_or_default();
        crate::typed::conform(&mut new, self.ty, &mut json::Strict::default()).expect("the type fits");
        if !managed.is_null() {
            new.child("metadata").set("managedFields", managed);
        }
        new
    }

    fn request<'a>(&self, manager: &'a str, versions: &'a SameVersion<'_>, reset: Option<&'a FieldSet>) -> Request<'a> {
        let (manager, subresource) = manager.split_once('/').unwrap_or((manager, ""));
        let now = Str::from(format!("t{:02}", self.seconds));
        Request { manager, api_version: versions.api_version, subresource, now, reset, versions }
    }

    fn versions(&self) -> SameVersion<'static> {
        SameVersion { api_version: self.api_version, ty: self.ty.into() }
    }

    fn write(&mut self, manager: &str, object: &str) -> &mut TestObject {
        self.write_reset(manager, object, None)
    }

    fn write_reset(&mut self, manager: &str, object: &str, reset: Option<&FieldSet>) -> &mut TestObject {
        self.seconds += 1;
        let mut new = self.shaped(object);
        update(self.live.as_ref(), &mut new, &self.request(manager, &self.versions(), reset));
        if let Some(live) = &self.live {
            keep_timestamps(live, &mut new);
        }
        self.live = Some(new);
        self
    }

    fn apply(&mut self, manager: &str, object: &str) -> &mut TestObject {
        let (manager, force) = match manager.strip_suffix('!') {
            Some(manager) => (manager, true),
            None => (manager, false),
        };
        let new = self.try_apply(manager, object, force).unwrap_or_else(|error| panic!("{error}: {object}"));
        self.live = Some(new);
        self
    }

    fn try_apply(&mut self, manager: &str, object: &str, force: bool) -> Result<Tree, ApplyError> {
        self.seconds += 1;
        let kind = self.ty.name;
        let head = format!(r#"{{"apiVersion":"{}","kind":"{kind}","#, self.api_version);
        let applied = tree(&object.replacen('{', &head, 1).replace(",}", "}"));
        let versions = self.versions();
        let mut new = apply(self.live.as_ref(), &applied, force, &self.request(manager, &versions, None))?;
        // The tests use names instead of times.
        let managed = new.child("metadata").remove("managedFields").unwrap_or_default();
        crate::typed::conform(&mut new, self.ty, &mut json::Strict::default()).expect("the type fits");
        if !managed.is_null() {
            new.child("metadata").set("managedFields", managed);
        }
        if let Some(live) = &self.live {
            keep_timestamps(live, &mut new);
        }
        Ok(new)
    }

    fn refused(&mut self, manager: &str, object: &str, message: &str) -> &mut TestObject {
        let error = self.try_apply(manager, object, false).expect_err(object);
        assert_eq!(error.to_string(), message);
        self
    }

    fn has(&mut self, path: &str, expected: &str) -> &mut TestObject {
        assert_eq!(text(self.live.as_ref().expect("an object").at(path)), expected);
        self
    }

    fn managed(&self) -> Vec<String> {
        let live = self.live.as_ref().expect("an object");
        let line = |entry: &Tree| {
            let name = entry.str("manager");
            let subresource = entry.str("subresource");
            let slash = if subresource.is_empty() { "" } else { "/" };
            let fields = text(entry.at("fieldsV1"));
            format!("{name}{slash}{subresource} {} {} {fields}", entry.str("operation"), entry.str("time"))
        };
        live.list("metadata.managedFields").iter().map(line).collect()
    }

    fn check(&mut self, expected: &[&str]) -> &mut TestObject {
        assert_eq!(self.managed(), expected);
        self
    }
}

#[test]
fn create_owns_its_fields() {
    TestObject::new("v1", "ConfigMap")
        .write("creator", r#"{"metadata":{"name":"a","labels":{"l":"1"}},"data":{"a":"1"}}"#)
        .check(&[r#"creator Update t01 {"f:data":{".":{},"f:a":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}"#]);
    TestObject::new("v1", "Pod")
        .write(
            "t",
            r#"{"metadata":{"name":"p"},"spec":{"imagePullSecrets":[{"name":"reg"}],"nodeSelector":{"a":"b"},
                "containers":[{"name":"c","image":"i","ports":[{"containerPort":53,"protocol":"UDP"},{"containerPort":9}],
                "resources":{"limits":{"cpu":"1"}}}],"securityContext":{}}}"#,
        )
        .check(&[concat!(
            r#"t Update t01 {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{},"#,
            r#""f:ports":{".":{},"k:{\"containerPort\":53,\"protocol\":\"UDP\"}":{".":{},"f:containerPort":{},"f:protocol":{}},"#,
            r#""k:{\"containerPort\":9,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},"#,
            r#""f:resources":{".":{},"f:limits":{".":{},"f:cpu":{}}}}},"#,
            r#""f:imagePullSecrets":{".":{},"k:{\"name\":\"reg\"}":{}},"f:nodeSelector":{},"f:securityContext":{}}}"#
        )]);
}

#[test]
fn update_takes_changed_and_releases_removed_fields() {
    TestObject::new("v1", "ConfigMap")
        .write("one", r#"{"data":{"a":"1","b":"1","c":"1"}}"#)
        .write("two", r#"{"data":{"a":"2","b":"1"}}"#)
        .check(&[r#"one Update t01 {"f:data":{".":{},"f:b":{}}}"#, r#"two Update t02 {"f:data":{"f:a":{}}}"#])
        // A write of the same manager is merged into its entry; without changes the time is kept.
        .write("one", r#"{"data":{"a":"2","b":"1","d":"1"}}"#)
        .write("one", r#"{"data":{"a":"2","b":"1","d":"1"}}"#)
        .check(&[r#"two Update t02 {"f:data":{"f:a":{}}}"#, r#"one Update t03 {"f:data":{".":{},"f:b":{},"f:d":{}}}"#])
        .write("three", r#"{}"#)
        .check(&[]);
}

#[test]
fn managed_fields_can_be_reset_or_edited() {
    let mut flow = TestObject::new("v1", "ConfigMap");
    flow.write("one", r#"{"data":{"a":"1"}}"#).write("two", r#"{"metadata":{"managedFields":[{}]},"data":{"a":"1"}}"#);
    flow.check(&[]).write("two", r#"{"data":{"a":"2"}}"#).check(&[]);
    flow.write(
        "two",
        r#"{"metadata":{"managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",
            "fieldsV1":{"f:data":{"f:nope":{}}}}]},"data":{"a":"2"}}"#,
    );
    flow.check(&[r#"x Update  {"f:data":{"f:nope":{}}}"#]);
    flow.write("two", r#"{"metadata":{"managedFields":[{"manager":"x","operation":"Weird"}]},"data":{"a":"2"}}"#);
    flow.check(&[r#"x Update  {"f:data":{"f:nope":{}}}"#]);
    flow.write("two", r#"{"metadata":{"managedFields":[]},"data":{"a":"2"}}"#).check(&[]);
}

#[test]
fn subresources_have_their_own_entry() {
    let spec = FieldSet::of(&["spec"]);
    TestObject::new("apps/v1", "Deployment")
        .write_reset("one", r#"{"spec":{"replicas":1},"status":{"replicas":3}}"#, Some(&FieldSet::of(&["status"])))
        .write_reset("two/status", r#"{"spec":{"replicas":9},"status":{"replicas":4}}"#, Some(&spec))
        .check(&[
            r#"one Update t01 {"f:spec":{"f:replicas":{}}}"#,
            r#"two/status Update t02 {"f:status":{"f:replicas":{}}}"#,
        ]);
}

#[test]
fn merges_the_oldest_update_managers() {
    let mut flow = TestObject::new("v1", "ConfigMap");
    let mut data = String::new();
    for name in 'a'..='l' {
        let comma = if data.is_empty() { "" } else { "," };
        data.push_str(&format!(r#"{comma}"{name}":"1""#));
        flow.write(&name.to_string(), &format!(r#"{{"data":{{{data}}}}}"#));
    }
    let managed = flow.managed();
    assert_eq!(managed.len(), 10);
    assert_eq!(managed[0], r#"ancient-changes Update t03 {"f:data":{".":{},"f:a":{},"f:b":{},"f:c":{}}}"#);
    assert_eq!(managed[1], r#"d Update t04 {"f:data":{"f:d":{}}}"#);
}

#[test]
fn apply_managers_share_and_take_fields() {
    TestObject::new("v1", "ConfigMap")
        .apply("one", r#"{"data":{"a":"1","b":"2"}}"#)
        .check(&[r#"one Apply t01 {"f:data":{"f:a":{},"f:b":{}}}"#])
        // Repeating it changes nothing, including the time.
        .apply("one", r#"{"data":{"a":"1","b":"2"}}"#)
        .check(&[r#"one Apply t01 {"f:data":{"f:a":{},"f:b":{}}}"#])
        .apply("one", r#"{"data":{"a":"9"}}"#)
        .has("data", r#"{"a":"9"}"#)
        .apply("two", r#"{"data":{"c":"3"}}"#)
        .has("data", r#"{"a":"9","c":"3"}"#)
        .refused("two", r#"{"data":{"a":"x"}}"#, r#"Apply failed with 1 conflict: conflict with "one": .data.a"#)
        .apply("two!", r#"{"data":{"a":"x"}}"#)
        .check(&[r#"two Apply t06 {"f:data":{"f:a":{}}}"#])
        // An equal value is shared; an apply without changes has no time.
        .apply("one", r#"{"data":{"a":"x"}}"#)
        .check(&[r#"one Apply  {"f:data":{"f:a":{}}}"#, r#"two Apply t06 {"f:data":{"f:a":{}}}"#])
        .apply("one", r#"{"data":{}}"#)
        .has("data", r#"{"a":"x"}"#)
        .check(&[r#"one Apply  {"f:data":{}}"#, r#"two Apply t06 {"f:data":{"f:a":{}}}"#])
        .apply("two", "{}")
        .has("data", "null")
        .check(&[r#"one Apply  {"f:data":{}}"#]);
}

#[test]
fn apply_and_update_managers_interact() {
    TestObject::new("v1", "ConfigMap")
        .apply("applier", r#"{"data":{"a":"1","b":"1"}}"#)
        .write("editor", r#"{"data":{"a":"2","b":"1"}}"#)
        .check(&[r#"applier Apply t01 {"f:data":{"f:b":{}}}"#, r#"editor Update t02 {"f:data":{"f:a":{}}}"#])
        .refused(
            "applier",
            r#"{"data":{"a":"1","b":"1"}}"#,
            r#"Apply failed with 1 conflict: conflict with "editor" using v1: .data.a"#,
        )
        .apply("applier!", r#"{"data":{"a":"1","b":"1"}}"#)
        .check(&[r#"applier Apply t04 {"f:data":{"f:a":{},"f:b":{}}}"#])
        .write("x/status", r#"{"data":{"a":"3","b":"3"}}"#)
        .refused(
            "applier",
            r#"{"data":{"a":"1","b":"1"}}"#,
            "Apply failed with 2 conflicts: conflicts with \"x\" with subresource \"status\" using v1:\n- .data.a\n- .data.b",
        );
}

#[test]
fn first_apply_keeps_previous_owners() {
    let mut flow = TestObject::new("v1", "ConfigMap");
    flow.live = Some(flow.shaped(r#"{"data":{"a":"1","z":"2"}}"#));
    flow.refused(
        "applier",
        r#"{"data":{"a":"5"}}"#,
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a"#,
    );
    flow.apply("applier!", r#"{"data":{"a":"5"}}"#).check(&[
        r#"applier Apply t02 {"f:data":{"f:a":{}}}"#,
        r#"before-first-apply Update t02 {"f:data":{".":{},"f:z":{}}}"#,
    ]);
}

#[test]
fn list_maps_sets_and_atomic_values() {
    let mut flow = TestObject::new("v1", "Service");
    flow.apply("one", r#"{"spec":{"ports":[{"port":80,"name":"a"}]}}"#);
    flow.apply("two", r#"{"spec":{"ports":[{"port":80,"protocol":"UDP","name":"b"}],"selector":{"x":"1"}}}"#);
    flow.check(&[
        r#"one Apply t01 {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}}}}"#,
        r#"two Apply t02 {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}},"f:selector":{}}}"#,
    ]);
    flow.refused(
        "one",
        r#"{"spec":{"selector":{"y":"1"},"ports":[{"port":80,"name":"a"}]}}"#,
        r#"Apply failed with 1 conflict: conflict with "two": .spec.selector"#,
    );
    flow.refused(
        "one",
        r#"{"spec":{"ports":[{"port":80,"protocol":"UDP","name":"c"}]}}"#,
        r#"Apply failed with 1 conflict: conflict with "two": .spec.ports[port=80,protocol="UDP"].name"#,
    );
    flow.apply("one", r#"{"spec":{}}"#)
        .has("spec.ports", r#"[{"name":"b","port":80,"protocol":"UDP","targetPort":0}]"#);
    TestObject::new("v1", "ConfigMap")
        .apply("one", r#"{"metadata":{"finalizers":["a","b"]}}"#)
        .apply("two", r#"{"metadata":{"finalizers":["b","c"]}}"#)
        .has("metadata.finalizers", r#"["a","b","c"]"#)
        .apply("one", r#"{"metadata":{"finalizers":["a"]}}"#)
        .has("metadata.finalizers", r#"["a","b","c"]"#)
        .apply("two", r#"{"metadata":{"finalizers":[]}}"#)
        .has("metadata.finalizers", r#"["a"]"#)
        // The object did not change when one dropped b, so the time is kept.
        .check(&[r#"one Apply t01 {"f:metadata":{"f:finalizers":{"v:\"a\"":{}}}}"#]);
}

#[test]
fn merged_lists_keep_the_applied_order() {
    let cases = [
        ("a,b,c", "c,a", "b,c,a"),
        ("a,b,c", "b,x", "a,b,c,x"),
        ("a,b,c", "x,a", "x,a,b,c"),
        ("a,b", "b,a", "b,a"),
        ("", "b,a", "b,a"),
        ("a,s,b", "b,a", "s,b,a"),
    ];
    let list = |names: &str| {
        let names = names.split(',').filter(|name| !name.is_empty()).map(Tree::from).collect();
        crate::tree! { "metadata" => crate::tree! { "finalizers" => Tree::List(names) } }
    };
    for (live, applied, expected) in cases {
        let merged = merge(&list(live), &list(applied), ty("v1", "ConfigMap").into());
        let names: Vec<&str> = merged.list("metadata.finalizers").iter().filter_map(Tree::as_str).collect();
        assert_eq!(names.join(","), expected, "{live} with {applied}");
    }
}

#[test]
fn applied_objects_are_validated() {
    let cases = [
        (r#"{"data":{"n":1}}"#, ".data.n: expected string, got &value.valueUnstructured{Value:1}"),
        (r#"{"nope":{"n":1}}"#, ".nope: field not declared in schema"),
        (r#"{"metadata":{"finalizers":["a","a"]}}"#, r#".metadata.finalizers: duplicate entries for key [="a"]"#),
        (
            r#"{"immutable":"x","nope":1}"#,
            "errors:\n  .immutable: expected boolean, got &value.valueUnstructured{Value:\"x\"}\n  .nope: field not declared in schema",
        ),
    ];
    for (object, message) in cases {
        let message = format!("failed to create typed patch object (/; /v1, Kind=ConfigMap): {message}");
        TestObject::new("v1", "ConfigMap").refused("one", object, &message);
    }
    let mut flow = TestObject::new("v1", "ConfigMap");
    flow.refused("one", r#"{"metadata":{"managedFields":[]}}"#, "metadata.managedFields must be nil");
    let secret = tree(r#"{"apiVersion":"v1","kind":"Secret"}"#);
    let versions = flow.versions();
    let request = flow.request("one", &versions, None);
    let error = apply(None, &secret, false, &request).expect_err("another kind");
    assert_eq!(error, ApplyError::BadRequest("invalid object type: /v1, Kind=Secret".to_string()));
}

#[test]
fn kubectl_takes_over_client_side_fields() {
    let last = r#"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"1\"}}"#;
    let annotations =
        format!(r#""metadata":{{"annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{last}"}}}}"#);
    let mut flow = TestObject::new("v1", "ConfigMap");
    flow.write("kubectl-client-side-apply", &format!(r#"{{{annotations},"data":{{"a":"1","b":"1"}}}}"#));
    let conflict = r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data."#;
    flow.refused("other", r#"{"data":{"a":"2"}}"#, &format!("{conflict}a"));
    flow.refused("kubectl", r#"{"data":{"a":"2","b":"2"}}"#, &format!("{conflict}b"));
    flow.apply("kubectl", r#"{"data":{"a":"2"}}"#).has("data", r#"{"a":"2","b":"1"}"#);
    let kept = flow.live.as_ref().expect("an object").map("metadata.annotations");
    let kept = kept.get("kubectl.kubernetes.io/last-applied-configuration").and_then(Tree::as_str);
    assert_eq!(kept, Some("{\"apiVersion\":\"v1\",\"data\":{\"a\":\"2\"},\"kind\":\"ConfigMap\"}\n"));
}

#[test]
fn scale_shares_replicas_with_its_parent() {
    let mut flow = TestObject::new("apps/v1", "Deployment");
    flow.apply("one", r#"{"spec":{"replicas":2,"minReadySeconds":3}}"#);
    let parent = flow.live.clone().expect("an object");
    let paths = [("apps/v1", "spec.replicas")];
    let entries = parent.list("metadata.managedFields");
    let scale = scale_from_parent(entries, &paths).expect("entries");
    assert_eq!(scale.as_list().map(|list| list[0].str("apiVersion")), Some("autoscaling/v1"));
    let other = tree(
        r#"[{"manager":"hpa","operation":"Update","apiVersion":"autoscaling/v1","subresource":"scale","time":"t","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}}]"#,
    );
    let after = parent_from_scale(entries, other.as_list().unwrap_or(&[]), "apps/v1", &paths).expect("entries");
    flow.live.as_mut().expect("an object").child("metadata").set("managedFields", after);
    flow.check(&[
        r#"one Apply t01 {"f:spec":{"f:minReadySeconds":{}}}"#,
        r#"hpa/scale Update  {"f:spec":{"f:replicas":{}}}"#,
    ]);
}

fn random_set(seed: &mut u64, depth: usize) -> FieldSet {
    let mut next = |limit: u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % limit
    };
    let mut set = FieldSet::new();
    for _ in 0..next(8) {
        let mut path = Vec::new();
        for _ in 0..=next(depth as u64) {
            path.push(match next(4) {
                0 => Element::Value(Box::new(Tree::Int(next(3) as i64))),
                1 => Element::Key(Box::new([("k".into(), Tree::Int(next(3) as i64))])),
                _ => Element::field(["a", "b", "c"][next(3) as usize]),
            });
        }
        set.insert(&path);
    }
    set
}

#[test]
fn set_operations_are_consistent() {
    let mut seed = 1;
    for _ in 0..2_000 {
        let (a, b) = (random_set(&mut seed, 4), random_set(&mut seed, 4));
        assert_eq!(a.union(&b), b.union(&a));
        assert_eq!(a.difference(&b).union(&a.intersection(&b)), a);
        assert!(!a.difference(&b).intersects(&b));
        assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
        assert!(a.recursive_difference(&b).difference(&a).is_empty());
        assert_eq!(decode_fields(&encode_fields(&a)).as_ref(), Ok(&a));
        let mut paths = 0;
        a.each_path(|path| {
            paths += 1;
            assert!(a.has(path));
        });
        assert_eq!(paths == 0, a.is_empty());
    }
}

#[test]
fn remove_and_extract_are_complementary() {
    let object = tree(r#"{"data":{"a":"1","b":"2"},"metadata":{"finalizers":["x","y"],"labels":{"l":"1"}}}"#);
    let ty = ty("v1", "ConfigMap");
    let set =
        decode_fields(&tree(r#"{"f:data":{"f:a":{}},"f:metadata":{"f:finalizers":{"v:\"x\"":{}}}}"#)).expect("a set");
    let kept = remove_items(&object, &set, ty.into());
    assert_eq!(text(&kept), r#"{"data":{"b":"2"},"metadata":{"finalizers":["y"],"labels":{"l":"1"}}}"#);
    let taken = extract_items(&object, &set, ty.into());
    assert_eq!(text(&taken), r#"{"data":{"a":"1"},"metadata":{"finalizers":["x"]}}"#);
}
