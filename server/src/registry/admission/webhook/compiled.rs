//! The webhooks of all configurations, compiled once for each change of a configuration.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use arc_swap::ArcSwapOption;

use crate::outbound::callout::{Logins, Target, TargetError};
use crate::registry::Registry;
use crate::registry::admission::expressions::{Expression, compile_conditions};
use crate::registry::admission::matching::Criteria;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookKind {
    Mutating,
    Validating,
}

impl WebhookKind {
    fn storage(self) -> &'static str {
        match self {
            WebhookKind::Mutating => "mutatingwebhookconfigurations",
            WebhookKind::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// One webhook of one configuration.
pub(crate) struct Hook {
    /// Unique among all webhooks.
    pub id: String,
    pub configuration: String,
    pub name: String,
    pub criteria: Criteria,
    pub ignore_failure: bool,
    pub timeout: Duration,
    pub reinvoke: bool,
    /// The first accepted version of AdmissionReview that this server supports.
    pub review_version: Option<&'static str>,
    /// The target, or why the webhook cannot be called.
    pub target: Result<Target, Arc<TargetError>>,
    /// The webhook is called only if all conditions are met.
    pub conditions: Vec<Expression>,
}

/// The hooks of both sides, as of a revision of their configurations.
#[derive(Default)]
pub(crate) struct Compiled {
    mutating: ArcSwapOption<(u64, Arc<Vec<Hook>>)>,
    validating: ArcSwapOption<(u64, Arc<Vec<Hook>>)>,
}

impl Compiled {
    /// The webhooks of a phase, by the names of their configurations; None if there are none.
    pub(crate) fn of(&self, registry: &Registry, side: WebhookKind) -> Option<Arc<Vec<Hook>>> {
        let slot = match side {
            WebhookKind::Mutating => &self.mutating,
            WebhookKind::Validating => &self.validating,
        };
        let cache = registry.storage.caches.get(side.storage())?;
        let revision = cache.changed();
        let kept = slot.load();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.0 == revision) {
            return Some(kept.1.clone()).filter(|hooks| !hooks.is_empty());
        }
        let settings = &registry.admission.settings;
        let logins = match side {
            WebhookKind::Mutating => &settings.mutating_logins,
            WebhookKind::Validating => &settings.validating_logins,
        };
        let configurations = cache.items_in("");
        let hooks: Vec<Hook> = configurations.iter().flat_map(|item| compile(&item.tree(), logins)).collect();
        let hooks = Arc::new(hooks);
        slot.store(Some(Arc::new((revision, hooks.clone()))));
        Some(hooks).filter(|hooks| !hooks.is_empty())
    }
}

fn compile(configuration: &Tree, logins: &Logins) -> Vec<Hook> {
    let name = configuration.str("metadata.name");
    let hooks = configuration.list("webhooks").iter().enumerate();
    hooks.map(|(index, webhook)| hook(name, index, webhook, logins)).collect()
}

fn hook(configuration: &str, index: usize, webhook: &Tree, logins: &Logins) -> Hook {
    let name = webhook.str("name");
    Hook {
        id: format!("{configuration}/{name}/{index}"),
        configuration: configuration.to_string(),
        name: name.to_string(),
        criteria: Criteria::new(webhook, Some(webhook.list("rules").to_vec()), Vec::new()),
        ignore_failure: webhook.str("failurePolicy") == "Ignore",
        timeout: Duration::from_secs(webhook.int("timeoutSeconds").map_or(10, |seconds| seconds.clamp(1, 30) as u64)),
        reinvoke: webhook.str("reinvocationPolicy") == "IfNeeded",
        review_version: review_version(webhook.list("admissionReviewVersions")),
        target: Target::new(webhook.at("clientConfig"), logins).map_err(Arc::new),
        conditions: compile_conditions(webhook),
    }
}

fn review_version(versions: &[Tree]) -> Option<&'static str> {
    versions.iter().find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| version.as_str() == Some(known)))
}
