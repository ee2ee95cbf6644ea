//! The patches of mutating policies: the result of an expression, applied to the object in the policy's version.

use api::apply::{ConfigurationError, merge_configuration};
use api::patch::{self, Unprocessable, json::Operation, json::OperationError};
use api::schema::TypeRef;
use api::status::Status;
use api::{Str, Tree};
use cel::limits::RUNTIME_COST_BUDGET;
use cel::{ConversionError, Value};

use super::decision::ErrorType;
use super::mutating::{Mutation, PatchType};
use crate::registry::admission::expressions::{EvaluationError, OutOfBudget, Session};

/// A mutation that cannot be applied. The texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(super) enum MutationError {
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    #[error(transparent)]
    Budget(#[from] OutOfBudget),
    #[error("type mismatch: {0}")]
    TypeNames(String),
    #[error("unsupported return type from ApplyConfiguration expression: {0}")]
    ReturnType(String),
    #[error("error applying patch: {0}")]
    Configuration(#[from] ConfigurationError),
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {0}")]
    Value(#[from] ConversionError),
    #[error("JSON Patch: {0}")]
    Operation(String),
    /// The server has no type for the object.
    #[error("{0}")]
    UnknownType(Status),
}

impl MutationError {
    pub(super) fn error_type(&self) -> ErrorType {
        match self {
            MutationError::Evaluation(EvaluationError::Compile(_)) => ErrorType::Compile,
            MutationError::Budget(_) => ErrorType::Budget,
            _ => ErrorType::Invalid,
        }
    }
}

/// The object after a mutation.
pub(super) fn apply(
    mutation: &Mutation,
    session: &Session<'_>,
    object: &Tree,
    ty: Option<TypeRef<'_>>,
) -> Result<Tree, MutationError> {
    let mut budget = RUNTIME_COST_BUDGET;
    let value = match &mutation.expression.program {
        // Upstream adds no prefix here.
        Err(error) => return Err(MutationError::Evaluation(EvaluationError::Compile(error.clone()))),
        Ok(_) => session.evaluate(&mutation.expression, &mut budget)??,
    };
    match mutation.patch_type {
        PatchType::ApplyConfiguration => apply_configuration(&value, object, ty),
        PatchType::JsonPatch => apply_operations(&value, object),
    }
}

fn apply_configuration(value: &Value<'_>, object: &Tree, ty: Option<TypeRef<'_>>) -> Result<Tree, MutationError> {
    if !matches!(value, Value::Object(_)) {
        return Err(MutationError::ReturnType(value.type_of().to_string()));
    }
    check_type_names(value)?;
    let mut configuration = value.to_tree()?;
    for key in ["apiVersion", "kind"] {
        configuration.set(key, object.at(key).clone());
    }
    let ty = ty.ok_or_else(|| MutationError::UnknownType(unknown_type(object)))?;
    Ok(merge_configuration(object, &configuration, ty)?)
}

fn check_type_names(value: &Value<'_>) -> Result<(), MutationError> {
    let errors: Vec<String> = value.check_type_names().iter().map(ToString::to_string).collect();
    if errors.is_empty() { Ok(()) } else { Err(MutationError::TypeNames(errors.join("\n"))) }
}

fn unknown_type(object: &Tree) -> Status {
    let (api_version, kind) = (object.str("apiVersion"), object.str("kind"));
    let prefix = if api_version.contains('/') { "" } else { "/" };
    Status::service_unavailable(format!(
        "Resource kind {prefix}{api_version}, Kind={kind} not found. There can be a delay between when CustomResourceDefinitions are created and when they are available."
    ))
}

/// A failed `test` operation does not change the object.
fn apply_operations(value: &Value<'_>, object: &Tree) -> Result<Tree, MutationError> {
    let Value::List(list) = value else { return Err(MutationError::ReturnType(value.type_of().to_string())) };
    let mut operations = Vec::with_capacity(list.len());
    for item in list.iter() {
        let item = item.map_err(ConversionError::Item)?;
        operations.push(read_operation(&item)?);
    }
    match patch::json::apply(object.clone(), &operations) {
        Ok(patched) => Ok(patched),
        Err(patch::Error::Unprocessable(Unprocessable::Operation(error))) => match error {
            OperationError::TestFailed(_) => Ok(object.clone()),
            error => Err(MutationError::Operation(describe(&error, object, &operations))),
        },
        Err(error) => Err(MutationError::Operation(error.to_string())),
    }
}

fn read_operation(item: &Value<'_>) -> Result<Operation, MutationError> {
    let Value::Object(fields) = item else { return Err(MutationError::ReturnType(item.type_of().to_string())) };
    let field = |name: &str| fields.fields.iter().find(|(field, _)| &**field == name).map(|(_, value)| value);
    let text = |name: &str| field(name).and_then(Value::as_str).map(Str::new);
    let value = match field("value") {
        None => Tree::Null,
        Some(value) => {
            check_type_names(value)?;
            value.to_tree()?
        }
    };
    let op = text("op").unwrap_or_default();
    Ok(Operation { op, path: Some(text("path").unwrap_or_default()), from: text("from"), value })
}

/// The error of the first operation that fails, in the words of upstream's library.
fn describe(error: &OperationError, object: &Tree, operations: &[Operation]) -> String {
    let mut current = object.clone();
    let failing = operations.iter().find(|operation| {
        match patch::json::apply(current.clone(), std::slice::from_ref(*operation)) {
            Ok(next) => {
                current = next;
                false
            }
            Err(_) => true,
        }
    });
    let op = failing.map_or("", |operation| &operation.op);
    match error {
        OperationError::MissingPath(path) => {
            format!("{op} operation does not apply: doc is missing path: {path:?}: missing value")
        }
        OperationError::MissingKey(key) => {
            let path = failing.and_then(|operation| operation.path.as_deref()).unwrap_or("");
            format!("error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value")
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::admission::expressions::{Expression, Input};
    use crate::registry::admission::tests::json;
    use cel::Expressions;
    use kinds::PolicyCompiler;

    use crate::common::deadline::Deadline;

    #[test]
    fn mutations_change_objects() {
        let object = json(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#);
        let check = |patch_type: PatchType, text: &str, want: &str| {
            let compiler = PolicyCompiler::new(false, Expressions::Stored).with_variables();
            let expression = Expression::new(&compiler, patch_type.expression_kind(), text);
            let mutation = Mutation { patch_type, expression };
            let null = &Tree::Null;
            let input = Input {
                object: &object,
                old: null,
                request: null,
                namespace: null,
                params: null,
                deadline: Deadline::NONE,
                authorizer: None,
            };
            let ty = api::schema::type_of("", "v1", "ConfigMap").map(TypeRef::Table);
            let got = match apply(&mutation, &Session::new(input, &[]), &object, ty) {
                Ok(tree) => String::from_utf8_lossy(&api::json::encode(tree.at("data"), None)).into_owned(),
                Err(error) => error.to_string(),
            };
            assert_eq!(got, want, "{text}");
        };
        use PatchType::{ApplyConfiguration, JsonPatch};
        check(ApplyConfiguration, "Object{data: {'a': object.metadata.name}}", r#"{"a":"a","k":"v"}"#);
        check(
            ApplyConfiguration,
            "Object{metadata: Object.nope{}}",
            "type mismatch: unexpected type name \"Object.nope\", expected \"Object.metadata\", which matches field name path from root Object type",
        );
        check(
            ApplyConfiguration,
            "Object{nope: 1}",
            "error applying patch: failed to convert patch object to typed object: .nope: field not declared in schema",
        );
        check(
            ApplyConfiguration,
            "Object{data: {'x': object.nope}}",
            "expression 'Object{data: {'x': object.nope}}' resulted in error: no such key: nope",
        );
        check(JsonPatch, "[JSONPatch{op: 'add', path: '/data/x', value: 'y'}]", r#"{"k":"v","x":"y"}"#);
        check(
            JsonPatch,
            "[JSONPatch{op: 'add', path: '/data/x', value: 'y'}, JSONPatch{op: 'test', path: '/data/k', value: 'other'}]",
            r#"{"k":"v"}"#,
        );
        check(
            JsonPatch,
            "[JSONPatch{op: 'remove', path: '/spec/nope'}]",
            r#"JSON Patch: remove operation does not apply: doc is missing path: "/spec/nope": missing value"#,
        );
        check(JsonPatch, "[JSONPatch{op: 'nope', path: '/data'}]", "JSON Patch: Unexpected kind: nope");
    }
}
