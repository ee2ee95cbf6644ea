//! The webhooks of all configurations, made ready for calls once for each change of a configuration.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::selector::{self, Selector};
use arc_swap::ArcSwapOption;

use crate::outbound::callout::{Logins, Target, TargetError};
use crate::registry::Registry;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Mutating,
    Validating,
}

impl Side {
    fn storage(self) -> &'static str {
        match self {
            Side::Mutating => "mutatingwebhookconfigurations",
            Side::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// One webhook of one configuration.
pub(crate) struct Hook {
    /// Unique among all webhooks.
    pub id: String,
    pub configuration: String,
    pub name: String,
    pub rules: Vec<Tree>,
    /// Also called for another version of the same object.
    pub equivalent: bool,
    pub namespace_selector: Result<Selector, selector::Error>,
    pub object_selector: Result<Selector, selector::Error>,
    pub ignore_failure: bool,
    pub timeout: Duration,
    pub reinvoke: bool,
    /// Of the versions of AdmissionReview that it takes, the first that is known here.
    pub review_version: Option<&'static str>,
    /// Where it is, or why it cannot be called.
    pub target: Result<Target, Arc<TargetError>>,
    /// A stored condition that cannot be evaluated: then nothing passes.
    pub has_conditions: bool,
}

/// The hooks of both sides, as of a revision of their configurations.
#[derive(Default)]
pub(crate) struct Compiled {
    mutating: ArcSwapOption<(u64, Arc<Vec<Hook>>)>,
    validating: ArcSwapOption<(u64, Arc<Vec<Hook>>)>,
}

impl Compiled {
    /// The hooks of a side by the names of their configurations; None where there are none.
    pub(crate) fn of(&self, registry: &Registry, side: Side) -> Option<Arc<Vec<Hook>>> {
        let slot = match side {
            Side::Mutating => &self.mutating,
            Side::Validating => &self.validating,
        };
        let cache = registry.storage.caches.get(side.storage())?;
        let revision = cache.changed();
        let kept = slot.load();
        if let Some(kept) = kept.as_ref().filter(|kept| kept.0 == revision) {
            return Some(kept.1.clone()).filter(|hooks| !hooks.is_empty());
        }
        let settings = &registry.admission.settings;
        let logins = match side {
            Side::Mutating => &settings.mutating_logins,
            Side::Validating => &settings.validating_logins,
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
    let selector = |key: &str| Selector::from_object(webhook.at(key));
    let name = webhook.str("name");
    Hook {
        id: format!("{configuration}/{name}/{index}"),
        configuration: configuration.to_string(),
        name: name.to_string(),
        rules: webhook.list("rules").to_vec(),
        equivalent: webhook.str("matchPolicy") != "Exact",
        namespace_selector: selector("namespaceSelector"),
        object_selector: selector("objectSelector"),
        ignore_failure: webhook.str("failurePolicy") == "Ignore",
        timeout: Duration::from_secs(webhook.int("timeoutSeconds").map_or(10, |seconds| seconds.clamp(1, 30) as u64)),
        reinvoke: webhook.str("reinvocationPolicy") == "IfNeeded",
        review_version: review_version(webhook.list("admissionReviewVersions")),
        target: Target::new(webhook.at("clientConfig"), logins).map_err(Arc::new),
        has_conditions: !webhook.list("matchConditions").is_empty(),
    }
}

fn review_version(versions: &[Tree]) -> Option<&'static str> {
    versions.iter().find_map(|version| ["v1", "v1beta1"].into_iter().find(|known| version.as_str() == Some(known)))
}
