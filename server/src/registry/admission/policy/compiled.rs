//! The policies of one kind with their bindings, compiled when one of them changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use arc_swap::ArcSwapOption;
use cel::Expressions;
use kinds::{ExpressionKind, PolicyCompiler};

use crate::registry::Registry;
use crate::registry::admission::expressions::{Expression, Variable};
use crate::registry::admission::matching::Criteria;
use crate::storage::resource::split_api_version;

/// The evaluation of the requests that a policy matches.
pub(crate) trait Evaluator: Sized {
    /// The storage paths.
    const POLICIES: &'static str;
    const BINDINGS: &'static str;

    /// Compiles the expressions of a policy's own fields.
    fn compile(spec: &Tree, compiler: &PolicyCompiler) -> Self;
}

/// A policy, compiled.
pub(crate) struct Policy<E> {
    pub name: String,
    /// The UID and the generation from which it was compiled.
    id: (String, i64),
    pub fails_open: bool,
    pub param_kind: Option<ParamKind>,
    pub criteria: Criteria,
    pub conditions: Vec<Expression>,
    pub variables: Vec<Variable>,
    pub evaluator: E,
}

/// The kind of the objects that parametrize a policy.
pub(crate) struct ParamKind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// A use of a policy.
pub(crate) struct Binding {
    pub name: String,
    /// Null if it names no params.
    pub param_ref: Tree,
    /// None for all requests that the policy is about.
    pub criteria: Option<Criteria>,
    pub actions: Vec<Action>,
}

/// The action if a validation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Action::Deny => "Deny",
            Action::Warn => "Warn",
            Action::Audit => "Audit",
        }
    }
}

/// A policy and its bindings. A policy without bindings has no effect.
pub(crate) struct Hook<E> {
    pub policy: Arc<Policy<E>>,
    pub bindings: Vec<Binding>,
}

/// The hooks, as of the revisions of policies and bindings.
pub(crate) struct Policies<E>(ArcSwapOption<Compiled<E>>);

pub(crate) struct Compiled<E> {
    revisions: (u64, u64),
    pub hooks: Vec<Hook<E>>,
}

impl<E> Default for Policies<E> {
    fn default() -> Policies<E> {
        Policies(ArcSwapOption::empty())
    }
}

impl<E: Evaluator> Policies<E> {
    /// The compiled policies, by name; None if there are none.
    pub(crate) fn of(&self, registry: &Registry) -> Option<Arc<Compiled<E>>> {
        let caches = &registry.storage.caches;
        let (policies, bindings) = (caches.get(E::POLICIES)?, caches.get(E::BINDINGS)?);
        let revisions = (policies.changed(), bindings.changed());
        let kept = self.0.load_full();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.revisions == revisions) {
            return Some(kept.clone()).filter(|kept| !kept.hooks.is_empty());
        }
        let mut by_policy: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
        for item in bindings.items_in("") {
            let binding = item.tree();
            by_policy.entry(binding.str("spec.policyName").to_string()).or_default().push(read_binding(&binding));
        }
        let hooks = by_policy.into_iter().filter_map(|(name, bindings)| {
            let policy = policies.get(&name)?.tree();
            Some(Hook { policy: compile_or_keep(&policy, kept.as_deref()), bindings })
        });
        let compiled = Arc::new(Compiled { revisions, hooks: hooks.collect() });
        self.0.store(Some(compiled.clone()));
        Some(compiled).filter(|compiled| !compiled.hooks.is_empty())
    }
}

/// A change of the status, or of another policy, does not compile the policy again.
fn compile_or_keep<E: Evaluator>(policy: &Tree, kept: Option<&Compiled<E>>) -> Arc<Policy<E>> {
    let id = (policy.str("metadata.uid").to_string(), policy.int("metadata.generation").unwrap_or(0));
    let known = kept.and_then(|kept| kept.hooks.iter().find(|hook| hook.policy.id == id));
    match known {
        Some(hook) => hook.policy.clone(),
        None => Arc::new(compile(policy, id)),
    }
}

fn compile<E: Evaluator>(policy: &Tree, id: (String, i64)) -> Policy<E> {
    let spec = policy.at("spec");
    let param_kind = spec.get("paramKind").map(|kind| {
        let (group, version) = split_api_version(kind.str("apiVersion"));
        ParamKind { group: group.to_string(), version: version.to_string(), kind: kind.str("kind").to_string() }
    });
    let mut compiler = PolicyCompiler::new(param_kind.is_some(), Expressions::Stored).with_variables();
    let variables = spec.list("variables").iter().map(|variable| {
        let name = variable.str("name");
        Variable { name: name.to_string(), program: compiler.add_variable(name, variable.str("expression")) }
    });
    let variables = variables.collect();
    let condition =
        |condition: &Tree| Expression::new(&compiler, ExpressionKind::MatchCondition, condition.str("expression"));
    Policy {
        name: policy.str("metadata.name").to_string(),
        id,
        fails_open: spec.str("failurePolicy") == "Ignore",
        criteria: read_criteria(spec.at("matchConstraints")),
        conditions: spec.list("matchConditions").iter().map(condition).collect(),
        evaluator: E::compile(spec, &compiler),
        variables,
        param_kind,
    }
}

fn read_criteria(resources: &Tree) -> Criteria {
    let rules = Some(resources.list("resourceRules").to_vec()).filter(|rules| !rules.is_empty());
    Criteria::new(resources, rules, resources.list("excludeResourceRules").to_vec())
}

fn read_binding(binding: &Tree) -> Binding {
    let spec = binding.at("spec");
    let action = |action: &Tree| match action.as_str()? {
        "Deny" => Some(Action::Deny),
        "Warn" => Some(Action::Warn),
        "Audit" => Some(Action::Audit),
        _ => None,
    };
    Binding {
        name: binding.str("metadata.name").to_string(),
        param_ref: spec.at("paramRef").clone(),
        criteria: spec.get("matchResources").map(read_criteria),
        actions: spec.list("validationActions").iter().filter_map(action).collect(),
    }
}
