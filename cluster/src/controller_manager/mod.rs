//! `kube-controller-manager`: the controllers alone, with upstream's flags. They run while this process holds the
//! lease.

pub mod flags;
mod gates;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use client::Random;
use controllers::{Environment, Options, Signer, Signers};
use stdx::sync::RwLock;
use store::BoxFuture;

use crate::component::{self, ComponentContext, ComponentHandle, ComponentWork};
use crate::error::{Error, Result};
use flags::{Flags, SigningFiles};

const NAME: &str = "kube-controller-manager";

/// Starts the controller manager with its flags.
pub async fn run(flags: Flags) -> Result<ComponentHandle> {
    check(&flags)?;
    let options = Arc::new(options(&flags)?);
    let Flags { common, controllers, use_service_account_credentials: own_accounts, .. } = flags;
    let make = |tools: &ComponentContext| {
        let running = RwLock::default();
        Ok(Manager { tools: tools.clone(), options, chosen: controllers, own_accounts, running })
    };
    component::run(common, make).await
}

struct Manager {
    tools: ComponentContext,
    options: Arc<Options>,
    chosen: Vec<String>,
    /// Whether each controller acts as its own account.
    own_accounts: bool,
    /// The controllers, while they run.
    running: RwLock<Option<Arc<controllers::Handle>>>,
}

impl Manager {
    fn running(&self) -> Option<Arc<controllers::Handle>> {
        self.running.read().clone()
    }

    fn set(&self, running: Option<Arc<controllers::Handle>>) {
        *self.running.write() = running;
    }
}

impl ComponentWork for Manager {
    fn start(&self) -> Result<()> {
        let (tools, own_accounts) = (self.tools.clone(), self.own_accounts);
        // One without an account acts as the manager itself.
        let writer = move |account: &'static str| match own_accounts && !account.is_empty() {
            true => tools.client_as(account),
            false => tools.client(),
        };
        let environment = Environment {
            // Some write as the manager itself.
            reader: self.tools.client(),
            writer: Box::new(writer),
            options: self.options.clone(),
            clock: self.tools.clock.clone(),
            metrics: self.tools.metrics.clone(),
            seed: Random::fresh_seed(),
        };
        let refused = |why| Error::Flags(vec![format!("--controllers: {why}")]);
        self.set(Some(Arc::new(controllers::start(environment, &self.chosen).map_err(refused)?)));
        Ok(())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let running = self.running();
            self.set(None);
            if let Some(running) = running {
                running.stop().await;
            }
        })
    }

    fn abort(&self) {
        if let Some(running) = self.running() {
            running.abort();
        }
    }

    /// A process that waits for the lease is healthy.
    fn checks(&self, _root: &str) -> Vec<(&'static str, bool)> {
        let controllers = self.running().map(|running| running.health()).unwrap_or_default();
        std::iter::once(("leaderElection", true)).chain(controllers).collect()
    }

    fn metrics(&self) -> String {
        self.tools.metrics.render()
    }
}

/// Checks that the flags do not contradict each other.
fn check(flags: &Flags) -> Result<()> {
    let mut errors = flags.common.check();
    if flags.options.allocate_node_cidrs && flags.options.cluster_cidr.is_empty() {
        errors.push("--allocate-node-cidrs needs --cluster-cidr".to_string());
    }
    errors.extend(check_signers(flags));
    if errors.is_empty() { Ok(()) } else { Err(Error::Flags(errors)) }
}

fn check_signers(flags: &Flags) -> Option<String> {
    let pairs = [
        &flags.signing,
        &flags.kubelet_serving,
        &flags.kubelet_client,
        &flags.kube_apiserver_client,
        &flags.legacy_unknown,
    ];
    let is_half = |files: &&SigningFiles| files.certificate.is_some() != files.key.is_some();
    pairs.iter().any(is_half).then(|| "the certificate and the key of a signer must be set together".to_string())
}

fn read(path: Option<&PathBuf>) -> Result<String> {
    path.map_or_else(|| Ok(String::new()), |path| fs::read_to_string(path).map_err(Error::file(path)))
}

/// The options of controllers inside of `up`, whose client is in this process.
pub fn read_options(flags: &Flags) -> Result<Options> {
    let errors: Vec<String> = flags.common.check_values().into_iter().chain(check_signers(flags)).collect();
    if errors.is_empty() { options(flags) } else { Err(Error::Flags(errors)) }
}

/// The options of the controllers: the flags, and the files that they name.
fn options(flags: &Flags) -> Result<Options> {
    let signer = |files: &SigningFiles| -> Result<Option<Signer>> {
        if files.certificate.is_none() {
            return Ok(None);
        }
        Ok(Some(Signer { certificate: read(files.certificate.as_ref())?, key: read(files.key.as_ref())? }))
    };
    let all = signer(&flags.signing)?;
    let one = |files: &SigningFiles| Ok::<_, Error>(signer(files)?.or_else(|| all.clone()));
    Ok(Options {
        root_ca: read(flags.root_ca_file.as_ref())?,
        service_account_private_key: read(flags.service_account_private_key_file.as_ref())?,
        cluster_signing: Signers {
            kubelet_serving: one(&flags.kubelet_serving)?,
            kubelet_client: one(&flags.kubelet_client)?,
            kube_apiserver_client: one(&flags.kube_apiserver_client)?,
            legacy_unknown: one(&flags.legacy_unknown)?,
        },
        ..flags.options.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_incomplete_flags() {
        type Change = fn(&mut Flags);
        let cases: [(Change, &str); 4] = [
            (|_| {}, "--kubeconfig FILE is required"),
            (
                |flags| flags.common.timing.lease_duration = std::time::Duration::from_secs(1),
                "--leader-elect-lease-duration must be",
            ),
            (|flags| flags.options.allocate_node_cidrs = true, "--allocate-node-cidrs needs --cluster-cidr"),
            (|flags| flags.signing.key = Some("x".into()), "must be set together"),
        ];
        for (change, want) in cases {
            let mut flags = Flags::default();
            change(&mut flags);
            let text = check(&flags).err().map(|error| error.describe()).unwrap_or_default();
            assert!(text.contains(want), "{text}");
        }
    }
}
