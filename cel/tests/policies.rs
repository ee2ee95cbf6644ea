//! The features of policies besides rules: objects that expressions build, variables that are computed when they are
//! read, and checks of authorization.

use std::cell::RefCell;

use cel::{
    Activation, Authorizer, AuthorizerRequest, AuthorizerTarget, Budget, Decision, DeclType, Env, EvalError,
    Expressions, ResourceRequest, Type, Value,
};

fn compile_error(expression: &str) -> Option<String> {
    let env = Env::new(Expressions::New).mutation().variable("object", Type::Dyn);
    match env.compile(expression) {
        Ok(program) => Some(program.output_type().to_string()),
        Err(issues) => Some(issues.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

#[test]
fn mutations_have_types() {
    let cases = [
        ("Object{}", "Object"),
        ("Object{metadata: Object.metadata{labels: {'a': 'b'}}}", "Object"),
        ("Object{nope: 1}", "Object"),
        ("Object{metadata: object.metadata}", "Object"),
        ("Object", "type(Object)"),
        ("{'metadata': {}}", "map(string, map(dyn, dyn))"),
        ("[JSONPatch{op: 'add', path: '/data', value: {'a': 'b'}}]", "list(JSONPatch)"),
        ("[] + [JSONPatch{op: 'test', path: '/a', value: 1}]", "list(JSONPatch)"),
        ("[?optional.none()]", "list(dyn)"),
        (
            "[JSONPatch{op: 'add', path: 1}]",
            "ERROR: <input>:1:27: expected type of field 'path' is 'string' but provided type is 'int'",
        ),
        ("[JSONPatch{nope: 1}]", "ERROR: <input>:1:16: expected type of field 'nope' is '' but provided type is 'int'"),
        ("self", "ERROR: <input>:1:1: undeclared reference to 'self' (in container '')"),
    ];
    for (expression, expected) in cases {
        assert_eq!(compile_error(expression).as_deref(), Some(expected), "{expression}");
    }
}

#[test]
fn policies_are_checked() {
    let authorizer = Type::object("kubernetes.authorization.Authorizer");
    let env = Env::new(Expressions::New).variable("object", Type::Dyn).variable("authorizer", authorizer);
    let cases = [
        ("'a' == 1", "ERROR: <input>:1:5: found no matching overload for '_==_' applied to '(string, int)'"),
        ("object.x", "dyn"),
        ("params.x == 1", "ERROR: <input>:1:1: undeclared reference to 'params' (in container '')"),
        (
            "authorizer.check('get')",
            "ERROR: <input>:1:17: found no matching overload for 'check' applied to \
             'kubernetes.authorization.Authorizer.(string)'",
        ),
        (
            "authorizer.serviceAccount('ns','sa').requestResource.check('get').allowed()",
            "ERROR: <input>:1:37: unexpected failed resolution of 'kubernetes.authorization.Authorizer'",
        ),
        ("authorizer.path('/x').check('get')", "kubernetes.authorization.Decision"),
        (
            "object.x ? 'a' : null",
            "ERROR: <input>:1:10: found no matching overload for '_?_:_' applied to '(dyn, string, null)'",
        ),
        ("[1].includes(1)", "ERROR: <input>:1:13: undeclared reference to 'includes' (in container '')"),
        (
            "JSONPatch{op: 'add'}.op == 'add'",
            "ERROR: <input>:1:10: undeclared reference to 'JSONPatch' (in container '')",
        ),
        ("Object{}.x == 1", "ERROR: <input>:1:7: undeclared reference to 'Object' (in container '')"),
    ];
    for (expression, expected) in cases {
        let found = match env.compile(expression) {
            Ok(program) => program.output_type().to_string(),
            Err(issues) => issues.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        assert_eq!(found, expected, "{expression}");
    }
}

fn evaluate<'a>(env: &Env, expression: &str, activation: &dyn Activation<'a>) -> Result<Value<'a>, EvalError> {
    let program = env.compile(expression).unwrap_or_else(|issues| panic!("{issues}"));
    program.evaluate(activation, Budget::default()).result
}

#[test]
fn mutations_become_trees() {
    let env = Env::new(Expressions::New).mutation().variable("object", Type::Dyn);
    let object = api::tree! { "metadata" => api::tree! { "name" => "a" }, "data" => api::tree! { "n" => 1 } };
    let activation = [("object", Value::read(&object, None).expect("an object"))];
    let cases = [
        (
            "Object{metadata: Object.metadata{labels: {'a': object.metadata.name, ?'b': object.?nope}}}",
            api::tree! { "metadata" => api::tree! { "labels" => api::tree! { "a" => "a" } } },
        ),
        (
            "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a/b~c'), value: object.data.n + 1}]",
            api::list![api::tree! { "op" => "add", "path" => "/data/a~1b~0c", "value" => 2 }],
        ),
    ];
    for (expression, expected) in cases {
        let value = evaluate(&env, expression, &activation).expect(expression);
        assert_eq!(value.to_tree(), Ok(expected), "{expression}");
        assert!(value.check_type_names().is_empty(), "{expression}");
    }
    let value = evaluate(&env, "Object{spec: Object.nope{x: 1}}", &activation).expect("an object");
    let errors: Vec<String> = value.check_type_names().iter().map(ToString::to_string).collect();
    let text = "unexpected type name \"Object.nope\", expected \"Object.spec\", which matches field name path from root \
                Object type";
    assert_eq!(errors, [text]);
}

/// Variables that count how often they are computed.
struct Lazy(RefCell<Vec<String>>);

impl<'a> Activation<'a> for Lazy {
    fn resolve(&self, _: &str) -> Option<Result<Value<'a>, EvalError>> {
        None
    }

    fn resolve_field(&self, variable: &str, field: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.0.borrow_mut().push(format!("{variable}.{field}"));
        Some(Ok(Value::Int(7)))
    }
}

#[test]
fn variables_are_computed_when_they_are_read() {
    let fields = ["a", "b"].map(|name| (name.to_owned(), DeclType::scalar(Type::Int)));
    let variables = DeclType::object("kubernetes.variables", fields);
    let env = Env::new(Expressions::Stored).declared_variable("variables", &variables);
    let lazy = Lazy(RefCell::new(Vec::new()));
    let value = evaluate(&env, "variables.a == 7 || variables.b == 7", &lazy);
    assert_eq!(value.map(|value| value.as_bool()), Ok(Some(true)));
    assert_eq!(*lazy.0.borrow(), ["variables.a"]);
    let issues = env.compile("variables.nope").expect_err("an undefined field");
    assert!(issues.to_string().starts_with("ERROR: <input>:1:10: undefined field 'nope'"), "{issues}");
}

/// Allows the service account `a` in the namespace `n`, and records the requests.
#[derive(Default)]
struct Recorder(std::sync::Mutex<Vec<String>>);

impl Authorizer for Recorder {
    fn authorize(&self, request: &AuthorizerRequest<'_>) -> Decision {
        let target = match &request.target {
            AuthorizerTarget::Path(path) => (*path).to_owned(),
            AuthorizerTarget::Resource(ResourceRequest { group, resource, subresource, namespace, name, .. }) => {
                format!("{group}/{resource}/{subresource}/{namespace}/{name}")
            }
        };
        self.0.lock().expect("no panic").push(format!("{} {target}", request.verb));
        Decision { allowed: request.service_account == Some(("n", "a")), reason: "because".to_owned(), error: None }
    }
}

#[test]
fn checks_authorization() {
    let authorizer = Type::object("kubernetes.authorization.Authorizer");
    let check = Type::object("kubernetes.authorization.ResourceCheck");
    let env =
        Env::new(Expressions::New).variable("authorizer", authorizer).variable("authorizer.requestResource", check);
    let recorder = Recorder::default();
    let request = ResourceRequest { resource: "pods".to_owned(), ..ResourceRequest::default() };
    let activation = [
        ("authorizer", Value::authorizer(&recorder)),
        ("authorizer.requestResource", Value::resource_check(&recorder, request)),
    ];
    let cases = [
        ("authorizer.path('/healthz').check('get').allowed()", Ok(false), "get /healthz"),
        ("authorizer.serviceAccount('n', 'a').path('/x').check('get').allowed()", Ok(true), "get /x"),
        (
            "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('d').check('update')\
             .reason() == 'because'",
            Ok(true),
            "update apps/deployments/scale/n/d",
        ),
        ("authorizer.requestResource.check('list').errored()", Ok(false), "list /pods///"),
        ("authorizer.path(' ').check('get').allowed()", Err("path must not be empty"), ""),
    ];
    for (expression, expected, call) in cases {
        let found = evaluate(&env, expression, &activation).map(|value| value.as_bool() == Some(true));
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{expression}");
        let mut calls = recorder.0.lock().expect("no panic");
        assert_eq!(calls.drain(..).collect::<Vec<_>>().concat(), call, "{expression}");
    }
}
