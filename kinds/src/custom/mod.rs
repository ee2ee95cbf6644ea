//! Custom resources: compiles a CustomResourceDefinition into the rules of one more kind. Pure functions of the
//! definition and the object; the server reads definitions and stores objects.

mod approval;
mod column_path;
mod definition;
mod field_path;
mod formats;
mod kind;
mod list_types;
mod metadata;
mod prune;
mod rules;
mod schema;
mod types;
mod validate;

pub use approval::{Approval, approval_state};
pub use column_path::ColumnPath;
pub use definition::{Conversion, Definition, Version, compare_versions, is_true};
pub(crate) use field_path::resolve as resolve_field_path;
pub(crate) use formats::is_known as is_known_format;
pub use kind::{CustomColumn, CustomKind, CustomScale};
pub use metadata::MetadataError;
pub(crate) use metadata::{conform_embedded as conform_metadata, validate_embedded};
pub(crate) use prune::prune_value;
pub use rules::Interrupt;
pub(crate) use rules::{CompiledRule, EvaluationOptions, RuleSet, compile as compile_rule, evaluate as evaluate_rules};
pub(crate) use schema::{JsonType, Schema};
pub(crate) use validate::validate;
