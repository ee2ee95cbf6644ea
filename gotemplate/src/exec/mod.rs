//! Execution: walks the nodes, evaluates pipelines and writes their values.

mod eval;

use std::borrow::Cow;

use api::Tree;

use crate::error::{ExecError, Failure};
use crate::format;
use crate::syntax::{Command, Keyword, Kind, List, Node, Operand, Pipe};
use crate::value::{Data, Value};
use crate::{Limits, Template};

/// The node that errors are reported at.
#[derive(Clone, Copy)]
enum At<'a> {
    Start,
    Node(&'a Node),
    Pipe(&'a Pipe),
    Command(&'a Command),
    Operand(&'a Operand),
}

/// How a list of nodes ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

type Run<T> = Result<T, Failure>;

pub(crate) fn execute(template: &Template, object: &Tree, out: &mut Vec<u8>) -> Result<(), ExecError> {
    let data = Value::new(Data::of(object)).unboxed();
    let mut execution = Execution {
        template,
        name: &template.name,
        written: 0,
        out,
        variables: vec![("$", data.clone())],
        scope: 0,
        depth: 0,
        steps: 0,
        at: At::Start,
    };
    let Some(root) = template.roots.get(&template.name) else { return Ok(()) };
    match execution.walk_list(&data, root) {
        Ok(_) => Ok(()),
        Err(failure) => Err(execution.locate(failure)),
    }
}

struct Execution<'a, 'o> {
    template: &'a Template,
    /// The template that is being executed.
    name: &'a str,
    out: &'o mut Vec<u8>,
    written: usize,
    variables: Vec<(&'a str, Value<'a>)>,
    /// The first variable of this template.
    scope: usize,
    depth: usize,
    steps: usize,
    at: At<'a>,
}

impl<'a> Execution<'a, '_> {
    fn limits(&self) -> Limits {
        self.template.limits
    }

    fn locate(&self, failure: Failure) -> ExecError {
        let (position, context) = match self.at {
            At::Start => (0, String::new()),
            At::Node(node) => (node.position, node.to_string()),
            At::Pipe(pipe) => (pipe.position, pipe.to_string()),
            At::Command(command) => (command.position, command.to_string()),
            At::Operand(operand) => (operand.position, operand.to_string()),
        };
        let before = self.template.text.get(..position).unwrap_or_default();
        let column = position - before.rfind('\n').map_or(0, |at| at + 1);
        let line = 1 + before.matches('\n').count();
        ExecError {
            location: format!("{}:{line}:{column}", self.template.name),
            template: self.name.to_string(),
            context,
            failure,
        }
    }

    fn count_step(&mut self) -> Run<()> {
        self.steps += 1;
        if self.steps > self.limits().steps { Err(Failure::TooManySteps) } else { Ok(()) }
    }

    /// Counts a level of nesting around a function.
    fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> Run<T>) -> Run<T> {
        if self.depth >= self.limits().depth {
            return Err(Failure::TooDeep(self.limits().depth));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    fn write(&mut self, bytes: &[u8]) -> Run<()> {
        self.written += bytes.len();
        if self.written > self.limits().output_bytes {
            return Err(Failure::TooMuchOutput);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn walk_list(&mut self, dot: &Value<'a>, list: &'a List) -> Run<Flow> {
        self.nested(|run| {
            for node in &list.nodes {
                let flow = run.walk(dot, node)?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
            }
            Ok(Flow::Next)
        })
    }

    fn walk(&mut self, dot: &Value<'a>, node: &'a Node) -> Run<Flow> {
        self.count_step()?;
        self.at = At::Node(node);
        match &node.kind {
            Kind::Text(text) => self.write(text.as_bytes())?,
            Kind::Action(pipe) => {
                let value = self.eval_pipe(dot, pipe)?;
                if pipe.variables.is_empty() {
                    self.at = At::Node(node);
                    self.write(&format::printed(&value.data))?;
                }
            }
            Kind::Branch { keyword: Keyword::Range, pipe, list, otherwise } => {
                return self.walk_range(dot, pipe, list, otherwise.as_ref());
            }
            Kind::Branch { keyword, pipe, list, otherwise } => {
                return self.walk_if(*keyword, dot, pipe, list, otherwise.as_ref());
            }
            Kind::Template { name, pipe } => self.walk_template(dot, name, pipe.as_ref())?,
            Kind::Break => return Ok(Flow::Break),
            Kind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn walk_if(
        &mut self,
        keyword: Keyword,
        dot: &Value<'a>,
        pipe: &'a Pipe,
        list: &'a List,
        otherwise: Option<&'a List>,
    ) -> Run<Flow> {
        let mark = self.variables.len();
        let value = self.eval_pipe(dot, pipe)?;
        let flow = match (value.data.is_true(), otherwise) {
            (true, _) if keyword == Keyword::With => self.walk_list(&value, list)?,
            (true, _) => self.walk_list(dot, list)?,
            (false, Some(otherwise)) => self.walk_list(dot, otherwise)?,
            (false, None) => Flow::Next,
        };
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn walk_range(
        &mut self,
        dot: &Value<'a>,
        pipe: &'a Pipe,
        list: &'a List,
        otherwise: Option<&'a List>,
    ) -> Run<Flow> {
        let mark = self.variables.len();
        let value = self.eval_pipe(dot, pipe)?;
        let ran = match &value.data {
            Data::List(items) => self.iterate(
                pipe,
                list,
                items.iter().enumerate().map(|(at, item)| (Value::new(Data::Int(at as i64)), Value::item(item))),
            )?,
            Data::Map(map) => self.iterate(
                pipe,
                list,
                map.iter()
                    .map(|(key, item)| (Value::new(Data::Text(Cow::Borrowed(key.as_bytes()))), Value::item(item))),
            )?,
            Data::Int(_) | Data::Int64(_) | Data::Byte(_) if pipe.variables.len() > 1 => {
                return Err(Failure::OneVariable(format::with_verb(&value.data, 'v')));
            }
            Data::Int(count) | Data::Int64(count) => {
                self.iterate(pipe, list, (0..*count).map(|at| (Value::INVALID, Value::new(Data::Int(at)))))?
            }
            Data::Byte(count) => {
                self.iterate(pipe, list, (0..*count).map(|at| (Value::INVALID, Value::new(Data::Byte(at)))))?
            }
            Data::Invalid | Data::Nil => false,
            other => return Err(Failure::NotIterable(format::with_verb(other, 'v'))),
        };
        let flow = match otherwise {
            Some(otherwise) if !ran => self.walk_list(dot, otherwise)?,
            _ => Flow::Next,
        };
        self.variables.truncate(mark);
        Ok(flow)
    }

    /// Runs the body for each key and item; returns whether there were any.
    fn iterate(
        &mut self,
        pipe: &'a Pipe,
        list: &'a List,
        items: impl Iterator<Item = (Value<'a>, Value<'a>)>,
    ) -> Run<bool> {
        let mark = self.variables.len();
        let mut ran = false;
        for (key, item) in items {
            ran = true;
            self.count_step()?;
            self.set_range_variables(pipe, mark, key, &item)?;
            let flow = self.walk_list(&item, list)?;
            self.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(ran)
    }

    fn set_range_variables(&mut self, pipe: &'a Pipe, mark: usize, key: Value<'a>, item: &Value<'a>) -> Run<()> {
        match (pipe.variables.as_slice(), pipe.is_assignment) {
            ([], _) => {}
            ([one], true) => self.assign(one, item.clone())?,
            ([first, second, ..], true) => {
                self.assign(first, key)?;
                self.assign(second, item.clone())?;
            }
            ([_], false) => self.variables[mark - 1].1 = item.clone(),
            ([_, _, ..], false) => {
                self.variables[mark - 1].1 = item.clone();
                self.variables[mark - 2].1 = key;
            }
        }
        Ok(())
    }

    /// A template sees its data and its own variables.
    fn walk_template(&mut self, dot: &Value<'a>, name: &'a str, pipe: Option<&'a Pipe>) -> Run<()> {
        let Some(root) = self.template.roots.get(name) else {
            return Err(Failure::UndefinedTemplate(name.to_string()));
        };
        let data = match pipe {
            Some(pipe) => self.eval_pipe(dot, pipe)?,
            None => Value::INVALID,
        };
        let (outer_name, outer_scope, outer_at) = (self.name, self.scope, self.at);
        self.scope = self.variables.len();
        self.variables.push(("$", data.clone()));
        self.name = name;
        self.walk_list(&data, root)?;
        self.variables.truncate(self.scope);
        (self.name, self.scope, self.at) = (outer_name, outer_scope, outer_at);
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Run<&mut Value<'a>> {
        let variables = self.variables[self.scope..].iter_mut().rev();
        let found = variables.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value).ok_or_else(|| Failure::UndefinedVariable(name.to_string()))
    }

    fn assign(&mut self, name: &str, value: Value<'a>) -> Run<()> {
        *self.variable(name)? = value;
        Ok(())
    }
}
