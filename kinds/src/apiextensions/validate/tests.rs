//! Tables of definitions and what is wrong with them.

use api::field::Errors;
use api::{Tree, json};

use super::{validate, validate_update, warnings};

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A definition with this schema.
fn definition(schema: &str) -> Tree {
    read(&format!(
        r#"{{"metadata":{{"name":"tries.more.example.com"}},"spec":{{"group":"more.example.com","scope":"Namespaced",
            "names":{{"plural":"tries","singular":"try","kind":"Try","listKind":"TryList"}},
            "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}},
            "status":{{"storedVersions":["v1"]}}}}"#
    ))
}

fn texts(object: &Tree) -> Vec<String> {
    let mut errors = Errors::new();
    validate(object, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn check_schema(schema: &str, want: &[&str]) {
    let found = texts(&definition(schema));
    let short: Vec<String> = found.iter().map(|text| text.replace("spec.validation.openAPIV3Schema", "@")).collect();
    assert_eq!(short, want, "{schema}");
}

/// A schema of one field of the specification.
fn check_field(field: &str, want: &[&str]) {
    let schema = format!(r#"{{"type":"object","properties":{{"f":{field}}}}}"#);
    let found = texts(&definition(&schema));
    let path = "spec.validation.openAPIV3Schema.properties[f]";
    let short: Vec<String> = found.iter().map(|text| text.replace(path, "@")).collect();
    assert_eq!(short, want, "{field}");
}

#[test]
fn schemas_are_structural() {
    check_schema("{}", &["@.type: Required value: must not be empty at the root"]);
    check_schema(
        r#"{"type":"array"}"#,
        &[
            "@.items: Required value: must be specified",
            r#"@.type: Invalid value: "array": must be object at the root"#,
        ],
    );
    check_schema(
        r#"{"type":"object","additionalProperties":{"type":"string"}}"#,
        &["@.additionalProperties: Forbidden: must not be used at the root"],
    );
    check_schema(
        r#"{"type":"object","properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object"}}}}}"#,
        &[
            "@.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ],
    );
    check_field("{}", &["@.type: Required value: must not be empty for specified object fields"]);
    check_field(r#"{"type":"array"}"#, &["@.items: Required value: must be specified"]);
    check_field(
        r#"{"type":"string","anyOf":[{"type":"string"}]}"#,
        &["@.anyOf[0].type: Forbidden: must be empty to be structural"],
    );
    check_field(r#"{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}"#, &[]);
    check_field(
        r#"{"type":"string","not":{"default":"x"}}"#,
        &["@.not.default: Forbidden: must be undefined to be structural"],
    );
    check_field(r#"{"x-kubernetes-preserve-unknown-fields":true}"#, &[]);
    check_field(
        r#"{"type":"string","pattern":"["}"#,
        &[
            "@.pattern: Invalid value: \"[\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ]: `[`",
        ],
    );
}

#[test]
fn schemas_use_what_is_supported() {
    check_field(
        r#"{"type":"date"}"#,
        &[
            r#"@.type: Unsupported value: "date": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ],
    );
    check_field(r##"{"type":"string","$ref":"#/x"}"##, &["@.$ref: Forbidden: $ref is not supported"]);
    check_field(
        r#"{"type":"array","uniqueItems":true,"items":{"type":"string"}}"#,
        &["@.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"],
    );
    check_field(
        r#"{"type":"array","x-kubernetes-list-type":"map","items":{"type":"object","properties":{"a":{"type":"string"}}}}"#,
        &["@.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"],
    );
    check_field(
        r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"],"items":{"type":"object","properties":{"a":{"type":"string"}}}}"#,
        &[
            "@.items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ],
    );
}

#[test]
fn defaults_are_valid_values() {
    check_field(
        r#"{"type":"integer","default":"x"}"#,
        &[r#"@.default: Invalid value: "string":  in body must be of type integer: "string""#],
    );
    check_field(
        r#"{"type":"integer","maximum":1,"default":2}"#,
        &["@.default: Invalid value: 2:  in body should be less than or equal to 1"],
    );
    check_field(
        r#"{"type":"object","properties":{"a":{"type":"string"}},"default":{"b":1}}"#,
        &[r#"@.default: Invalid value: {"b":1}: must not have unknown fields"#],
    );
    check_field(
        r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string"}},"default":{}}"#,
        &["@.default.a: Required value"],
    );
}

#[test]
fn rules_compile_within_their_costs() {
    let rule =
        |rule: &str| format!(r#"{{"type":"string","maxLength":9,"x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#);
    check_field(&rule("self.size() > 2"), &[]);
    check_field(&rule(" "), &["@.x-kubernetes-validations[0].rule: Required value: rule is not specified"]);
    let shown = r#"{"Rule":"self + 'x'","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}"#;
    let want =
        format!("@.x-kubernetes-validations[0].rule: Invalid value: {shown}: cel expression must evaluate to a bool");
    check_field(&rule("self + 'x'"), &[&want]);
    let untyped = r#"{"x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"self == 1"}]}"#;
    let no_type = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to \
                   convert structural schema to CEL declarations";
    check_field(untyped, &[&format!("@.x-kubernetes-validations: Internal error: {no_type}")]);
    // Fields of atomic maps have an identity over time.
    let transition = r#"{"type":"string","maxLength":4,"x-kubernetes-validations":[{"rule":"self == oldSelf"}]}"#;
    let atomic = r#"{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":"#;
    check_field(&format!("{atomic}{transition}}}}}"), &[]);
    let costly = r#"{"type":"array","items":{"type":"string"},"x-kubernetes-validations":[{"rule":"self.all(x, self.all(y, x == y))"}]}"#;
    let found = texts(&definition(&format!(r#"{{"type":"object","properties":{{"f":{costly}}}}}"#)));
    assert!(found[0].contains("estimated rule cost exceeds budget by factor of more than 100x"), "{found:?}");
}

#[test]
fn definitions_have_names_and_versions() {
    let check = |change: &dyn Fn(&mut Tree), want: &[&str]| {
        let mut object = definition(r#"{"type":"object"}"#);
        change(&mut object);
        assert_eq!(texts(&object), want);
    };
    check(&|_| {}, &[]);
    check(
        &|object| object.child("metadata").set("name", "x"),
        &[r#"metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group"#],
    );
    check(
        &|object| object.child("spec").set("scope", "Nope"),
        &[r#"spec.scope: Unsupported value: "Nope": supported values: "Cluster", "Namespaced""#],
    );
    check(
        &|object| object.child("spec.names").set("listKind", "Try"),
        &[r#"spec.names.listKind: Invalid value: "Try": kind and listKind may not be the same"#],
    );
    check(
        &|object| object.list_mut("spec.versions")[0].set("deprecationWarning", "x"),
        &[r#"spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions"#],
    );
    check(
        &|object| {
            object.list_mut("spec.versions")[0]
                .set("additionalPrinterColumns", read(r#"[{"name":"a","type":"object","jsonPath":"a"}]"#))
        },
        &[
            r#"spec.additionalPrinterColumns[0].type: Invalid value: "object": must be one of boolean,date,integer,number,string"#,
            r#"spec.additionalPrinterColumns[0].JSONPath: Invalid value: "a": must be a simple json path starting with ."#,
        ],
    );
    check(
        &|object| object.child("spec").set("conversion", read(r#"{"strategy":"Webhook"}"#)),
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
    check(
        &|object| {
            object.child("metadata").set("name", "tries.x.k8s.io");
            object.child("spec").set("group", "x.k8s.io");
        },
        &[
            r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#,
        ],
    );
}

#[test]
fn updates_keep_what_objects_depend_on() {
    let mut old = definition(r#"{"type":"object"}"#);
    old.child("status").set("conditions", read(r#"[{"type":"Established","status":"True"}]"#));
    let check = |change: &dyn Fn(&mut Tree), want: &[&str]| {
        let mut object = old.clone();
        change(&mut object);
        let mut errors = Errors::new();
        validate_update(&object, &old, &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
    };
    check(&|_| {}, &[]);
    check(
        &|object| object.child("spec").set("scope", "Cluster"),
        &[r#"spec.scope: Invalid value: "Cluster": field is immutable"#],
    );
    check(
        &|object| object.child("spec.names").set("kind", "Gizmo"),
        &[r#"spec.names.kind: Invalid value: "Gizmo": field is immutable"#],
    );
    check(
        &|object| object.list_mut("spec.versions")[0].set("name", "v2"),
        &[
            r#"status.storedVersions: Invalid value: ["v1"]: must have the storage version v2"#,
            r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"#,
        ],
    );
}

#[test]
fn warns_about_unchecked_parts() {
    let object = definition(r#"{"type":"object","properties":{"f":{"type":"string","format":"nope"}}}"#);
    assert_eq!(warnings(&object, None), ["unrecognized format \"nope\""]);
    assert!(warnings(&object, Some(&object)).is_empty());
}
