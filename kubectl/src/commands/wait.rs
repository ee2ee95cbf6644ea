//! `wait`, and the waiting of other commands. It watches; nothing is polled.

use std::time::Duration;

use api::{Tree, json};

use crate::command::Command;
use crate::context::Context;
use crate::error::{Error, Result, message};
use crate::flags::{Flag, Kind, switch, switch_on, text, typed};
use crate::objects::{FILES, Info, SELECTOR, Select};
use crate::print::{JsonPath, PRINT, Printer};
use crate::transport::Request;

const FLAGS: &[Flag] = &[
    switch_on("recursive", 'R', "Read the directories of -f recursively."),
    switch("all", '\0', "All objects of the types, in the namespace."),
    switch("all-namespaces", 'A', "Objects of all namespaces."),
    text("field-selector", '\0', "", "Field selector, such as --field-selector key1=value1,key2=value2."),
    typed(
        "for",
        '\0',
        Kind::Array,
        "",
        "What to wait for: [create|delete|condition=condition-name[=condition-value]|jsonpath='{JSONPath expression}'=[JSONPath value]]. Can be repeated.",
    ),
    switch_on("local", '\0', "").hidden(),
    typed("timeout", '\0', Kind::Duration, "30s", "How long to wait; zero checks once, negative waits for a week."),
];

pub(crate) static WAIT: Command = Command {
    name: "wait",
    usage: "([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) [--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]]",
    short: "Experimental: Wait for a specific condition on one or many resources",
    flags: &[FLAGS, FILES, SELECTOR, PRINT],
    run: Some(|context| Box::pin(run(context))),
    group: "Advanced Commands",
    ..Command::EMPTY
};

/// A week, for a wait without an end.
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);

/// What an object has to show.
enum Goal {
    Create,
    Delete,
    Condition { name: String, value: String },
    Path { path: JsonPath, value: Option<String> },
}

impl Goal {
    fn parse(text: &str) -> Result<Goal> {
        let lower = text.to_lowercase();
        if lower == "delete" {
            return Ok(Goal::Delete);
        }
        if lower == "create" {
            return Ok(Goal::Create);
        }
        if let Some(rest) = text.strip_prefix("condition=") {
            let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
            return Ok(Goal::Condition { name: name.to_lowercase(), value: value.to_lowercase() });
        }
        if let Some(rest) = text.strip_prefix("jsonpath=") {
            let (path, value) = split_path(rest)?;
            let path = JsonPath::relaxed(path)?;
            return Ok(Goal::Path { path, value });
        }
        message(format!("unrecognized condition: {}", api::field::go_quote(text)))
    }

    fn is_met(&self, object: &Tree) -> Result<bool> {
        match self {
            Goal::Create => Ok(true),
            Goal::Delete => Ok(false),
            Goal::Condition { name, value } => Ok(has_condition(object, name, value)),
            Goal::Path { path, value } => {
                let values = path.values(object)?;
                let [found] = values.as_slice() else {
                    return if values.is_empty() {
                        Ok(false)
                    } else {
                        message("given jsonpath expression matches more than one value")
                    };
                };
                match (found, value) {
                    (Tree::Map(_) | Tree::List(_), Some(_)) => {
                        message("jsonpath leads to a nested object or list which is not supported")
                    }
                    (_, None) => Ok(true),
                    (Tree::Str(found), Some(value)) => Ok(found == value),
                    (found, Some(value)) => Ok(String::from_utf8_lossy(&json::encode(found, None)) == *value),
                }
            }
        }
    }
}

/// `{.a}=value`, `{.a}`; the path may contain equal signs in its brackets.
fn split_path(text: &str) -> Result<(&str, Option<String>)> {
    let text = text.trim_matches(['\'', '"']);
    let end = match text.rfind('}') {
        Some(at) => at + 1,
        None => text.find('=').unwrap_or(text.len()),
    };
    let rest = text[end..].trim_start_matches(['\'', '"']);
    match rest.strip_prefix('=') {
        None if rest.is_empty() => Ok((&text[..end], None)),
        Some("") => message("jsonpath wait has to have a value after equal sign"),
        Some(value) => Ok((&text[..end], Some(value.trim_matches(['\'', '"']).to_string()))),
        None => message(
            "jsonpath wait format must be --for=jsonpath='{.status.readyReplicas}'=3 or --for=jsonpath='{.status.readyReplicas}'",
        ),
    }
}

/// A condition counts only if its controller has seen the current spec.
fn has_condition(object: &Tree, name: &str, value: &str) -> bool {
    let generation = object.int("metadata.generation");
    let is_old = |observed: Option<i64>| matches!((observed, generation), (Some(observed), Some(generation)) if observed < generation);
    object.list("status.conditions").iter().any(|condition| {
        condition.str("type").to_lowercase() == name
            && !is_old(condition.int("observedGeneration").or_else(|| object.int("status.observedGeneration")))
            && condition.str("status").to_lowercase() == value
    })
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let texts = flags.list("for");
    if texts.is_empty() {
        return message("unrecognized condition: \"\"");
    }
    let goals: Vec<Goal> = texts.iter().map(|text| Goal::parse(text)).collect::<Result<_>>()?;
    let printer = Printer::new(context, false)?;
    let is_named = Select { is_by_name: true, ..Select::of(context) };
    let nanos = flags.nanos("timeout");
    let limit = if nanos < 0 { FOREVER } else { flags.duration("timeout") };
    let deadline = tokio::time::Instant::now() + limit;
    let found = is_named.find(context).await?;
    Error::all(found.errors)?;
    if found.infos.is_empty() {
        let is_delete = goals.iter().all(|goal| matches!(goal, Goal::Delete));
        return if is_delete { Ok(()) } else { message("no matching resources found") };
    }
    let mut errors = Vec::new();
    for info in &found.infos {
        for goal in &goals {
            // What is gone already is nothing to report.
            if matches!(goal, Goal::Delete) && is_gone(context, info).await? {
                continue;
            }
            let reached = if limit.is_zero() {
                check_once(context, info, goal).await
            } else {
                tokio::time::timeout_at(deadline, wait(context, info, goal, ""))
                    .await
                    .unwrap_or_else(|_| timed_out(info))
            };
            match reached {
                Ok(object) => printer.print_result(
                    context,
                    &object,
                    if matches!(goal, Goal::Delete) { "deleted" } else { "condition met" },
                )?,
                Err(error) => errors.push(error),
            }
            context.flush()?;
        }
    }
    Error::all(errors)
}

async fn is_gone(context: &Context, info: &Info) -> Result<bool> {
    match context.client().await?.tree(&Request::get(info.path())).await {
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error),
    }
}

fn timed_out<T>(info: &Info) -> Result<T> {
    message(format!("timed out waiting for the condition on {}/{}", info.resource.qualified(), info.name))
}

async fn check_once(context: &Context, info: &Info, goal: &Goal) -> Result<Tree> {
    match context.client().await?.tree(&Request::get(info.path())).await {
        Err(error) if error.is_not_found() && matches!(goal, Goal::Delete) => Ok(info.object.clone()),
        Err(error) => Err(error),
        Ok(object) if goal.is_met(&object)? => Ok(object),
        Ok(_) => message(format!("condition not met for {}", info.label())),
    }
}

/// Watches an object until it shows the goal; `uid` is that of the object whose deletion is waited for.
async fn wait(context: &Context, info: &Info, goal: &Goal, uid: &str) -> Result<Tree> {
    let client = context.client().await?;
    let selector = format!("metadata.name={}", info.name);
    let mut last = info.object.clone();
    match client.tree(&Request::get(info.path())).await {
        Ok(object) if matches!(goal, Goal::Delete) && !uid.is_empty() && object.str("metadata.uid") != uid => {
            return Ok(last);
        }
        Ok(object) if goal.is_met(&object)? => return Ok(object),
        Ok(object) => last = object,
        Err(error) if error.is_not_found() && matches!(goal, Goal::Delete) => return Ok(last),
        Err(error) if error.is_not_found() && matches!(goal, Goal::Create) => {}
        Err(error) => return Err(error),
    }
    loop {
        let request = Request::get(info.resource.path(&info.namespace)).query("fieldSelector", selector.clone());
        let list = client.tree(&request).await?;
        match list.list("items").first() {
            None if matches!(goal, Goal::Delete) => return Ok(last),
            None if !matches!(goal, Goal::Create) => {
                return Err(Error::Server {
                    status: Box::new(api::status::Status::not_found(
                        &info.resource.group,
                        &info.resource.plural,
                        &info.name,
                    )),
                    context: String::new(),
                });
            }
            None => {}
            Some(object) => {
                let mut object = object.clone();
                object.set("kind", &info.resource.kind);
                object.set("apiVersion", info.resource.api_version());
                // Another object with the same name means that the one is gone.
                if matches!(goal, Goal::Delete) && !uid.is_empty() && object.str("metadata.uid") != uid {
                    return Ok(last);
                }
                if goal.is_met(&object)? {
                    return Ok(object);
                }
                last = object;
            }
        }
        let request = Request { is_long: true, ..request }
            .query("watch", "true")
            .query("resourceVersion", list.str("metadata.resourceVersion"));
        let mut lines = client.send(&request).await?.lines();
        while let Some(line) = lines.next().await {
            let Ok(event) = json::decode(&line?) else { break };
            let object = event.at("object");
            match (event.str("type"), goal) {
                ("ERROR", _) => break,
                ("DELETED", Goal::Delete) => return Ok(object.clone()),
                ("DELETED", _) => break,
                (_, goal) if goal.is_met(object)? => return Ok(object.clone()),
                _ => last = object.clone(),
            }
        }
    }
}

/// A deleted object that may still be there.
pub(crate) struct Deletion {
    pub(crate) info: Info,
    pub(crate) uid: String,
}

/// Waits until deleted objects are gone; zero waits for a week.
pub(crate) async fn wait_for_deletion(context: &Context, deleted: &[Deletion], limit: Duration) -> Result<()> {
    let limit = if limit.is_zero() { FOREVER } else { limit };
    let deadline = tokio::time::Instant::now() + limit;
    for deletion in deleted {
        let waiting = wait(context, &deletion.info, &Goal::Delete, &deletion.uid);
        match tokio::time::timeout_at(deadline, waiting).await {
            Ok(result) => drop(result?),
            Err(_) => return timed_out(&deletion.info),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    #[test]
    fn goals_are_parsed_and_checked() {
        let object = tree! {
            "metadata" => tree! { "generation" => 2 },
            "status" => tree! {
                "observedGeneration" => 2, "replicas" => 3, "phase" => "Running",
                "conditions" => list![tree! { "type" => "Available", "status" => "True" }],
            },
        };
        let check = |text: &str, want: bool| {
            let goal = Goal::parse(text).expect(text);
            assert_eq!(goal.is_met(&object).expect(text), want, "{text}");
        };
        check("condition=Available", true);
        check("condition=available=false", false);
        check("condition=Progressing", false);
        check("jsonpath={.status.replicas}=3", true);
        check("jsonpath={.status.phase}=Running", true);
        check("jsonpath='{.status.phase}'=Pending", false);
        check("jsonpath={.status.phase}", true);
        check("jsonpath={.status.none}", false);
        assert!(Goal::parse("nothing").is_err());
        assert!(Goal::parse("jsonpath={.a}=").is_err());
    }
}
