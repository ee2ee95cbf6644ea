//! Numbers against their limits. A limit that does not fit the type of the value is compared as a float.

use api::field::{Errors, Value};
use api::{Tree, json};

use super::super::schema::{JsonType, Schema};
use super::Validator;

pub(super) fn check(walk: &Validator<'_>, value: &Tree, schema: &Schema, name: &str, errors: &mut Errors) {
    let limits = Limits { walk, value, schema, name };
    limits.check_range(value, "Checked", errors);
    if let Some(factor) = schema.checks.multiple_of {
        limits.check_multiple(factor, errors);
    }
    if let Some(minimum) = schema.checks.minimum {
        let fits = limits.check_range(&Tree::Float(minimum), "Minimum boundary", errors);
        limits.check_minimum(minimum, fits, errors);
    }
    if let Some(maximum) = schema.checks.maximum {
        let fits = limits.check_range(&Tree::Float(maximum), "Maximum boundary", errors);
        limits.check_maximum(maximum, fits, errors);
    }
}

struct Limits<'a> {
    walk: &'a Validator<'a>,
    value: &'a Tree,
    schema: &'a Schema,
    name: &'a str,
}

impl Limits<'_> {
    /// Whether a number fits the type and format of the schema.
    fn check_range(&self, number: &Tree, prefix: &str, errors: &mut Errors) -> bool {
        let format = self.schema.checks.format.as_str();
        let (ty, fits) = match (self.schema.ty, number) {
            (Some(JsonType::Integer), Tree::Int(number)) => {
                ("integer", format != "int32" || i32::try_from(*number).is_ok())
            }
            (Some(JsonType::Integer), Tree::Float(number)) => {
                let most = if format == "int32" { f64::from(i32::MAX) } else { i64::MAX as f64 };
                ("integer", number.fract() == 0.0 && number.abs() < most)
            }
            (Some(JsonType::Number), Tree::Float(number)) => {
                ("number", format != "float" || number.abs() <= f64::from(f32::MAX))
            }
            _ => return true,
        };
        if !fits {
            let format =
                if format.is_empty() { "(default format)".to_string() } else { format!("with format {format}") };
            let detail = format!("{prefix} value must be of type {ty} {format} in {}", self.name);
            self.walk.plain(errors, &detail);
        }
        fits
    }

    fn check_multiple(&self, factor: f64, errors: &mut Errors) {
        let fits = self.check_range(&Tree::Float(factor), "MultipleOf", errors);
        match self.value {
            Tree::Int(number) if fits => {
                let factor = factor as i64;
                if factor <= 0 {
                    self.reject_factor(Tree::Int(factor), errors);
                } else if number % factor != 0 {
                    self.reject("should be a multiple of", &Tree::Int(factor), errors);
                }
            }
            value => {
                let number = super::super::schema::number(value).unwrap_or(0.0);
                let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
                if factor <= 0.0 {
                    self.reject_factor(Tree::Float(factor), errors);
                } else if (quotient - quotient.round()).abs() > f64::EPSILON * quotient.abs().max(1.0) {
                    self.reject("should be a multiple of", &Tree::Float(factor), errors);
                }
            }
        }
    }

    fn reject_factor(&self, factor: Tree, errors: &mut Errors) {
        let detail = format!("factor MultipleOf declared for {} must be positive: {}", self.name, shown(&factor));
        self.walk.invalid(errors, self.name, &factor, &detail);
    }

    fn check_minimum(&self, minimum: f64, fits: bool, errors: &mut Errors) {
        let exclusive = self.schema.checks.exclusive_minimum;
        let text = if exclusive { "should be greater than" } else { "should be greater than or equal to" };
        let (is_below, limit) = match self.value {
            Tree::Int(number) if fits => {
                let limit = minimum as i64;
                (*number < limit || (exclusive && *number == limit), Tree::Int(limit))
            }
            value => {
                let number = super::super::schema::number(value).unwrap_or(0.0);
                (number < minimum || (exclusive && number == minimum), Tree::Float(minimum))
            }
        };
        if is_below {
            self.reject(text, &limit, errors);
        }
    }

    fn check_maximum(&self, maximum: f64, fits: bool, errors: &mut Errors) {
        let exclusive = self.schema.checks.exclusive_maximum;
        let text = if exclusive { "should be less than" } else { "should be less than or equal to" };
        let (is_above, limit) = match self.value {
            Tree::Int(number) if fits => {
                let limit = maximum as i64;
                (*number > limit || (exclusive && *number == limit), Tree::Int(limit))
            }
            value => {
                let number = super::super::schema::number(value).unwrap_or(0.0);
                (number > maximum || (exclusive && number == maximum), Tree::Float(maximum))
            }
        };
        if is_above {
            self.reject(text, &limit, errors);
        }
    }

    fn reject(&self, text: &str, limit: &Tree, errors: &mut Errors) {
        let detail = format!("{} in body {text} {}", self.name, shown(limit));
        self.walk.invalid(errors, self.name, Value::raw(shown(self.value)), &detail);
    }
}

fn shown(number: &Tree) -> String {
    String::from_utf8_lossy(&json::encode(number, None)).into_owned()
}
