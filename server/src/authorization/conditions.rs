//! The match conditions of an authorization webhook: CEL expressions over the spec of the SubjectAccessReview that
//! decide whether it is called.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use api::field::{Errors, Path};
use api::{Tree, tree};
use cel::limits::PER_CALL_LIMIT;
use cel::{Budget, DeclType, Env, Expressions, Program, Type, Value};

use super::webhook::resource_attributes;
use super::{Attributes, metrics};

const MAX_CONDITIONS: usize = 64;
/// The maximum size of lists and maps in requests.
const UNBOUNDED: u64 = u64::MAX;

/// Conditions that could not be evaluated, in upstream's words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConditionError(String);

/// The conditions of one webhook, compiled.
#[derive(Clone, Default)]
pub struct Conditions {
    /// The name of the authorizer.
    name: String,
    list: Arc<[Condition]>,
}

struct Condition {
    text: String,
    program: Program,
}

static ENV: LazyLock<Env> = LazyLock::new(|| {
    Env::new(Expressions::New)
        .time_zones(kinds::time_zones::database())
        .declared_variable("request", &review_spec_type())
});

impl Conditions {
    /// Compiles the `matchConditions` of a webhook's configuration.
    pub(super) fn read(name: &str, conditions: &[Tree], path: &Path<'_>, errors: &mut Errors) -> Conditions {
        if conditions.len() > MAX_CONDITIONS {
            errors.too_many(path, conditions.len(), MAX_CONDITIONS);
            return Conditions::default();
        }
        let mut compiled: Vec<Condition> = Vec::new();
        for (index, condition) in conditions.iter().enumerate() {
            let (text, path) = (condition.str("expression"), path.index(index));
            let path = path.field("expression");
            match text.trim() {
                "" => errors.required(&path, ""),
                _ if compiled.iter().any(|known| known.text == text) => errors.duplicate(&path, text),
                _ => compiled.extend(compile(text, &path, errors)),
            }
        }
        Conditions { name: name.to_string(), list: compiled.into() }
    }

    /// Whether the webhook is called for a request. An error counts as a failure of the webhook.
    pub(super) fn are_met(&self, attributes: &Attributes<'_>) -> Result<bool, ConditionError> {
        if self.list.is_empty() {
            return Ok(true);
        }
        let began = Instant::now();
        let (is_met, errors) = self.evaluate(attributes);
        metrics::observe(&self.name, is_met, !errors.is_empty(), began.elapsed());
        if !is_met {
            return Ok(false);
        }
        let errors: Vec<String> = errors.into_iter().map(|error| format!("cel evaluation error: {error}")).collect();
        super::union::aggregate(errors).map_or(Ok(true), |text| Err(ConditionError(text)))
    }

    /// Whether no condition is false, and the errors of the conditions before it.
    fn evaluate(&self, attributes: &Attributes<'_>) -> (bool, Vec<String>) {
        let request = review_spec(attributes);
        let variables = [("request", Value::read(&request, None).unwrap_or(Value::Null))];
        let mut errors = Vec::new();
        for condition in self.list.iter() {
            let evaluation = condition.program.evaluate(&variables, Budget::new(PER_CALL_LIMIT));
            match evaluation.result.map(|value| value.as_bool()) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return (false, errors),
                Ok(None) => errors.push(format!("expression '{}' is not a bool", condition.text)),
                Err(error) => errors.push(format!("expression '{}' resulted in error: {error}", condition.text)),
            }
        }
        (true, errors)
    }
}

fn compile(text: &str, path: &Path<'_>, errors: &mut Errors) -> Option<Condition> {
    let program = match ENV.compile(text) {
        Ok(program) => program,
        Err(issues) => {
            errors.invalid(path, text, &format!("compilation failed: {issues}"));
            return None;
        }
    };
    if *program.output_type() != Type::Bool {
        errors.invalid(path, text, &format!("must evaluate to bool but got {}", program.output_type()));
        return None;
    }
    Some(Condition { text: text.to_string(), program })
}

/// The spec with all its strings, also the empty ones: expressions read them without `has`.
fn review_spec(attributes: &Attributes<'_>) -> Tree {
    let user = attributes.user;
    let mut spec = tree! {
        "user" => &user.name, "uid" => &user.uid, "extra" => Tree::Map(user.extra.clone()),
        "groups" => user.groups.iter().map(Tree::from).collect::<Vec<_>>(),
    };
    match attributes.path {
        Some(path) => spec.set("nonResourceAttributes", tree! { "path" => path, "verb" => attributes.verb }),
        None => {
            let mut resource = resource_attributes(attributes);
            for key in ["namespace", "verb", "group", "version", "resource", "subresource", "name"] {
                resource.set_default(key, "");
            }
            spec.set("resourceAttributes", resource);
        }
    }
    spec
}

fn object(name: &str, fields: &[(&str, DeclType)]) -> DeclType {
    DeclType::object(name, fields.iter().map(|(name, of)| ((*name).to_string(), of.clone())))
}

fn review_spec_type() -> DeclType {
    let text = || DeclType::scalar(Type::String);
    let texts = || DeclType::list(text(), UNBOUNDED);
    let requirement =
        object("kubernetes.SelectorRequirement", &[("key", text()), ("operator", text()), ("values", texts())]);
    let requirements = DeclType::list(requirement, UNBOUNDED);
    let selector = |name: &str| object(name, &[("rawSelector", text()), ("requirements", requirements.clone())]);
    let resource = object(
        "kubernetes.ResourceAttributes",
        &[
            ("namespace", text()),
            ("verb", text()),
            ("group", text()),
            ("version", text()),
            ("resource", text()),
            ("subresource", text()),
            ("name", text()),
            ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
            ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
        ],
    );
    let path = object("kubernetes.NonResourceAttributes", &[("path", text()), ("verb", text())]);
    object(
        "kubernetes.SubjectAccessReviewSpec",
        &[
            ("resourceAttributes", resource),
            ("nonResourceAttributes", path),
            ("user", text()),
            ("groups", texts()),
            ("extra", DeclType::map(texts(), UNBOUNDED)),
            ("uid", text()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use api::list;
    use kinds::User;

    use super::*;

    fn read(expressions: &[&str]) -> Result<Conditions, Vec<String>> {
        let conditions: Vec<Tree> = expressions.iter().map(|text| tree! { "expression" => *text }).collect();
        let mut errors = Errors::new();
        let read = Conditions::read("w", &conditions, &Path::root("matchConditions"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        if texts.is_empty() { Ok(read) } else { Err(texts) }
    }

    #[test]
    fn conditions_select_requests() {
        let extra = tree! { "scopes" => list!["a"] };
        let user = User {
            name: "ann".to_string(),
            groups: vec!["dev".to_string()],
            extra: extra.as_map().cloned().unwrap_or_default(),
            ..User::default()
        };
        let pods = Attributes { namespace: "x", ..Attributes::resource(&user, "get", "", "pods") };
        let path = Attributes::for_path(&user, "get", "/healthz");
        let check = |text: &str, attributes: &Attributes<'_>, want: Result<bool, &str>| {
            let conditions = read(&[text]).unwrap_or_else(|errors| panic!("{errors:?}"));
            assert_eq!(
                conditions.are_met(attributes).map_err(|error| error.to_string()),
                want.map_err(str::to_string),
                "{text}"
            );
        };
        check("has(request.resourceAttributes)", &pods, Ok(true));
        check("has(request.resourceAttributes)", &path, Ok(false));
        check("request.resourceAttributes.namespace == 'x' && request.resourceAttributes.name == ''", &pods, Ok(true));
        check("'dev' in request.groups && request.extra['scopes'] == ['a']", &pods, Ok(true));
        check("request.nonResourceAttributes.path.startsWith('/health')", &path, Ok(true));
        let missing = "cel evaluation error: expression 'request.resourceAttributes.verb == 'get'' resulted in error: \
                       no such key: resourceAttributes";
        check("request.resourceAttributes.verb == 'get'", &path, Err(missing));
        let conditions = read(&["request.resourceAttributes.verb == 'get'", "request.user == 'bob'"]).ok();
        let met = conditions.expect("conditions").are_met(&path);
        assert!(matches!(met, Ok(false)), "one that is not met decides, whatever others report");
    }

    #[test]
    fn invalid_conditions_are_named() {
        let check = |expressions: &[&str], want: &str| {
            let errors = read(expressions).err().unwrap_or_default();
            assert!(errors.iter().any(|error| error.contains(want)), "{errors:?}");
        };
        check(&[" "], "matchConditions[0].expression: Required value");
        check(&["true", "true"], "matchConditions[1].expression: Duplicate value");
        check(&["1"], "matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int");
        check(&["request.nope == 'a'"], "compilation failed: ERROR: <input>:1:8: undefined field 'nope'");
    }
}
