//! The CEL expressions of admission: what webhooks and policies can use, compiled.

use std::sync::{Arc, LazyLock};

use cel::{DeclType, Env, Expressions, Program, Type};

/// Why an expression cannot be used. The texts are upstream's.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExpressionError {
    /// The expression does not compile.
    #[error("compilation failed: {0}")]
    Compile(String),
    /// The expression has another type than its field requires.
    #[error("must evaluate to {want} but got {got}")]
    Output {
        /// The needed type, or the types.
        want: String,
        /// The type of the expression.
        got: String,
    },
    /// A constant that it uses is invalid.
    #[error("program instantiation failed: {0}")]
    Program(String),
}

/// The fields that have expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionKind {
    /// Decides whether a webhook or a policy applies.
    MatchCondition,
    /// A value that other expressions of the policy use.
    Variable,
    /// Decides whether a request is valid.
    Validation,
    /// The message of a failed validation.
    Message,
    /// The value of an audit annotation.
    AuditAnnotation,
    /// An apply configuration.
    ApplyConfiguration,
    /// The operations of a JSON patch.
    JsonPatch,
}

impl ExpressionKind {
    /// The types that a value can have; none if any type can be used.
    fn outputs(self) -> Vec<Type> {
        match self {
            ExpressionKind::MatchCondition | ExpressionKind::Validation => vec![Type::Bool],
            ExpressionKind::Variable => Vec::new(),
            ExpressionKind::Message => vec![Type::String],
            ExpressionKind::AuditAnnotation => vec![Type::String, Type::Null],
            ExpressionKind::ApplyConfiguration => vec![Type::object("Object")],
            ExpressionKind::JsonPatch => vec![Type::list(Type::object("JSONPatch"))],
        }
    }

    /// A message must not depend on permissions.
    fn has_authorizer(self) -> bool {
        self != ExpressionKind::Message
    }

    fn builds_patches(self) -> bool {
        matches!(self, ExpressionKind::ApplyConfiguration | ExpressionKind::JsonPatch)
    }
}

/// Compiles the match condition of a webhook.
pub fn compile_match_condition(text: &str) -> Result<Arc<Program>, ExpressionError> {
    PolicyCompiler::new(false, Expressions::New).compile(ExpressionKind::MatchCondition, text)
}

/// Compiles the expressions of one policy. Variables are added in their order, and expressions can use the variables
/// that were added before.
#[derive(Debug, Clone)]
pub struct PolicyCompiler {
    has_params: bool,
    expressions: Expressions,
    /// None as long as `variables` is not declared.
    variables: Option<Vec<(String, DeclType)>>,
}

impl PolicyCompiler {
    /// A compiler without variables; a policy has params if it has a paramKind.
    pub fn new(has_params: bool, expressions: Expressions) -> PolicyCompiler {
        PolicyCompiler { has_params, expressions, variables: None }
    }

    /// Declares `variables`, even if there are none.
    #[must_use]
    pub fn with_variables(mut self) -> PolicyCompiler {
        self.variables.get_or_insert_default();
        self
    }

    /// The same compiler for expressions that are stored or not.
    #[must_use]
    pub fn for_expressions(&self, expressions: Expressions) -> PolicyCompiler {
        PolicyCompiler { expressions, ..self.clone() }
    }

    /// Declares a variable by the type of its expression. One that does not compile has no known type.
    pub fn add_variable(&mut self, name: &str, text: &str) -> Result<Arc<Program>, ExpressionError> {
        let program = self.compile(ExpressionKind::Variable, text);
        let of = program.as_ref().map_or(Type::Dyn, |program| visible_type(program.output_type()));
        let variables = self.variables.get_or_insert_default();
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_string(), DeclType::scalar(of)));
        program
    }

    /// Compiles one expression.
    pub fn compile(&self, kind: ExpressionKind, text: &str) -> Result<Arc<Program>, ExpressionError> {
        compile(&self.env(kind), kind, text)
    }

    fn env(&self, kind: ExpressionKind) -> Env {
        let mut env = match self.expressions {
            Expressions::New => NEW.clone(),
            Expressions::Stored => STORED.clone(),
        };
        if self.has_params {
            env = env.variable("params", Type::Dyn);
        }
        if kind.has_authorizer() {
            env = add_authorizer(env);
        }
        if let Some(variables) = &self.variables {
            let of = DeclType::object("kubernetes.variables", variables.iter().cloned());
            env = env.declared_variable("variables", &of);
        }
        if kind.builds_patches() { env.mutation() } else { env }
    }
}

static NEW: LazyLock<Env> = LazyLock::new(|| admission_env(Expressions::New));
static STORED: LazyLock<Env> = LazyLock::new(|| admission_env(Expressions::Stored));

fn add_authorizer(env: Env) -> Env {
    env.variable("authorizer", Type::object("kubernetes.authorization.Authorizer"))
        .variable("authorizer.requestResource", Type::object("kubernetes.authorization.ResourceCheck"))
}

/// A variable has a type only if it is a scalar, or a list or map of such types.
pub(super) fn visible_type(of: &Type) -> Type {
    match of {
        Type::List(item) => Type::list(visible_type(item)),
        Type::Map(types) => Type::map(visible_type(&types.0), visible_type(&types.1)),
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Duration
        | Type::Timestamp => of.clone(),
        _ => Type::Dyn,
    }
}

fn compile(env: &Env, kind: ExpressionKind, text: &str) -> Result<Arc<Program>, ExpressionError> {
    let program = env.compile(text).map_err(|issues| ExpressionError::Compile(issues.to_string()))?;
    let outputs = kind.outputs();
    if !outputs.is_empty() && !outputs.contains(program.output_type()) {
        return Err(ExpressionError::Output { want: describe(&outputs), got: program.output_type().to_string() });
    }
    if let Some(error) = program.instantiation_error() {
        return Err(ExpressionError::Program(error.to_string()));
    }
    Ok(Arc::new(program))
}

fn describe(outputs: &[Type]) -> String {
    match outputs {
        [one] => one.to_string(),
        // Upstream prints the names of run time types here.
        several => {
            let names: Vec<&str> = several.iter().map(Type::name).collect();
            format!("one of [{}]", names.join(" "))
        }
    }
}

/// The variables of every admission expression: `object`, `oldObject`, `request` and `namespaceObject`.
pub(super) fn admission_env(expressions: Expressions) -> Env {
    Env::new(expressions)
        .time_zones(crate::time_zones::database())
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .declared_variable("namespaceObject", &namespace_type())
        .declared_variable("request", &request_type())
}

fn object(name: &str, fields: &[(&str, DeclType)]) -> DeclType {
    DeclType::object(name, fields.iter().map(|(name, of)| ((*name).to_string(), of.clone())))
}

fn text() -> DeclType {
    DeclType::scalar(Type::String)
}

fn texts() -> DeclType {
    DeclType::list(text(), UNBOUNDED)
}

fn text_map() -> DeclType {
    DeclType::map(text(), UNBOUNDED)
}

/// Of lists and maps in requests.
const UNBOUNDED: u64 = u64::MAX;

/// An AdmissionRequest without its UID and without the objects, which are variables of their own.
fn request_type() -> DeclType {
    let kind = object("kubernetes.GroupVersionKind", &[("group", text()), ("version", text()), ("kind", text())]);
    let resource =
        object("kubernetes.GroupVersionResource", &[("group", text()), ("version", text()), ("resource", text())]);
    let extra = DeclType::map(texts(), UNBOUNDED);
    let user =
        object("kubernetes.UserInfo", &[("username", text()), ("uid", text()), ("groups", texts()), ("extra", extra)]);
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", DeclType::scalar(Type::Bool)),
            ("options", DeclType::scalar(Type::Dyn)),
        ],
    )
}

/// The type of a Namespace in expressions.
fn namespace_type() -> DeclType {
    let time = || DeclType::scalar(Type::Timestamp);
    let number = || DeclType::scalar(Type::Int);
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", text_map()),
            ("annotations", text_map()),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        &[("conditions", DeclType::list(condition, UNBOUNDED)), ("phase", text())],
    );
    let spec = object("kubernetes.NamespaceSpec", &[("finalizers", texts())]);
    object("kubernetes.Namespace", &[("metadata", metadata), ("spec", spec), ("status", status)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiles_match_conditions() {
        let check = |text: &str, want: Option<&str>| {
            let got = compile_match_condition(text).map(drop).map_err(|error| error.to_string());
            match want {
                None => assert_eq!(got, Ok(()), "{text}"),
                Some(want) => assert!(got.as_ref().is_err_and(|error| error.contains(want)), "{text}: {got:?}"),
            }
        };
        check("object.metadata.name == 'x'", None);
        check("!authorizer.requestResource.check('bypass').allowed()", None);
        check("request.userInfo.groups.exists(g, g == 'x') && request.operation == 'CREATE'", None);
        check("namespaceObject.metadata.labels['a'] == 'b'", None);
        check("1", Some("must evaluate to bool but got int"));
        check("variables.x == 1", Some("undeclared reference to 'variables' (in container '')"));
        check("params.x == 1", Some("compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'"));
        check("request.nope == 'x'", Some("undefined field 'nope'"));
    }

    #[test]
    fn compiles_expressions_of_policies() {
        use ExpressionKind::{ApplyConfiguration, AuditAnnotation, JsonPatch, Message, Validation};
        let mut compiler = PolicyCompiler::new(true, Expressions::New).with_variables();
        for (name, text) in [("n", "1"), ("l", "[object.x, 'a']"), ("m", "{1: [true]}"), ("broken", "nope")] {
            let _ = compiler.add_variable(name, text);
        }
        let check = |kind: ExpressionKind, text: &str, want: &str| {
            let got = compiler.compile(kind, text).map(drop).map_err(|error| error.to_string());
            let matches =
                got.as_ref().map_or_else(|error| !want.is_empty() && error.contains(want), |()| want.is_empty());
            assert!(matches, "{text}: {got:?}");
        };
        check(Validation, "variables.n > 0 && variables.m[1][0] && params.x == 1", "");
        check(Validation, "variables.n > 'x'", "found no matching overload for '_>_' applied to '(int, string)'");
        check(Validation, "variables.broken == variables.l", "");
        check(Validation, "variables.other", "undefined field 'other'");
        check(Message, "'x' + variables.n", "found no matching overload");
        check(Message, "authorizer.path('/x').check('get').reason()", "undeclared reference to 'authorizer'");
        check(AuditAnnotation, "null", "");
        check(AuditAnnotation, "1", "must evaluate to one of [string null_type] but got int");
        check(ApplyConfiguration, "Object{spec: Object.spec{}}", "");
        check(ApplyConfiguration, "{'a': {}}", "must evaluate to Object but got map(string, map(dyn, dyn))");
        check(JsonPatch, "[]", "must evaluate to list(JSONPatch) but got list(dyn)");
        check(Validation, "[1].includes(1)", "undeclared reference to 'includes'");
        let stored = compiler.for_expressions(Expressions::Stored);
        assert!(stored.compile(Validation, "[1].includes(1)").is_ok());
    }
}
