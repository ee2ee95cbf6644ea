//! Fills the secrets that hold tokens of service accounts, deletes them with their accounts, and takes
//! what is gone out of the accounts. Nobody gets such a secret unasked: pods have tokens that end.

mod legacy;
mod plan;

use std::sync::Arc;

use api::Tree;
use client::{DeleteOptions, Error, Index, Resource, Result, Selection, Store, key, split};

use crate::support::keys::{Form, Key};
use crate::{Context, Outcome, Reconcile, Reconciling, Setup};
use plan::Need;

pub use legacy::start as start_legacy_cleaner;

const SECRETS: Resource = Resource::core("secrets");
const ACCOUNTS: Resource = Resource::core("serviceaccounts");
const TOKENS: Selection =
    Selection { resource: SECRETS, query: "fieldSelector=type%3Dkubernetes.io%2Fservice-account-token" };

/// Secrets by the account that they are for.
const BY_ACCOUNT: Index = Index {
    name: "account",
    values: |secret| vec![format!("{}/{}", secret.str("metadata.namespace"), plan::account_of(secret))],
};
/// Accounts by the secrets that they name.
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

pub fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let key = Key::read(&context.options.service_account_private_key, Form::Fixed);
    let key = key.inspect_err(|error| tracing::warn!(%error, "no secret gets a token")).ok()?;
    let (secrets, accounts) = (setup.informer(TOKENS), setup.informer(Selection::all(ACCOUNTS)));
    secrets.index_by(BY_ACCOUNT);
    accounts.index_by(BY_SECRET);
    let queue = context.queue.clone();
    secrets.on_change(move |change| queue.add(change.key.clone()));
    let (queue, tokens) = (context.queue.clone(), secrets.store().clone());
    accounts.on_change(move |change| {
        // Also another account of the same name ends what is there.
        let uid = |account: Option<&Tree>| account.map(|account| account.str("metadata.uid").to_string());
        if uid(change.old.as_deref()) != uid(change.new.as_deref()) {
            tokens.find_keys(BY_ACCOUNT, &change.key).into_iter().for_each(|key| queue.add(key));
        }
    });
    let (secrets, accounts) = (secrets.store().clone(), accounts.store().clone());
    Some(Box::new(Controller { secrets, accounts, key, context: context.clone() }))
}

impl Controller {
    async fn bring(&self, place: &str) -> Result<Outcome> {
        let (namespace, name) = split(place);
        let Some(secret) = self.secrets.get(place) else {
            return self.let_go(place).await;
        };
        let account = self.account(&secret).await?;
        let root_ca = &self.context.options.root_ca;
        let client = &self.context.client;
        let written = match (plan::need(&secret, account.as_deref(), root_ca), &account) {
            (Need::Nothing, _) | (Need::Fill, None) => return Ok(Outcome::Done),
            (Need::End, _) => client.delete(SECRETS, namespace, name, DeleteOptions::of(&secret)).await,
            (Need::Fill, Some(account)) => {
                let filled = plan::filled(&secret, account, root_ca, &self.key).map_err(Error::Failed)?;
                client.update(SECRETS, namespace, name, &filled).await
            }
        };
        match written {
            // A conflict is a failure: it comes again when the informer shows what is there now.
            Err(error) if error.is_not_found() => Ok(Outcome::Done),
            result => result.map(|_| Outcome::Done),
        }
    }

    /// The account of a secret. One that is not known is asked for: it may have come a moment ago.
    async fn account(&self, secret: &Tree) -> Result<Option<Arc<Tree>>> {
        let (namespace, name) = (secret.str("metadata.namespace"), plan::account_of(secret));
        let known = self.accounts.get(&key(namespace, name)).filter(|account| plan::is_of(secret, account));
        if known.is_some() || name.is_empty() {
            return Ok(known);
        }
        match self.context.client.get(ACCOUNTS, namespace, name).await {
            Err(error) if error.is_not_found() => Ok(None),
            result => result.map(|account| Some(Arc::new(account))),
        }
    }

    /// A secret is gone: nobody names it any more.
    async fn let_go(&self, place: &str) -> Result<Outcome> {
        let (namespace, secret) = split(place);
        for account in self.accounts.find(BY_SECRET, place) {
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
    fn reconcile<'a>(&'a self, key: &'a str) -> Reconciling<'a> {
        Box::pin(self.bring(key))
    }
}
