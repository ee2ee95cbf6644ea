//! CEL as Kubernetes 1.37 compiles and evaluates it: the language, its type checker, Kubernetes' libraries, and the costs
//! that limit expressions before and while they run. It knows neither the server, HTTP nor tokio.
//!
//! A rule of a custom resource is compiled once and evaluated for each object:
//!
//! ```
//! use cel::{Budget, DeclaredSizes, Env, Expressions, Schema, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The schema at which the rule stands. That of a whole object needs `with_object_meta()` first.
//! let schema = Schema::from_tree(&api::tree! {
//!     "type" => "object",
//!     "properties" => api::tree! {
//!         "replicas" => api::tree! { "type" => "integer" },
//!         "maxReplicas" => api::tree! { "type" => "integer" },
//!     },
//! })?;
//! let declared = schema.declare().ok_or("no type")?.with_name("selfType");
//! let env = Env::new(Expressions::New).declared_variable("self", &declared);
//!
//! // The text of the errors is upstream's: `ERROR: <input>:1:6: undefined field 'x' ...`.
//! let program = env.compile("self.replicas <= self.maxReplicas")?;
//! assert_eq!(program.output_type(), &cel::Type::Bool);
//! assert!(program.instantiation_error().is_none());
//! let estimate = program.estimate_cost(&DeclaredSizes::new(&declared));
//! assert!(estimate.max * declared.max_cardinality() < cel::limits::STATIC_ESTIMATED_CRD_COST_LIMIT);
//!
//! // An object is read in place.
//! let object = api::tree! { "replicas" => 1, "maxReplicas" => 3 };
//! let activation = [("self", Value::read(&object, Some(&schema))?)];
//! let evaluation = program.evaluate(&activation, Budget::default());
//! assert_eq!(evaluation.result?.as_bool(), Some(true));
//! assert_eq!(evaluation.cost, 5);
//! # Ok(())
//! # }
//! ```
//!
//! Policies declare `object` as [`Type::Dyn`] and read objects without a schema; [`Activation::resolve_field`] computes
//! `variables.x` when it is read, [`Value::authorizer`] is `authorizer`, and [`Env::mutation`] adds what mutations build,
//! of which [`Value::to_tree`] is the result. Device selectors add [`Env::bindings`]. Names of time zones need
//! [`Env::time_zones`].
//!
//! Programs are `Send + Sync`. Transition rules declare `oldSelf` with the same type, or with `Type::optional` of it if
//! `optionalOldSelf` is set, and [`Program::uses_variable`] says whether a rule is one.

#![warn(unreachable_pub)]

mod check;
mod cost;
mod env;
mod estimate;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod library;
pub mod limits;
mod program;
mod schema;
mod scope;
mod syntax;
mod types;
mod value;

pub use env::{Env, Expressions};
pub use estimate::{CostEstimate, DeclaredSizes, NoSizes, SizeEstimate, SizeEstimator};
pub use library::TimeZones;
pub use program::{Activation, Budget, Evaluation, Program};
pub use schema::{
    DeclType, Declaration, Format, ListType, Schema, SchemaError, SchemaType, escape, is_reserved, unescape,
};
pub use syntax::{Issue, Issues};
pub use types::Type;
pub use value::{
    Authorizer, AuthorizerRequest, AuthorizerTarget, ConversionError, Decision, EvalError, List, Map, Object, Opaque,
    ResourceRequest, Text, Timestamp, TypeNameError, Value,
};
