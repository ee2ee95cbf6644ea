//! Device selectors: CEL expressions over a device, compiled once and kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use api::Str;
use cel::{Budget, DeclType, Env, Expressions, Map, Program, Type, Value};
use stdx::sync::Mutex;

use crate::{Attribute, Device};

/// The largest number of attributes and capacities of a device.
const MAX_ATTRIBUTES: u64 = 32;
/// The largest cost of one evaluation.
const MAX_COST: u64 = 1_000_000;
/// The number of expressions that are kept. When there are more, all are compiled again: that many are rarely in use.
const MAX_PROGRAMS: usize = 1024;

/// The environment of device selectors, which have the variable `device`.
pub fn environment(expressions: Expressions) -> Env {
    let map = |value: DeclType| DeclType::map(DeclType::map(value, MAX_ATTRIBUTES), MAX_ATTRIBUTES);
    let fields = [
        ("driver", DeclType::scalar(Type::String)),
        ("attributes", map(DeclType::scalar(Type::Dyn))),
        ("capacity", map(DeclType::scalar(Type::object("kubernetes.Quantity")))),
        ("allowMultipleAllocations", DeclType::scalar(Type::Bool)),
    ];
    let device = DeclType::object("kubernetes.DRADevice", fields.map(|(name, of)| (name.to_string(), of)));
    Env::new(expressions).bindings().declared_variable("device", &device)
}

static ENV: LazyLock<Env> = LazyLock::new(|| environment(Expressions::Stored));

/// Why an expression does not say whether it selects a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("CEL compile error: {0}")]
    Compile(String),
    #[error("CEL runtime error: {0}")]
    Runtime(String),
}

/// Compiled expressions, by text.
#[derive(Debug, Default)]
pub struct Selectors(Mutex<HashMap<Arc<str>, Compiled>>);

type Compiled = Arc<Result<Program, SelectorError>>;

impl Selectors {
    /// Whether an expression selects a device of a driver.
    pub fn matches(&self, expression: &Arc<str>, driver: &str, device: &Device) -> Result<bool, SelectorError> {
        let program = self.compile(expression);
        let program = program.as_ref().as_ref().map_err(SelectorError::clone)?;
        let value = value_of(driver, device)?;
        let evaluation = program.evaluate(&[("device", value)], Budget::new(MAX_COST));
        let result = evaluation.result.map_err(|error| SelectorError::Runtime(explain(&error.to_string())))?;
        result.as_bool().ok_or_else(|| {
            let text = format!("CEL result of type {} could not be converted to bool", result.type_of());
            SelectorError::Runtime(text)
        })
    }

    fn compile(&self, expression: &Arc<str>) -> Arc<Result<Program, SelectorError>> {
        let mut programs = self.0.lock();
        if let Some(program) = programs.get(expression) {
            return program.clone();
        }
        if programs.len() >= MAX_PROGRAMS {
            programs.clear();
        }
        let compiled = ENV.compile(expression);
        let compiled = compiled.map_err(|issues| SelectorError::Compile(format!("compilation failed: {issues}")));
        let program = Arc::new(compiled);
        programs.insert(expression.clone(), program.clone());
        program
    }
}

/// Upstream's hint for attributes that not every device has.
fn explain(error: &str) -> String {
    const HINT: &str = "consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() \
                        for optional fields";
    if error.contains("no such key:") { format!("{error}. {HINT}") } else { error.to_string() }
}

/// The variable `device`.
fn value_of<'a>(driver: &str, device: &'a Device) -> Result<Value<'a>, SelectorError> {
    let mut attributes = Domains::default();
    for (name, attribute) in &device.attributes {
        let value = attribute_value(attribute)
            .map_err(|error| SelectorError::Runtime(format!("attribute {name}: parse semantic version: {error}")))?;
        attributes.add(driver, name, value);
    }
    let mut capacity = Domains::default();
    for (name, one) in &device.capacity {
        capacity.add(driver, name, Value::quantity(one.value.clone()));
    }
    let fields: [(Arc<str>, Value<'a>); 4] = [
        ("driver".into(), Value::string(driver)),
        ("attributes".into(), attributes.into_value()),
        ("capacity".into(), capacity.into_value()),
        ("allowMultipleAllocations".into(), Value::Bool(device.allows_multiple)),
    ];
    Ok(Value::Map(Map::from_strings(fields)))
}

fn attribute_value<'a>(attribute: &'a Attribute) -> Result<Value<'a>, cel::EvalError> {
    Ok(match attribute {
        Attribute::Int(value) => Value::Int(*value),
        Attribute::Bool(value) => Value::Bool(*value),
        Attribute::Text(text) => Value::from(text.as_str()),
        Attribute::Version(text) => Value::semver(text)?,
        Attribute::List(list) => Value::list(list.iter().map(attribute_value).collect::<Result<_, _>>()?),
    })
}

/// Values by domain and name. A domain that a device does not have is empty.
#[derive(Default)]
struct Domains<'a>(BTreeMap<Str, Vec<(Arc<str>, Value<'a>)>>);

impl<'a> Domains<'a> {
    fn add(&mut self, driver: &str, name: &str, value: Value<'a>) {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        self.0.entry(Str::new(domain)).or_default().push((id.into(), value));
    }

    fn into_value(self) -> Value<'a> {
        let domains = self.0.into_iter();
        let domains = domains.map(|(domain, values)| (domain.as_str().into(), Value::Map(Map::from_strings(values))));
        Value::Map(Map::domains(domains))
    }
}

#[cfg(test)]
mod tests {
    use api::json;

    use super::*;
    use crate::ResourceSlice;

    const SLICE: &str = r#"{"spec":{"driver":"gpu.example.com","devices":[{"name":"g0","attributes":{
        "model":{"string":"a"},"numa":{"int":1},"ok":{"bool":true},"version":{"version":"1.2.0"},
        "other.example.com/x":{"int":7}},"capacity":{"memory":{"value":"10Gi"}}}]}}"#;

    #[test]
    fn expressions_select_devices() {
        let slice = ResourceSlice::read(&json::decode(SLICE.as_bytes()).expect("JSON"));
        let selectors = Selectors::default();
        let check = |expression: &str, want: Result<bool, &str>| {
            let found = selectors.matches(&expression.into(), &slice.driver, &slice.devices[0]);
            match (found.map_err(|error| error.to_string()), want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{expression}"),
                (Err(found), Err(want)) => assert!(found.starts_with(want), "{expression}: {found}"),
                (found, want) => panic!("{expression}: {found:?}, {want:?}"),
            }
        };
        check(r#"device.driver == "gpu.example.com""#, Ok(true));
        let gpu = r#"device.attributes["gpu.example.com"]"#;
        check(&format!(r#"{gpu}.model == "a" && {gpu}.numa == 1 && {gpu}.ok"#), Ok(true));
        check(r#"device.attributes["other.example.com"].x == 7"#, Ok(true));
        check(r#"device.attributes["unknown.example.com"].?x.orValue(3) == 3"#, Ok(true));
        check(r#""unknown.example.com" in device.attributes"#, Ok(false));
        check(&format!(r#"has({gpu}.version) && {gpu}.version.isGreaterThan(semver("1.0.0"))"#), Ok(true));
        check(r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("20Gi")) < 0"#, Ok(true));
        check("device.allowMultipleAllocations", Ok(false));
        check(&format!("{gpu}.nope == 1"), Err("CEL runtime error: no such key: nope. consider using CEL optional"));
        check(&format!("{gpu}.numa"), Err("CEL runtime error: CEL result of type int could not be converted to bool"));
        check("device.nope", Err("CEL compile error: compilation failed: ERROR: <input>:1:7: undefined field 'nope'"));
    }
}
