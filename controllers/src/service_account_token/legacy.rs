//! Auto-generated token secrets of older versions: unused ones are first marked as invalid, and deleted after the
//! same period again.

use std::sync::Arc;
use std::time::Duration;

use api::{Tree, time, tree};
use client::{DeleteOptions, Key, Patch, Resource, Result, Selection, Store, key};

use super::{ACCOUNTS, SECRETS, TOKENS, plan};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};

const DAY: Duration = Duration::from_secs(24 * 3600);
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

struct Controller {
    secrets: Arc<Store>,
    accounts: Arc<Store>,
    pods: Arc<Store>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let store = |selection| setup.informer(selection).store().clone();
    let controller = Controller {
        secrets: store(TOKENS),
        accounts: store(Selection::all(ACCOUNTS)),
        pods: store(Selection::all(Resource::core("pods"))),
        context: context.clone(),
    };
    context.queue.add(Key::from("all"));
    Some(Box::new(controller))
}

#[derive(Debug, PartialEq)]
enum CleanupAction {
    Keep,
    /// Invalid from this day on.
    Mark(String),
    Delete,
}

/// The date of a time, which can be compared as text.
fn day(seconds: i64) -> String {
    time::format_seconds(seconds).chars().take("2026-01-01".len()).collect()
}

fn seconds_of(day: &str) -> Option<i64> {
    time::parse(&format!("{day}T00:00:00Z")).ok().map(|time| time.seconds)
}

/// `now` and `period` are in seconds; `account` is the secret's account if it exists.
fn decide(secret: &Tree, account: Option<&Tree>, is_mounted: bool, now: i64, period: i64) -> CleanupAction {
    let oldest = day(now - period);
    let labels = secret.map("metadata.labels");
    let made = time::parse(secret.str("metadata.creationTimestamp")).map_or(now, |time| time.seconds);
    let last_used = labels.str(LAST_USED);
    let is_used = !last_used.is_empty() && (seconds_of(last_used).is_none() || last_used >= oldest.as_str());
    // A secret that its account does not list was created manually.
    let name = secret.str("metadata.name");
    let is_generated = account.is_some_and(|it| it.list("secrets").iter().any(|other| other.str("name") == name));
    let is_new = made >= now - period || secret.at("metadata").has("deletionTimestamp");
    if is_new || is_used || !is_generated || is_mounted {
        return CleanupAction::Keep;
    }
    match labels.str(INVALID_SINCE) {
        since if seconds_of(since).is_none() => CleanupAction::Mark(day(now)),
        since if since >= oldest.as_str() => CleanupAction::Keep,
        _ => CleanupAction::Delete,
    }
}

/// Whether a pod contains the name anywhere; false positives are harmless.
fn mentions(tree: &Tree, name: &str) -> bool {
    match tree {
        Tree::Str(text) => text == name,
        Tree::List(items) => items.iter().any(|item| mentions(item, name)),
        Tree::Map(map) => map.iter().any(|(_, value)| mentions(value, name)),
        _ => false,
    }
}

impl Controller {
    async fn sync(&self) -> Result<Outcome> {
        let now = self.context.now_seconds();
        let period = self.context.options.legacy_service_account_token_clean_up_period;
        let period = i64::try_from(period.as_secs()).unwrap_or(i64::MAX / 4);
        if self.secrets.is_empty() || !self.is_tracked_for(period, now).await? {
            return Ok(Outcome::RequeueAfter(DAY));
        }
        for secret in self.secrets.all() {
            self.sync_one(&secret, now, period).await?;
        }
        Ok(Outcome::RequeueAfter(DAY))
    }

    /// Usage is known from the day after tracking started.
    async fn is_tracked_for(&self, period: i64, now: i64) -> Result<bool> {
        let map = self.context.client.get(Resource::core("configmaps"), "kube-system", TRACKING).await?;
        let since = seconds_of(map.map("data").str("since"));
        Ok(since.is_some_and(|since| since + 24 * 3600 + period <= now))
    }

    async fn sync_one(&self, secret: &Tree, now: i64, period: i64) -> Result<()> {
        let (namespace, name) = (secret.str("metadata.namespace"), secret.str("metadata.name"));
        let account = self.accounts.get(&key(namespace, plan::account_of(secret)));
        let account = account.filter(|account| plan::belongs_to(secret, account));
        let is_mounted = || self.pods.in_namespace(namespace).iter().any(|pod| mentions(pod.at("spec"), name));
        let client = &self.context.client;
        let written = match decide(secret, account.as_deref(), is_mounted(), now, period) {
            CleanupAction::Keep => return Ok(()),
            CleanupAction::Mark(today) => {
                let metadata =
                    tree! { "uid" => secret.str("metadata.uid"), "labels" => tree! { INVALID_SINCE => today } };
                let patch = tree! { "metadata" => metadata };
                client.patch(SECRETS, namespace, name, "", Patch::Merge(&patch)).await
            }
            CleanupAction::Delete => {
                let version = Some(secret.str("metadata.resourceVersion"));
                let options = DeleteOptions { resource_version: version, ..DeleteOptions::of(secret) };
                client.delete(SECRETS, namespace, name, options).await
            }
        };
        match written {
            Err(error) if error.is_not_found() => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, _: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync())
    }
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    const YEAR: i64 = 365 * 24 * 3600;
    const NOW: i64 = 60 * YEAR;

    #[test]
    fn deletes_unused_secrets_in_two_steps() {
        let check = |made: i64, last_used: &str, invalid: &str, want: CleanupAction| {
            let mut labels = tree! {};
            for (label, value) in [(LAST_USED, last_used), (INVALID_SINCE, invalid)] {
                if !value.is_empty() {
                    labels.set(label, value);
                }
            }
            let metadata =
                tree! { "name" => "s", "creationTimestamp" => time::format_seconds(made), "labels" => labels };
            let secret = tree! { "metadata" => metadata };
            let account = tree! { "secrets" => list![tree! { "name" => "s" }] };
            assert_eq!(decide(&secret, Some(&account), false, NOW, YEAR), want, "{last_used} {invalid}");
            assert_eq!(decide(&secret, Some(&account), true, NOW, YEAR), CleanupAction::Keep);
            assert_eq!(decide(&secret, Some(&tree! {}), false, NOW, YEAR), CleanupAction::Keep);
            assert_eq!(decide(&secret, None, false, NOW, YEAR), CleanupAction::Keep);
        };
        let (old, recent) = (day(NOW - 3 * YEAR), day(NOW - YEAR / 2));
        check(NOW - YEAR / 2, "", "", CleanupAction::Keep);
        check(0, "", "", CleanupAction::Mark(day(NOW)));
        check(0, &recent, "", CleanupAction::Keep);
        check(0, "yesterday", "", CleanupAction::Keep);
        check(0, &old, "", CleanupAction::Mark(day(NOW)));
        check(0, &old, "nonsense", CleanupAction::Mark(day(NOW)));
        check(0, &old, &recent, CleanupAction::Keep);
        check(0, &old, &old, CleanupAction::Delete);
    }

    #[test]
    fn finds_secrets_in_pods() {
        let volume = tree! { "secret" => tree! { "secretName" => "s" } };
        let spec = tree! { "volumes" => list![volume] };
        assert!(mentions(&spec, "s") && !mentions(&spec, "t"));
    }
}
