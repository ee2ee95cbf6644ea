//! The audit annotations of webhooks, under upstream's keys.

use api::{Tree, json};

use super::compiled::{Hook, WebhookKind};
use crate::registry::admission::Attributes;

/// The key contains the index of a webhook within its phase, and the round in which it was called.
fn key(prefix: &str, attributes: &Attributes<'_>, index: usize) -> String {
    let round = if prefix.contains("validating") { 0 } else { attributes.rounds.number() };
    format!("{prefix}round_{round}_index_{index}")
}

/// The audit annotation of every called mutating webhook.
pub(super) fn mutation(attributes: &Attributes<'_>, hook: &Hook, index: usize, mutated: bool) {
    let note = format!("{},\"mutated\":{mutated}}}", start(hook));
    attributes.annotate(key("mutation.webhook.admission.k8s.io/", attributes, index), note);
}

/// A patch repeats parts of the body: it is recorded only if the policy records bodies.
pub(super) fn patch(attributes: &Attributes<'_>, hook: &Hook, index: usize, bytes: &[u8]) {
    let Some(origin) = attributes.origin else { return };
    let operations = json::decode(bytes).unwrap_or_default();
    if operations.as_list().is_none_or(<[Tree]>::is_empty) {
        return;
    }
    origin.audit.annotate_request(key("patch.webhook.admission.k8s.io/", attributes, index), || {
        let operations = json::encode(&operations, None);
        format!("{},\"patch\":{},\"patchType\":\"JSONPatch\"}}", start(hook), String::from_utf8_lossy(&operations))
    });
}

/// The call failed, and the request continues without it.
pub(crate) fn failed_open(attributes: &Attributes<'_>, hook: &Hook, index: usize, side: WebhookKind) {
    let prefix = match side {
        WebhookKind::Mutating => "failed-open.mutation.webhook.admission.k8s.io/",
        WebhookKind::Validating => "failed-open.validating.webhook.admission.k8s.io/",
    };
    attributes.annotate(key(prefix, attributes, index), &hook.name);
}

/// The start of an annotation; its fields are in upstream's order, and names need no escapes.
fn start(hook: &Hook) -> String {
    format!("{{\"configuration\":{:?},\"webhook\":{:?}", hook.configuration, hook.name)
}
