//! Disruption budgets, priority classes and quotas.

use api::{Tree, tree};

use super::{COMMON, finish, name};
use crate::command::Command;
use crate::commands::common::{DRY_RUN, VALIDATE};
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::print::PRINT;

const PDB_FLAGS: &[Flag] = &[
    text("max-unavailable", '\0', "", "How many pods may be unavailable, as a number or percentage."),
    text("min-available", '\0', "", "How many pods must stay available, as a number or percentage."),
    text("selector", '\0', "", "Label selector of the pods."),
];

pub(crate) static POD_DISRUPTION_BUDGET: Command = Command {
    name: "poddisruptionbudget",
    aliases: &["pdb"],
    usage: "NAME --selector=SELECTOR --min-available=N [--dry-run=server|client|none]",
    short: "Create a pod disruption budget with the specified name",
    flags: &[PDB_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, budget(context)?).await })),
    ..Command::EMPTY
};

const PRIORITY_FLAGS: &[Flag] = &[
    text("description", '\0', "", "What the class is for."),
    switch("global-default", '\0', "Whether pods without a class get this one."),
    text("preemption-policy", '\0', "PreemptLowerPriority", "Whether pods of this class preempt others."),
    typed("value", '\0', Kind::Int32, "0", "The priority."),
];

pub(crate) static PRIORITY_CLASS: Command = Command {
    name: "priorityclass",
    aliases: &["pc"],
    usage: "NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none]",
    short: "Create a priority class with the specified name",
    flags: &[PRIORITY_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, priority_class(context)?).await })),
    ..Command::EMPTY
};

const QUOTA_FLAGS: &[Flag] = &[
    text("hard", '\0', "", "Limits, as resource=quantity pairs separated by commas."),
    text("scopes", '\0', "", "Scopes of the quota, separated by commas."),
];

pub(crate) static QUOTA: Command = Command {
    name: "quota",
    aliases: &["resourcequota"],
    usage: "NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [--dry-run=server|client|none]",
    short: "Create a quota with the specified name",
    flags: &[QUOTA_FLAGS, COMMON, DRY_RUN, VALIDATE, PRINT],
    run: Some(|context| Box::pin(async move { finish(context, quota(context)?).await })),
    ..Command::EMPTY
};

fn int_or_percent(text: &str) -> Tree {
    text.parse::<i64>().map_or_else(|_| Tree::from(text), Tree::Int)
}

/// A label selector as an object has it.
pub(crate) fn label_selector(text: &str) -> Result<Tree> {
    use api::selector::{Operator, Selector};
    let selector = Selector::parse(text).map_err(|error| Error::new(error.to_string()))?;
    let mut object = tree! {};
    for requirement in selector.requirements() {
        let values: Vec<Tree> = requirement.values().map(Tree::from).collect();
        let operator = match requirement.operator() {
            Operator::Equals | Operator::DoubleEquals => {
                object.child("matchLabels").set(requirement.key(), values.into_iter().next().unwrap_or_default());
                continue;
            }
            Operator::In => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            _ => return message(format!("{:?} is not a valid label selector operator", text)),
        };
        let mut expression = tree! { "key" => requirement.key(), "operator" => operator };
        if !values.is_empty() {
            expression.set("values", values);
        }
        object.list_entry("matchExpressions").push(expression);
    }
    Ok(object)
}

fn budget(context: &Context) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    let (min, max, selector) = (flags.str("min-available"), flags.str("max-unavailable"), flags.str("selector"));
    if selector.is_empty() {
        return message("a selector must be specified");
    }
    if min.is_empty() == max.is_empty() {
        return message(if min.is_empty() {
            "one of min-available or max-unavailable must be specified"
        } else {
            "min-available and max-unavailable cannot be both specified"
        });
    }
    let mut spec = tree! { "selector" => label_selector(selector)? };
    let (field, value) = if min.is_empty() { ("maxUnavailable", max) } else { ("minAvailable", min) };
    spec.set(field, int_or_percent(value));
    let status = tree! { "currentHealthy" => 0, "desiredHealthy" => 0, "disruptionsAllowed" => 0, "expectedPods" => 0 };
    Ok(tree! {
        "apiVersion" => "policy/v1", "kind" => "PodDisruptionBudget", "metadata" => tree! { "name" => name },
        "spec" => spec, "status" => status,
    })
}

fn priority_class(context: &Context) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    let mut object = tree! {
        "apiVersion" => "scheduling.k8s.io/v1", "kind" => "PriorityClass", "metadata" => tree! { "name" => name },
        "value" => flags.int("value"), "preemptionPolicy" => flags.str("preemption-policy"),
    };
    if flags.bool("global-default") {
        object.set("globalDefault", true);
    }
    if !flags.str("description").is_empty() {
        object.set("description", flags.str("description"));
    }
    Ok(object)
}

fn quota(context: &Context) -> Result<Tree> {
    let (name, flags) = (name(context)?, &context.flags);
    let mut spec = tree! {};
    if !flags.str("hard").is_empty() {
        spec.set("hard", quantities(flags.str("hard"))?);
    }
    if !flags.str("scopes").is_empty() {
        let scopes: Vec<Tree> = flags.str("scopes").split(',').map(Tree::from).collect();
        if scopes.iter().any(|scope| scope.as_str() == Some("")) {
            return message("invalid resource quota scope \"\"");
        }
        spec.set("scopes", scopes);
    }
    Ok(tree! {
        "apiVersion" => "v1", "kind" => "ResourceQuota", "metadata" => tree! { "name" => name }, "spec" => spec,
        "status" => tree! {},
    })
}

/// `cpu=1,memory=1Gi`.
pub(crate) fn quantities(text: &str) -> Result<Tree> {
    let mut all = tree! {};
    for pair in text.split(',') {
        let Some((key, value)) = pair.split_once('=').filter(|(_, value)| !value.contains('=')) else {
            return message(format!("Invalid argument syntax {pair}, expected <resource>=<value>"));
        };
        match api::quantity::canonical(value) {
            Ok(quantity) => all.set(key, quantity),
            Err(error) => return message(error.to_string()),
        }
    }
    Ok(all)
}
