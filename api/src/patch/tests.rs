//! Tables of patches with their results, and general properties.

use super::*;
use crate::schema::{Type, type_of};

fn tree(text: &str) -> Tree {
    crate::json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text(tree: &Tree) -> String {
    String::from_utf8(crate::json::encode(tree, None)).expect("UTF-8")
}

fn ty(kind: &str) -> &'static Type {
    let (group, kind) = kind.split_once('/').unwrap_or(("", kind));
    type_of(group, "v1", kind).expect("a known kind")
}

fn json_patch(object: &str, patch: &str) -> Result<String, Error> {
    let operations = json::decode(patch.as_bytes(), &mut Strict::default())?;
    json::apply(tree(object), &operations).map(|tree| text(&tree))
}

#[test]
fn json_patch_operations() {
    let object = r#"{"a":{"b":1,"x/y":2,"m~n":3},"l":[1,2,3]}"#;
    let cases = [
        (r#"[{"op":"add","path":"/a/c","value":3}]"#, r#"{"a":{"b":1,"c":3,"m~n":3,"x/y":2},"l":[1,2,3]}"#),
        (r#"[{"op":"remove","path":"/a/b"}]"#, r#"{"a":{"m~n":3,"x/y":2},"l":[1,2,3]}"#),
        (r#"[{"op":"replace","path":"/a/x~1y","value":9}]"#, r#"{"a":{"b":1,"m~n":3,"x/y":9},"l":[1,2,3]}"#),
        (r#"[{"op":"replace","path":"/a/m~0n","value":9}]"#, r#"{"a":{"b":1,"m~n":9,"x/y":2},"l":[1,2,3]}"#),
        // `replace` also adds a missing key.
        (r#"[{"op":"replace","path":"/z","value":0}]"#, r#"{"a":{"b":1,"m~n":3,"x/y":2},"l":[1,2,3],"z":0}"#),
        (r#"[{"op":"move","from":"/l/0","path":"/l/2"}]"#, r#"{"a":{"b":1,"m~n":3,"x/y":2},"l":[2,3,1]}"#),
        (r#"[{"op":"copy","from":"/l/0","path":"/l/-"}]"#, r#"{"a":{"b":1,"m~n":3,"x/y":2},"l":[1,2,3,1]}"#),
        (r#"[{"op":"add","path":"/l/1","value":7}]"#, r#"{"a":{"b":1,"m~n":3,"x/y":2},"l":[1,7,2,3]}"#),
        (r#"[{"op":"add","path":"/l/3","value":7}]"#, r#"{"a":{"b":1,"m~n":3,"x/y":2},"l":[1,2,3,7]}"#),
        (r#"[{"op":"remove","path":"/l/-1"}]"#, r#"{"a":{"b":1,"m~n":3,"x/y":2},"l":[1,2]}"#),
        (r#"[{"op":"test","path":"/l","value":[1,2,3]},{"op":"remove","path":"/a"}]"#, r#"{"l":[1,2,3]}"#),
        (r#"[{"op":"test","path":"/none","value":null}]"#, object_sorted()),
        // Text before the first slash is ignored; a missing value is null.
        (r#"[{"op":"add","path":"x/q"}]"#, r#"{"a":{"b":1,"m~n":3,"x/y":2},"l":[1,2,3],"q":null}"#),
        ("[]", object_sorted()),
    ];
    for (patch, expected) in cases {
        assert_eq!(json_patch(object, patch).as_deref(), Ok(expected), "{patch}");
    }
}

fn object_sorted() -> &'static str {
    r#"{"a":{"b":1,"m~n":3,"x/y":2},"l":[1,2,3]}"#
}

#[test]
fn reports_failing_json_patches() {
    let rejected = [
        r#"[{"op":"test","path":"/a","value":2}]"#,
        r#"[{"op":"remove","path":"/z"}]"#,
        r#"[{"op":"add","path":"/z/y","value":1}]"#,
        r#"[{"op":"add","path":"","value":1}]"#,
        r#"[{"op":"add","path":"/a/b","value":1}]"#,
        r#"[{"op":"replace","path":"/l/7","value":1}]"#,
        r#"[{"op":"add","path":"/l/8","value":1}]"#,
        r#"[{"op":"add","path":"/l/x","value":1}]"#,
        r#"[{"op":"remove","path":"/l/-"}]"#,
        r#"[{"op":"frob","path":"/a"}]"#,
        r#"[{"path":"/a"}]"#,
        r#"[{"op":"add","value":1}]"#,
        r#"[{"op":"copy","path":"/a"}]"#,
    ];
    for patch in rejected {
        let result = json_patch(r#"{"a":1,"l":[1,2]}"#, patch);
        assert!(matches!(result, Err(Error::Unprocessable(_))), "{patch}: {result:?}");
    }
    let bad = [
        (
            r#"{"op":"add"}"#,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (r#"[1]"#, "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (
            r#"[{"op":1}]"#,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
    ];
    for (patch, message) in bad {
        assert_eq!(json_patch("{}", patch), Err(Error::BadRequest(message.to_string())));
    }
}

#[test]
fn json_patches_are_limited() {
    let many = format!("[{}]", vec![r#"{"op":"test","path":"/x","value":null}"#; 10_001].join(","));
    let message = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(json_patch("{}", &many), Err(Error::TooLarge(message.to_string())));
    // Each copy increases the depth, or doubles the size.
    let deeper = format!("[{}]", vec![r#"{"op":"copy","from":"/a","path":"/a/x"}"#; 300].join(","));
    assert!(matches!(json_patch(r#"{"a":{"b":{}}}"#, &deeper), Err(Error::Unprocessable(_))));
    let larger = format!("[{}]", vec![r#"{"op":"copy","from":"/a","path":"/a/-"}"#; 40].join(","));
    assert!(matches!(json_patch(r#"{"a":[0]}"#, &larger), Err(Error::Unprocessable(_))));
}

#[test]
fn reports_duplicate_and_unknown_operation_fields() {
    let mut strict = Strict::default();
    let patch = br#"[{"op":"replace","op":"add","path":"/a","value":1,"x":1}]"#;
    json::decode(patch, &mut strict).expect("a patch");
    assert_eq!(strict.problems, [r#"json patch duplicate field "[0].op""#, r#"json patch unknown field "[0].x""#]);
}

#[test]
fn merge_patches_follow_the_rfc() {
    let cases = [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        (r#"{"b":1,"d":1}"#, r#"{"a":2,"b":null,"c":2,"e":2}"#, r#"{"a":2,"c":2,"d":1,"e":2}"#),
    ];
    for (object, patch, expected) in cases {
        assert_eq!(text(&merge(tree(object), &tree(patch))), expected);
    }
    let not_an_object =
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
    let mut strict = Strict::default();
    assert_eq!(decode_object(b"[1]", &mut strict), Err(Error::BadRequest(not_an_object.to_string())));
    assert_eq!(decode_object(b"zzz", &mut strict), Err(Error::BadRequest("invalid JSON patch".to_string())));
}

/// Patches the pod spec of a pod.
fn pod(spec: &str, patch: &str) -> Result<String, Error> {
    let object = tree(&format!(r#"{{"spec":{spec}}}"#));
    let patched = strategic(object, &tree(&format!(r#"{{"spec":{patch}}}"#)), ty("Pod"))?;
    Ok(text(patched.at("spec")))
}

#[test]
fn strategic_patches_merge_lists_by_key() {
    let two = r#"{"containers":[{"name":"c","image":"1","args":["x"],"ports":[{"containerPort":80},{"containerPort":81}]},{"name":"d"}]}"#;
    let cases = [
        (
            r#"{"containers":[{"name":"c","image":"2","args":["y"]}]}"#,
            r#"{"containers":[{"args":["y"],"image":"2","name":"c","ports":[{"containerPort":80},{"containerPort":81}]},{"name":"d"}]}"#,
        ),
        // A new item comes first; a new item after a known one follows it.
        (
            r#"{"containers":[{"name":"e"}]}"#,
            r#"{"containers":[{"name":"e"},{"args":["x"],"image":"1","name":"c","ports":[{"containerPort":80},{"containerPort":81}]},{"name":"d"}]}"#,
        ),
        (
            r#"{"containers":[{"name":"c","ports":[{"containerPort":81,"name":"web"},{"containerPort":82}]}]}"#,
            r#"{"containers":[{"args":["x"],"image":"1","name":"c","ports":[{"containerPort":80},{"containerPort":81,"name":"web"},{"containerPort":82}]},{"name":"d"}]}"#,
        ),
        (r#"{"containers":[{"name":"c","$patch":"delete"}]}"#, r#"{"containers":[{"name":"d"}]}"#),
        (r#"{"containers":[{"$patch":"replace"},{"name":"only"}]}"#, r#"{"containers":[{"name":"only"}]}"#),
        (r#"{"containers":null}"#, "{}"),
        (
            r#"{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"c","args":null,"ports":null}]}"#,
            r#"{"containers":[{"name":"d"},{"image":"1","name":"c"}]}"#,
        ),
        (
            r#"{"$setElementOrder/containers":[{"name":"d"},{"name":"e"}],"containers":[{"name":"c","$patch":"delete"},{"name":"e"}]}"#,
            r#"{"containers":[{"name":"d"},{"name":"e"}]}"#,
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(pod(two, patch).as_deref(), Ok(expected), "{patch}");
    }
}

#[test]
fn strategic_patches_merge_maps_and_keep_keys() {
    let cases = [
        // Maps merge; a directive replaces or empties them.
        (r#"{"nodeSelector":{"a":"1"}}"#, r#"{"nodeSelector":{"b":"2"}}"#, r#"{"nodeSelector":{"a":"1","b":"2"}}"#),
        (
            r#"{"nodeSelector":{"a":"1"}}"#,
            r#"{"nodeSelector":{"$patch":"replace","b":"2"}}"#,
            r#"{"nodeSelector":{"b":"2"}}"#,
        ),
        (r#"{"nodeSelector":{"a":"1"}}"#, r#"{"nodeSelector":{"$patch":"delete"}}"#, r#"{"nodeSelector":{}}"#),
        // Without a counterpart a map with a directive is dropped, as are nulls.
        ("{}", r#"{"nodeSelector":{"$patch":"replace","b":"2"}}"#, "{}"),
        ("{}", r#"{"nodeSelector":{"a":null,"b":"2"}}"#, r#"{"nodeSelector":{"b":"2"}}"#),
        // Volumes keep the retained keys.
        (
            r#"{"volumes":[{"name":"v","emptyDir":{}}]}"#,
            r#"{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"emptyDir":null,"hostPath":{"path":"/x"}}]}"#,
            r#"{"volumes":[{"hostPath":{"path":"/x"},"name":"v"}]}"#,
        ),
        // Lists without the merge strategy are replaced.
        (r#"{"tolerations":[{"key":"k"}]}"#, r#"{"tolerations":[{"key":"l"}]}"#, r#"{"tolerations":[{"key":"l"}]}"#),
    ];
    for (spec, patch, expected) in cases {
        assert_eq!(pod(spec, patch).as_deref(), Ok(expected), "{patch}");
    }
}

#[test]
fn strategic_patches_merge_lists_of_scalars() {
    let cases = [
        (r#"{"$deleteFromPrimitiveList/finalizers":["a"]}"#, r#"["b"]"#),
        (r#"{"finalizers":["c"]}"#, r#"["c","a","b"]"#),
        (r#"{"finalizers":["b","b"]}"#, r#"["a","b"]"#),
        (r#"{"$setElementOrder/finalizers":["c","b","a"],"finalizers":["c"]}"#, r#"["c","b","a"]"#),
        (r#"{"$setElementOrder/finalizers":["b","a"]}"#, r#"["b","a"]"#),
    ];
    for (patch, expected) in cases {
        let object = tree(r#"{"metadata":{"finalizers":["a","b"]}}"#);
        let patched = strategic(object, &tree(&format!(r#"{{"metadata":{patch}}}"#)), ty("ConfigMap")).expect(patch);
        assert_eq!(text(patched.at("metadata.finalizers")), expected, "{patch}");
    }
}

#[test]
fn reports_invalid_strategic_patches() {
    let spec = r#"{"containers":[{"name":"only","image":"o"}],"nodeSelector":{"a":"1"},"volumes":[{"name":"v"}]}"#;
    let internal = [
        (r#"{"containers":[{"image":"z"}]}"#, "map: map[image:z] does not contain declared merge key: name"),
        (r#"{"containers":["z"]}"#, "list element types are not identical: [[map[image:o name:only]] [z]]"),
        (
            r#"{"$setElementOrder/containers":[{"name":"zz"}],"containers":[{"name":"only","image":"z:1"}]}"#,
            "The order in patch list:\n[map[image:z:1 name:only]]\n doesn't match $setElementOrder list:\n[map[name:zz]]\n",
        ),
        (r#"{"nodeSelector":{"$patch":"frob"}}"#, "unknown patch type: frob in map: map[$patch:frob]"),
        (r#"{"containers":[{"$patch":"frob"}]}"#, "unknown patch type: frob in map: map[$patch:frob]"),
        (r#"{"containers":[{"$patch":"merge"}]}"#, "merging lists cannot yet be specified in the patch"),
        (r#"{"$setElementOrder/containers":"x"}"#, "expected a []interface {}, but received a string"),
        (
            r#"{"$setElementOrder/nope":["x"]}"#,
            r#"unable to find api field in struct PodSpec for the json field "nope""#,
        ),
    ];
    for (patch, message) in internal {
        assert_eq!(pod(spec, patch), Err(Error::Internal(message.to_string())), "{patch}");
    }
    let bad = [
        (r#"{"volumes":[{"name":"v","$retainKeys":["name"],"hostPath":{}}]}"#, "invalid patch format of retainKeys"),
        (r#"{"$retainKeys":"x"}"#, "invalid patch format of retainKeys"),
        (r#"{"$deleteFromPrimitiveList":["a"]}"#, "invalid patch format of primitive list"),
        (r#"{"$setElementOrder":["a"]}"#, "invalid patch format of setElementOrder list"),
    ];
    for (patch, message) in bad {
        assert_eq!(pod(spec, patch), Err(Error::BadRequest(message.to_string())), "{patch}");
    }
}

/// A small deterministic generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn pick(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len() as u64) as usize]
    }

    fn tree(&mut self, depth: u64) -> Tree {
        const KEYS: &[&str] = &[
            "spec",
            "metadata",
            "containers",
            "name",
            "finalizers",
            "ports",
            "containerPort",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "volumes",
            "labels",
        ];
        match self.below(if depth == 0 { 5 } else { 9 }) {
            0 => Tree::Null,
            1 => Tree::Bool(true),
            2 => Tree::Int(self.below(3) as i64),
            3 | 4 => Tree::from(self.pick(&["a", "b", "delete", "replace", "merge", "name"])),
            5 | 6 => Tree::List((0..self.below(4)).map(|_| self.tree(depth - 1)).collect()),
            _ => {
                let entries = (0..self.below(5)).map(|_| (self.pick(KEYS).into(), self.tree(depth - 1))).collect();
                Tree::Map(Map::from_entries(entries, |_| {}))
            }
        }
    }
}

#[test]
fn no_patch_panics() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for round in 0..20_000_u64 {
        let mut data = vec![round as u8];
        data.extend(text(&random.tree(5)).bytes());
        data.push(0);
        data.extend(text(&random.tree(5)).bytes());
        fuzz_patch(&data);
    }
}

#[test]
fn merging_an_object_with_itself_changes_nothing() {
    let mut random = Random(7);
    for _ in 0..2_000 {
        let object = merge(Tree::map_new(), &random.tree(5));
        assert_eq!(merge(object.clone(), &object), object);
        let patched = merge(object, &random.tree(5));
        assert_eq!(
            merge(patched.clone(), &Tree::map_new()),
            if patched.as_map().is_some() { patched } else { Tree::map_new() }
        );
    }
}
