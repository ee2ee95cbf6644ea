//! Type checking of validating policies: their expressions are compiled once more, with the types of the objects that
//! their rules name. The warnings have no effect on requests.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use api::Tree;
use api::schema::{Ty, Type as TableType, type_named, type_of};
use cel::{DeclType, Declaration, Env, Expressions, Schema, Type};

use super::expressions::{admission_env, visible_type};
use crate::served;

/// At most as many types are checked.
const MAX_TYPES: usize = 10;

/// A warning about an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// `spec.validations[0].expression`
    pub field: String,
    pub warning: String,
}

/// A kind, in the order of group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CheckedKind {
    group: String,
    version: String,
    kind: String,
}

impl std::fmt::Display for CheckedKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// Checks the validations of a policy and their messages. Types of custom resources come from their definitions.
pub fn check_types(policy: &Tree, definitions: &[Tree]) -> Vec<ExpressionWarning> {
    let types: Vec<(CheckedKind, DeclType)> = find_kinds(policy, definitions)
        .into_iter()
        .filter_map(|kind| declare(&kind, definitions).map(|of| (kind, of)))
        .collect();
    let params = policy.at("spec").get("paramKind").map(|kind| {
        let (group, version) = split(kind.str("apiVersion"));
        let kind = CheckedKind { group, version, kind: kind.str("kind").to_string() };
        declare(&kind, definitions)
    });
    let mut warnings = Vec::new();
    for (index, validation) in policy.list("spec.validations").iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = validation.str(field);
            let warning = if text.is_empty() { String::new() } else { check(policy, text, &types, params.as_ref()) };
            if !warning.is_empty() {
                warnings.push(ExpressionWarning { field: format!("spec.validations[{index}].{field}"), warning });
            }
        }
    }
    warnings
}

/// The problems of an expression with all types; empty if there are none.
fn check(policy: &Tree, text: &str, types: &[(CheckedKind, DeclType)], params: Option<&Option<DeclType>>) -> String {
    let problem = |(kind, of): &(CheckedKind, DeclType)| {
        let env = env_of(policy, of, params);
        env.compile(text).err().map(|issues| format!("{kind}: {issues}\n"))
    };
    types.iter().filter_map(problem).collect::<Vec<_>>().join("\n")
}

/// The environment of a policy's expressions, with its variables.
fn env_of(policy: &Tree, object: &DeclType, params: Option<&Option<DeclType>>) -> Env {
    let mut env = admission_env(Expressions::Stored)
        .declared_variable("object", object)
        .declared_variable("oldObject", object)
        .variable("authorizer", Type::object("kubernetes.authorization.Authorizer"));
    env = match params {
        None => env,
        Some(None) => env.variable("params", Type::Dyn),
        Some(Some(of)) => env.declared_variable("params", of),
    };
    let mut variables: Vec<(String, DeclType)> = Vec::new();
    let declare = |variables: &[(String, DeclType)]| {
        env.clone().declared_variable("variables", &DeclType::object("kubernetes.variables", variables.iter().cloned()))
    };
    for variable in policy.list("spec.variables") {
        let compiled = declare(&variables).compile(variable.str("expression"));
        let of = compiled.map_or(Type::Dyn, |program| visible_type(program.output_type()));
        variables.push((variable.str("name").to_string(), DeclType::scalar(of)));
    }
    declare(&variables)
}

/// The kinds that the rules name; a wildcard names none.
fn find_kinds(policy: &Tree, definitions: &[Tree]) -> BTreeSet<CheckedKind> {
    let mut found = BTreeSet::new();
    for rule in policy.list("spec.matchConstraints.resourceRules") {
        let mut count = 0;
        for (group, version, resource) in named_resources(rule) {
            if let Some(kind) = find_kind(group, version, resource, definitions) {
                found.insert(CheckedKind { group: group.to_string(), version: version.to_string(), kind });
                count += 1;
                if count == MAX_TYPES {
                    return found;
                }
            }
        }
    }
    found
}

fn named_resources(rule: &Tree) -> Vec<(&str, &str, &str)> {
    let sorted = |field: &str| {
        let mut texts: Vec<&str> = rule.list(field).iter().filter_map(Tree::as_str).collect();
        texts.sort_unstable();
        texts
    };
    let (groups, versions, mut resources) = (sorted("apiGroups"), sorted("apiVersions"), sorted("resources"));
    if groups.iter().chain(&versions).any(|text| text.contains('*')) {
        return Vec::new();
    }
    resources.retain(|resource| !resource.contains(['*', '/']));
    let mut named = Vec::new();
    for group in &groups {
        for version in &versions {
            named.extend(resources.iter().map(|resource| (*group, *version, *resource)));
        }
    }
    named
}

fn find_kind(group: &str, version: &str, resource: &str, definitions: &[Tree]) -> Option<String> {
    let row = served().iter().find(|row| row.group == group && row.version == version && row.plural == resource);
    if let Some(row) = row {
        return Some(row.kind.to_string());
    }
    let is = |definition: &&Tree| {
        definition.str("spec.group") == group
            && definition.str("spec.names.plural") == resource
            && find_version(definition, version).is_some()
    };
    definitions.iter().find(is).map(|definition| definition.str("spec.names.kind").to_string())
}

fn find_version<'a>(definition: &'a Tree, version: &str) -> Option<&'a Tree> {
    let mut versions = definition.list("spec.versions").iter();
    versions.find(|candidate| candidate.str("name") == version && candidate.bool("served"))
}

fn split(api_version: &str) -> (String, String) {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group.to_string(), version.to_string())
}

/// The type of a kind; none if it is unknown.
fn declare(kind: &CheckedKind, definitions: &[Tree]) -> Option<DeclType> {
    let of = match type_of(&kind.group, &kind.version, &kind.kind) {
        Some(ty) => declare_struct(ty, &mut vec![]),
        None => {
            let is = |definition: &&Tree| {
                definition.str("spec.group") == kind.group && definition.str("spec.names.kind") == kind.kind
            };
            let definition = definitions.iter().find(is)?;
            declare_custom(find_version(definition, &kind.version)?.at("schema.openAPIV3Schema"))?
        }
    };
    Some(of.with_name(&kind.kind))
}

/// Custom resources have the metadata of all objects.
fn declare_custom(schema: &Tree) -> Option<DeclType> {
    let of = Schema::from_tree(schema).ok()?.with_object_meta().declare()?;
    let Declaration::Object(fields) = of.declaration() else { return Some(of) };
    let mut fields: Vec<(String, DeclType)> =
        fields.iter().map(|(name, field)| (name.clone(), (**field).clone())).collect();
    for (name, field) in &mut fields {
        if name == "metadata" {
            field.clone_from(&OBJECT_META);
        }
    }
    Some(DeclType::object(UNNAMED, fields))
}

/// Objects get their names from where they are.
const UNNAMED: &str = "object";

static OBJECT_META: LazyLock<DeclType> = LazyLock::new(|| {
    let ty = type_named("meta/v1", "ObjectMeta");
    ty.map_or_else(|| DeclType::object(UNNAMED, []), |ty| declare_struct(ty, &mut Vec::new()))
});

/// A type that contains itself is an object without fields there.
fn declare_struct(ty: &'static TableType, above: &mut Vec<&'static TableType>) -> DeclType {
    if above.iter().any(|other| std::ptr::eq(*other, ty)) {
        return DeclType::object(UNNAMED, []);
    }
    above.push(ty);
    let field = |above: &mut Vec<_>, name: &str, ty: Ty| Some((cel::escape(name)?, declare_value(ty, above)?));
    let fields: Vec<_> = ty.fields().iter().filter_map(|of| field(above, of.name, of.ty)).collect();
    above.pop();
    DeclType::object(UNNAMED, fields)
}

/// The type of a value; None if its schema has no type: CEL cannot access such a value.
fn declare_value(ty: Ty, above: &mut Vec<&'static TableType>) -> Option<DeclType> {
    Some(match ty {
        Ty::String => DeclType::scalar(Type::String),
        Ty::Bool => DeclType::scalar(Type::Bool),
        Ty::Int32 | Ty::Int64 => DeclType::scalar(Type::Int),
        Ty::Double => DeclType::scalar(Type::Double),
        Ty::Bytes => DeclType::scalar(Type::Bytes),
        Ty::Time | Ty::MicroTime => DeclType::scalar(Type::Timestamp),
        Ty::IntOrString => DeclType::scalar(Type::Dyn),
        Ty::Raw | Ty::Fields => DeclType::object(UNNAMED, []),
        Ty::Quantity | Ty::Json | Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings => return None,
        Ty::Struct(ty) => declare_struct(ty, above),
        Ty::List(item) => DeclType::list(declare_value(*item, above)?, u64::MAX),
        Ty::Map(value) => DeclType::map(declare_value(*value, above)?, u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Tree {
        api::json::decode(text.as_bytes()).expect("the test's own JSON")
    }

    fn check(rule: &str, spec: &str, definitions: &[Tree], want: &[&str]) {
        let policy = json(&format!(r#"{{"spec":{{"matchConstraints":{{"resourceRules":[{rule}]}},{spec}}}}}"#));
        let warnings = check_types(&policy, definitions);
        let got: Vec<String> =
            warnings.iter().map(|warning| format!("{} {}", warning.field, warning.warning)).collect();
        assert_eq!(got.len(), want.len(), "{got:?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.contains(want), "{got}");
        }
    }

    const APPS: &str = r#"{"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments","statefulsets"]}"#;
    const CONFIG: &str = r#"{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}"#;

    #[test]
    fn expressions_are_checked_against_built_in_types() {
        let validations = |texts: &[&str]| {
            let rules: Vec<String> = texts.iter().map(|text| format!(r#"{{"expression":"{text}"}}"#)).collect();
            format!(r#""validations":[{}]"#, rules.join(","))
        };
        check(APPS, &validations(&["object.spec.replicas > 1"]), &[], &[]);
        check(
            APPS,
            &validations(&["object.spec.nope == 1"]),
            &[],
            &[
                "spec.validations[0].expression apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nope'\n | object.spec.nope == 1\n | ...........^\n\napps/v1, Kind=StatefulSet: ERROR",
            ],
        );
        check(
            APPS,
            &validations(&["object.spec.template.spec.containers.all(c, c.image > 1)"]),
            &[],
            &["'(string, int)'"],
        );
        check(
            r#"{"apiGroups":["*"],"apiVersions":["v1"],"resources":["pods"]}"#,
            &validations(&["object.nope"]),
            &[],
            &[],
        );
        check(
            r#"{"apiGroups":["x"],"apiVersions":["v1"],"resources":["pods"]}"#,
            &validations(&["object.nope"]),
            &[],
            &[],
        );
        check(
            CONFIG,
            &validations(&["object.metadata.labels['a'] == 'b'", "object.data.x == 1"]),
            &[],
            &["[1].expression"],
        );
        let params =
            format!(r#""paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},{}"#, validations(&["params.data.x == 1"]));
        check(CONFIG, &params, &[], &["/v1, Kind=ConfigMap: ERROR: <input>:1:15: found no matching overload"]);
        let variables = format!(
            r#""variables":[{{"name":"v","expression":"object.data"}}],{}"#,
            validations(&["variables.v.a > 1"])
        );
        check(CONFIG, &variables, &[], &["'(string, int)'"]);
    }

    #[test]
    fn custom_resources_have_types_too() {
        let definition = json(
            r#"{"spec":{"group":"x.io","names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,
                "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
                "properties":{"n":{"type":"integer"}}}}}}}]}}"#,
        );
        let rule = r#"{"apiGroups":["x.io"],"apiVersions":["v1"],"resources":["foos"]}"#;
        let spec =
            r#""validations":[{"expression":"object.spec.n > 'x'","messageExpression":"object.metadata.labels.a"}]"#;
        check(rule, spec, &[definition], &["x.io/v1, Kind=Foo: ERROR: <input>:1:15: found no matching overload"]);
    }
}
