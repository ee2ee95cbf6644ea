//! Priority levels and flow schemas, and the condition that shows whether a schema's level exists.

use std::sync::Arc;

use api::{Tree, list, time, tree};

use super::{Object, StatusChange, change};
use crate::Server;
use crate::fairness::{self, Changes};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

pub(super) fn objects() -> Vec<Object> {
    let object = |tree: Tree| Object {
        group: GROUP,
        version: "v1",
        plural: if tree.str("kind") == "FlowSchema" { "flowschemas" } else { "prioritylevelconfigurations" },
        manager: PRODUCER,
        tree,
    };
    fairness::objects::objects().into_iter().map(object).collect()
}

/// The conditions that are missing or no longer true.
pub(crate) fn status_changes(server: &Server) -> Vec<StatusChange> {
    let levels = server.objects("prioritylevelconfigurations", "");
    let levels: Vec<&str> = levels.iter().map(|level| level.str("metadata.name")).collect();
    let schemas = server.objects("flowschemas", "");
    let now = server.now();
    schemas.iter().filter_map(|schema| dangling(schema, &levels, now)).collect()
}

fn dangling(schema: &Tree, levels: &[&str], now: i64) -> Option<StatusChange> {
    let level = schema.str("spec.priorityLevelConfiguration.name");
    let (status, reason, says) = if levels.contains(&level) {
        ("False", "Found", format!("references the PriorityLevelConfiguration object named {level:?} and it exists"))
    } else {
        (
            "True",
            "NotFound",
            format!("references the PriorityLevelConfiguration object named {level:?} but there is no such object"),
        )
    };
    let message = format!("This FlowSchema {says}");
    let there = schema.list("status.conditions").iter().find(|condition| condition.str("type") == "Dangling");
    if there.is_some_and(|there| there.str("status") == status && there.str("message") == message) {
        return None;
    }
    let condition = tree! {
        "type" => "Dangling", "status" => status, "reason" => reason, "message" => message,
        "lastTransitionTime" => time::format_seconds(now),
    };
    let name = schema.str("metadata.name").to_string();
    let tree = tree! {
        "kind" => "FlowSchema", "apiVersion" => API_VERSION, "metadata" => tree! { "name" => &name },
        "status" => tree! { "conditions" => list![condition] },
    };
    Some(StatusChange { group: GROUP, plural: "flowschemas", name, manager: CONSUMER, tree })
}

/// Updates the status at each change of a schema or a level, until the server drains.
pub(crate) async fn keep_status(server: Arc<Server>) {
    let Some(mut changes) = Changes::of(&server.registry.storage.caches, server.closing.subscribe()) else { return };
    loop {
        // A schema that was deleted meanwhile is not a failure; the next change updates the rest.
        if let Err(status) = change(&server, status_changes(&server)).await {
            tracing::debug!(%status.message, "failed to update FlowSchema status");
        }
        if !changes.next().await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_written_once() {
        let mut schema = objects().pop().expect("a schema").tree;
        let found = dangling(&schema, &["catch-all"], 0).expect("nothing is said yet");
        schema.set("status", found.tree.at("status").clone());
        assert!(dangling(&schema, &["catch-all"], 1).is_none());
        let lost = dangling(&schema, &[], 1).expect("the level is deleted");
        assert_eq!(lost.tree.list("status.conditions")[0].str("status"), "True");
    }
}
