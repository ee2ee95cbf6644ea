//! Populates service account token secrets, deletes them with their accounts, and removes references to deleted
//! secrets. No secrets are generated: pods use bound tokens that expire.

mod legacy;
mod plan;

use std::sync::Arc;

use api::Tree;
use client::{DeleteOptions, Error, Index, Resource, Result, Selection, Store, key, split};

use crate::support::done_if_not_found;
use crate::support::keys::{Key, SignatureEncoding};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::Action;

pub(crate) use legacy::start as start_legacy_cleaner;

const SECRETS: Resource = Resource::core("secrets");
const ACCOUNTS: Resource = Resource::core("serviceaccounts");
const TOKENS: Selection =
    Selection { resource: SECRETS, query: "fieldSelector=type%3Dkubernetes.io%2Fservice-account-token" };

/// Secrets by their account.
const BY_ACCOUNT: Index = Index {
    name: "account",
    values: |secret| vec![format!("{}/{}", secret.str("metadata.namespace"), plan::account_of(secret))],
};
/// Accounts by the secrets they reference.
const BY_SECRET: Index = Index {
    name: "secret",
    values: |account| {
        let namespace = account.str("metadata.namespace");
        account.list("secrets").iter().map(|secret| format!("{namespace}/{}", secret.str("name"))).collect()
    },
};

struct Controller {
    secrets: Arc<Store>,
    accounts: Arc<Store>,
    key: Key,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let key = Key::read(&context.options.service_account_private_key, SignatureEncoding::Fixed);
    let key = key
        .inspect_err(
            |error| tracing::warn!(%error, "failed to load the service account key, token secrets are not populated"),
        )
        .ok()?;
    let (secrets, accounts) = (setup.informer(TOKENS), setup.informer(Selection::all(ACCOUNTS)));
    secrets.index_by(BY_ACCOUNT);
    accounts.index_by(BY_SECRET);
    let queue = context.queue.clone();
    secrets.on_change(move |change| queue.add(change.key.clone()));
    let (queue, tokens) = (context.queue.clone(), secrets.store().clone());
    accounts.on_change(move |change| {
        // A different account of the same name invalidates existing tokens too.
        let uid = |account: Option<&Tree>| account.map(|account| account.str("metadata.uid").to_string());
        if uid(change.old.as_deref()) != uid(change.new.as_deref()) {
            tokens.find_keys(BY_ACCOUNT, &change.key).into_iter().for_each(|key| queue.add(key));
        }
    });
    let (secrets, accounts) = (secrets.store().clone(), accounts.store().clone());
    Some(Box::new(Controller { secrets, accounts, key, context: context.clone() }))
}

impl Controller {
    async fn sync(&self, object_key: &str) -> Result<Outcome> {
        let (namespace, name) = split(object_key);
        let Some(secret) = self.secrets.get(object_key) else {
            return self.remove_references(object_key).await;
        };
        let account = self.account(&secret).await?;
        let root_ca = &self.context.options.root_ca;
        let client = &self.context.client;
        let written = match (plan::plan_action(&secret, account.as_deref(), root_ca), &account) {
            (Action::Nothing, _) | (Action::Fill, None) => return Ok(Outcome::Done),
            (Action::End, _) => client.delete(SECRETS, namespace, name, DeleteOptions::of(&secret)).await,
            (Action::Fill, Some(account)) => {
                let filled = plan::filled(&secret, account, root_ca, &self.key).map_err(Error::failed)?;
                client.update(SECRETS, namespace, name, &filled).await
            }
        };
        // A conflict is an error: the key is retried when the informer is up to date.
        done_if_not_found(written)
    }

    /// The account of a secret. A missing one is read from the server: it may have just been created.
    async fn account(&self, secret: &Tree) -> Result<Option<Arc<Tree>>> {
        let (namespace, name) = (secret.str("metadata.namespace"), plan::account_of(secret));
        let known = self.accounts.get(&key(namespace, name)).filter(|account| plan::belongs_to(secret, account));
        if known.is_some() || name.is_empty() {
            return Ok(known);
        }
        match self.context.client.get(ACCOUNTS, namespace, name).await {
            Err(error) if error.is_not_found() => Ok(None),
            result => result.map(|account| Some(Arc::new(account))),
        }
    }

    /// Removes references to a deleted secret.
    async fn remove_references(&self, object_key: &str) -> Result<Outcome> {
        let (namespace, secret) = split(object_key);
        for account in self.accounts.find(BY_SECRET, object_key) {
            let Some(changed) = plan::without(&account, secret) else { continue };
            match self.context.client.update(ACCOUNTS, namespace, account.str("metadata.name"), &changed).await {
                Err(error) if error.is_not_found() => {}
                result => drop(result?),
            }
        }
        Ok(Outcome::Done)
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
