//! Evaluation of pipelines, commands and their operands.

use std::borrow::Cow;

use super::{At, Execution, Run};
use crate::error::{CallError, Failure};
use crate::functions::{self, Function, Parameter};
use crate::number::Number;
use crate::syntax::{Command, Operand, Pipe, Term};
use crate::value::{Data, Value};

/// Texts that functions return count as steps.
const BYTES_PER_STEP: usize = 16;

impl<'a> Execution<'a, '_> {
    pub(super) fn eval_pipe(&mut self, dot: &Value<'a>, pipe: &'a Pipe) -> Run<Value<'a>> {
        self.count_step()?;
        self.at = At::Pipe(pipe);
        let mut value: Option<Value<'a>> = None;
        for command in &pipe.commands {
            let result = self.nested(|run| run.eval_command(dot, command, value.take()))?;
            // A value in an interface is taken out of it.
            value = Some(result.unboxed());
        }
        let value = value.unwrap_or(Value::INVALID);
        for name in &pipe.variables {
            if pipe.is_assignment {
                self.assign(name, value.clone())?;
            } else {
                self.variables.push((name, value.clone()));
            }
        }
        Ok(value)
    }

    fn eval_command(&mut self, dot: &Value<'a>, command: &'a Command, last: Option<Value<'a>>) -> Run<Value<'a>> {
        let Some((first, args)) = command.operands.split_first() else { return Ok(Value::INVALID) };
        let has_args = !args.is_empty() || last.is_some();
        match &first.term {
            Term::Field(names) => {
                self.at = At::Operand(first);
                self.eval_fields(dot.clone(), names, has_args)
            }
            Term::Chain { operand, fields } => {
                self.at = At::Operand(first);
                let value = self.eval_chained(dot, operand)?;
                self.eval_fields(value, fields, has_args)
            }
            Term::Function(name) => {
                self.at = At::Operand(first);
                self.eval_function(dot, name, At::Command(command), args, last)
            }
            Term::Pipe(pipe) => {
                self.check_no_args(first, has_args)?;
                self.eval_pipe(dot, pipe)
            }
            Term::Variable(names) => {
                self.at = At::Operand(first);
                self.eval_variable(first, names, has_args)
            }
            _ => {
                self.at = At::Operand(first);
                self.check_no_args(first, has_args)?;
                self.eval_literal(dot, first)
            }
        }
    }

    fn check_no_args(&self, operand: &Operand, has_args: bool) -> Run<()> {
        if has_args { Err(Failure::NotAFunction(operand.to_string())) } else { Ok(()) }
    }

    fn eval_literal(&self, dot: &Value<'a>, operand: &'a Operand) -> Run<Value<'a>> {
        Ok(match &operand.term {
            Term::Dot => dot.clone(),
            Term::Nil => return Err(Failure::NilCommand),
            Term::Bool(value) => Value::new(Data::Bool(*value)),
            Term::Number { text, value } => Value::new(match value {
                Number::Int(value) => Data::Int(*value),
                Number::Float(value) => Data::Float(*value),
                Number::Complex(real, imaginary) => Data::Complex(*real, *imaginary),
                Number::Overflow => return Err(Failure::Overflow(text.clone())),
            }),
            Term::Text { value, .. } => Value::new(Data::Text(Cow::Borrowed(value))),
            _ => Value::INVALID,
        })
    }

    fn eval_variable(&mut self, operand: &'a Operand, names: &'a [String], has_args: bool) -> Run<Value<'a>> {
        let Some((name, fields)) = names.split_first() else { return Ok(Value::INVALID) };
        let value = self.variable(name)?.clone();
        if fields.is_empty() {
            self.check_no_args(operand, has_args)?;
            return Ok(value);
        }
        self.eval_fields(value, fields, has_args)
    }

    /// The operand before the fields of a chain.
    fn eval_chained(&mut self, dot: &Value<'a>, operand: &'a Operand) -> Run<Value<'a>> {
        self.at = At::Operand(operand);
        match &operand.term {
            Term::Pipe(pipe) => self.eval_pipe(dot, pipe),
            Term::Function(name) => self.eval_function(dot, name, At::Operand(operand), &[], None),
            Term::Chain { operand, fields } => {
                let value = self.nested(|run| run.eval_chained(dot, operand))?;
                self.eval_fields(value, fields, false)
            }
            _ => self.eval_literal(dot, operand),
        }
    }

    /// Fields take no arguments; only the last one could have any.
    fn eval_fields(&mut self, value: Value<'a>, names: &'a [String], has_args: bool) -> Run<Value<'a>> {
        let mut value = value;
        for (at, name) in names.iter().enumerate() {
            value = self.eval_field(value, name, has_args && at + 1 == names.len())?;
        }
        Ok(value)
    }

    fn eval_field(&mut self, value: Value<'a>, name: &str, has_args: bool) -> Run<Value<'a>> {
        let allows_missing = self.template.allow_missing_keys;
        match &value.data {
            Data::Invalid if allows_missing => Ok(Value::INVALID),
            Data::Invalid => Err(Failure::NilData(name.to_string())),
            Data::Nil => Err(Failure::NilPointer { ty: value.type_name(), field: name.to_string() }),
            Data::Map(_) if has_args => Err(Failure::ArgumentsOfField(name.to_string())),
            Data::Map(map) => match map.get(name) {
                Some(item) => Ok(Value::item(item)),
                None if allows_missing => Ok(Value::INVALID),
                None => Err(Failure::NoEntry(name.to_string())),
            },
            _ => Err(Failure::NoField { field: name.to_string(), ty: value.type_name() }),
        }
    }

    fn eval_function(
        &mut self,
        dot: &Value<'a>,
        name: &str,
        caller: At<'a>,
        args: &'a [Operand],
        last: Option<Value<'a>>,
    ) -> Run<Value<'a>> {
        let Some(function) = functions::find(name) else { return Ok(Value::INVALID) };
        check_count(function, args.len(), last.is_some())?;
        if matches!(function.name, "and" | "or") {
            return self.eval_logic(dot, function.name == "or", args, last);
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        for (at, operand) in args.iter().enumerate() {
            let parameter = parameter(function, at);
            values.push(self.nested(|run| run.eval_argument(dot, parameter, operand))?);
        }
        if let Some(last) = last {
            values.push(convert(last, parameter(function, args.len()))?);
        }
        let result = (function.run)(&values);
        if let Ok(Value { data: Data::Text(text), .. }) = &result {
            self.steps = self.steps.saturating_add(text.len() / BYTES_PER_STEP);
        }
        result.map_err(|error| {
            self.at = caller;
            let error = match error {
                CallError::NonFunction { ty, .. } => {
                    let name = args.first().map_or_else(|| called_value(&values), ToString::to_string);
                    CallError::NonFunction { name, ty }
                }
                error => error,
            };
            Failure::Call { name: function.name, error }
        })
    }

    /// `and` and `or` evaluate no argument after the one that decides.
    fn eval_logic(
        &mut self,
        dot: &Value<'a>,
        decides: bool,
        args: &'a [Operand],
        last: Option<Value<'a>>,
    ) -> Run<Value<'a>> {
        let mut value = Value::INVALID;
        for operand in args {
            value = self.nested(|run| run.eval_argument(dot, Parameter::Reflect, operand))?;
            if value.data.is_true() == decides {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn eval_argument(&mut self, dot: &Value<'a>, parameter: Parameter, operand: &'a Operand) -> Run<Value<'a>> {
        self.count_step()?;
        self.at = At::Operand(operand);
        let value = match &operand.term {
            Term::Dot => dot.clone(),
            Term::Nil => return nil_argument(parameter),
            Term::Field(names) => self.eval_fields(dot.clone(), names, false)?,
            Term::Variable(names) => self.eval_variable(operand, names, false)?,
            Term::Pipe(pipe) => self.eval_pipe(dot, pipe)?,
            Term::Function(name) => self.eval_function(dot, name, At::Operand(operand), &[], None)?,
            Term::Chain { operand, fields } => {
                let value = self.eval_chained(dot, operand)?;
                self.eval_fields(value, fields, false)?
            }
            Term::Text { .. } => return self.eval_literal(dot, operand),
            Term::Bool(_) | Term::Number { .. } if parameter == Parameter::Text => {
                return Err(Failure::WrongLiteral { expected: "string", found: operand.to_string() });
            }
            Term::Bool(_) | Term::Number { .. } => return self.eval_literal(dot, operand),
        };
        convert(value, parameter)
    }
}

/// How Go names a value that is called without being named: a string by itself, anything else by its type.
fn called_value(values: &[Value]) -> String {
    match values.first().map(|value| &value.data) {
        Some(Data::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(data) => format!("<{} Value>", data.type_name()),
        None => String::new(),
    }
}

fn check_count(function: &Function, args: usize, has_last: bool) -> Run<()> {
    let (want, got) = (function.fixed.len(), args + usize::from(has_last));
    match function.variadic {
        Some(_) if got < want => {
            Err(Failure::ArgumentCount { name: function.name, at_least: "at least ", want, got: args })
        }
        None if got != want => Err(Failure::ArgumentCount { name: function.name, at_least: "", want, got }),
        _ => Ok(()),
    }
}

fn parameter(function: &Function, at: usize) -> Parameter {
    function.fixed.get(at).copied().or(function.variadic).unwrap_or(Parameter::Any)
}

fn nil_argument<'a>(parameter: Parameter) -> Run<Value<'a>> {
    match parameter {
        Parameter::Any => Ok(Value::NIL),
        Parameter::Reflect => Ok(Value::INVALID),
        Parameter::Text => Err(Failure::NilArgument(parameter.name())),
    }
}

/// A value as an argument of a parameter.
fn convert<'a>(value: Value<'a>, parameter: Parameter) -> Run<Value<'a>> {
    match (parameter, &value.data) {
        (Parameter::Any, Data::Invalid) => Ok(Value::NIL),
        (Parameter::Any | Parameter::Reflect, _) | (Parameter::Text, Data::Text(_)) => Ok(value),
        (Parameter::Text, Data::Invalid) => Err(Failure::InvalidValue(parameter.name())),
        (Parameter::Text, Data::Nil) => Err(Failure::WrongType { expected: "string", got: "interface {}" }),
        (Parameter::Text, other) => Err(Failure::WrongType { expected: "string", got: other.type_name() }),
    }
}
