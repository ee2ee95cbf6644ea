//! Flows of writes, each with the managed fields that upstream gives for it.

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
struct Flow {
    api_version: &'static str,
    ty: &'static Type,
    live: Option<Tree>,
    seconds: i64,
}

impl Flow {
    fn new(api_version: &'static str, kind: &str) -> Flow {
        Flow { api_version, ty: ty(api_version, kind), live: None, seconds: 0 }
    }

    fn shaped(&self, object: &str) -> Tree {
        let mut new = tree(object);
        keep_reset(&mut new);
        crate::typed::conform(&mut new, self.ty, &mut json::Strict::default()).expect("the type fits");
        new
    }

    fn request<'a>(&self, manager: &'a str, versions: &'a SameVersion, reset: Option<&'a FieldSet>) -> Request<'a> {
        let (manager, subresource) = manager.split_once('/').unwrap_or((manager, ""));
        let now = Str::from(format!("t{:02}", self.seconds));
        Request { manager, api_version: versions.api_version, subresource, now, reset, versions }
    }

    fn versions(&self) -> SameVersion {
        SameVersion { api_version: self.api_version, ty: self.ty }
    }

    fn write(&mut self, manager: &str, object: &str) -> &mut Flow {
        self.write_reset(manager, object, None)
    }

    fn write_reset(&mut self, manager: &str, object: &str, reset: Option<&FieldSet>) -> &mut Flow {
        self.seconds += 1;
        let mut new = self.shaped(object);
        update(self.live.as_ref(), &mut new, &self.request(manager, &self.versions(), reset));
        if let Some(live) = &self.live {
            keep_timestamps(live, &mut new);
        }
        self.live = Some(new);
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

    fn check(&mut self, expected: &[&str]) -> &mut Flow {
        assert_eq!(self.managed(), expected);
        self
    }
}

#[test]
fn a_create_owns_what_it_sets() {
    Flow::new("v1", "ConfigMap")
        .write("creator", r#"{"metadata":{"name":"a","labels":{"l":"1"}},"data":{"a":"1"}}"#)
        .check(&[r#"creator Update t01 {"f:data":{".":{},"f:a":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}"#]);
    Flow::new("v1", "Pod")
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
fn an_update_takes_what_it_changes_and_frees_what_it_removes() {
    Flow::new("v1", "ConfigMap")
        .write("one", r#"{"data":{"a":"1","b":"1","c":"1"}}"#)
        .write("two", r#"{"data":{"a":"2","b":"1"}}"#)
        .check(&[r#"one Update t01 {"f:data":{".":{},"f:b":{}}}"#, r#"two Update t02 {"f:data":{"f:a":{}}}"#])
        // A write of the same manager joins its entry; one that changes nothing leaves the time.
        .write("one", r#"{"data":{"a":"2","b":"1","d":"1"}}"#)
        .write("one", r#"{"data":{"a":"2","b":"1","d":"1"}}"#)
        .check(&[r#"two Update t02 {"f:data":{"f:a":{}}}"#, r#"one Update t03 {"f:data":{".":{},"f:b":{},"f:d":{}}}"#])
        .write("three", r#"{}"#)
        .check(&[]);
}

#[test]
fn managed_fields_are_reset_kept_or_edited() {
    let mut flow = Flow::new("v1", "ConfigMap");
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
fn a_subresource_has_its_own_entry_and_leaves_what_it_does_not_write() {
    let spec = FieldSet::of(&["spec"]);
    Flow::new("apps/v1", "Deployment")
        .write_reset("one", r#"{"spec":{"replicas":1},"status":{"replicas":3}}"#, Some(&FieldSet::of(&["status"])))
        .write_reset("two/status", r#"{"spec":{"replicas":9},"status":{"replicas":4}}"#, Some(&spec))
        .check(&[
            r#"one Update t01 {"f:spec":{"f:replicas":{}}}"#,
            r#"two/status Update t02 {"f:status":{"f:replicas":{}}}"#,
        ]);
}

#[test]
fn the_oldest_of_many_updaters_are_joined() {
    let mut flow = Flow::new("v1", "ConfigMap");
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
