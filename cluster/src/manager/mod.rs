//! `kube-controller-manager`: the controllers alone, told by upstream's flags what to do. They work while
//! this process holds the lease.

mod accounts;
pub mod flags;
mod follow;
mod gates;
mod port;
pub mod remote;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::election::{Election, Lock};
use client::{Clock, Events, Fence, Metrics, Random, SystemClock};
use controllers::{Environment, Options, Signer, Signers};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use flags::{Flags, SigningFiles};
use follow::Follow;
use port::Health;
use remote::Remote;

/// A manager at work.
pub struct Running {
    /// Where health and metrics are served.
    pub address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    work: JoinHandle<Result<()>>,
}

impl Running {
    /// Waits until it ends by itself, which is when it has lost its lease.
    pub async fn ended(&mut self) -> Result<()> {
        (&mut self.work).await.unwrap_or_else(|error| Err(Error::Ended(error.to_string())))
    }

    /// Lets the controllers finish what they are at and gives the lease back.
    pub async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        self.work.await.unwrap_or_else(|error| Err(Error::Ended(error.to_string())))
    }
}

pub async fn run(flags: Flags) -> Result<Running> {
    check(&flags)?;
    let options = Arc::new(options(&flags)?);
    let file = flags.kubeconfig.clone().unwrap_or_default();
    let limit = flags.kube_api_qps.map(|per_second| (per_second, flags.kube_api_burst));
    let remote = Remote::read("kubeconfig", &file)?.limited(limit);
    let mut follow = Follow::default();
    remote.follow("kubeconfig", &file, &mut follow);
    let (stop, stopped) = watch::channel(false);
    let health = Arc::new(Health::default());
    let metrics = Metrics::default();
    let address = port::serve(&flags, health.clone(), metrics.clone(), stopped.clone(), &mut follow).await?;
    tokio::spawn(follow.run(stopped.clone()));
    let manager = Manager { flags, options, remote, metrics, health, clock: Arc::new(SystemClock) };
    let work = tokio::spawn(manager.work(stopped));
    Ok(Running { address, stop, work })
}

struct Manager {
    flags: Flags,
    options: Arc<Options>,
    remote: Remote,
    metrics: Metrics,
    health: Arc<Health>,
    clock: Arc<dyn Clock>,
}

impl Manager {
    async fn work(self, mut stopped: watch::Receiver<bool>) -> Result<()> {
        if !self.flags.leader_elect {
            let controllers = self.start(None)?;
            let _ = stopped.wait_for(|stopped| *stopped).await;
            self.end(controllers).await;
            return Ok(());
        }
        let mut election = self.election();
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
            () = election.acquire() => {}
        }
        let controllers = self.start(Some(election.fence.clone()))?;
        let lost = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => false,
            () = election.keep() => true,
        };
        if lost {
            // Somebody else works by now: nothing is finished first.
            controllers.abort();
            return Err(Error::Ended("the lease is lost".to_string()));
        }
        self.end(controllers).await;
        election.release().await;
        Ok(())
    }

    async fn end(&self, controllers: Arc<controllers::Running>) {
        self.health.set(None);
        controllers.stop().await;
    }

    fn start(&self, fence: Option<Fence>) -> Result<Arc<controllers::Running>> {
        let fenced = move |client: client::Client| match &fence {
            Some(fence) => client.fenced(fence.clone()),
            None => client,
        };
        // Some write as the manager itself.
        let manager = fenced(self.remote.client());
        let own_accounts = self.flags.use_service_account_credentials;
        let remote = self.remote.clone();
        // One without an account acts as the manager itself.
        let writer = move |account: &'static str| match own_accounts && !account.is_empty() {
            true => fenced(remote.client_as(account)),
            false => fenced(remote.client()),
        };
        let environment = Environment {
            reader: manager,
            writer: Box::new(writer),
            options: self.options.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            seed: Random::fresh_seed(),
        };
        let refused = |why| Error::Flags(vec![format!("--controllers: {why}")]);
        let running = Arc::new(controllers::start(environment, &self.flags.controllers).map_err(refused)?);
        self.health.set(Some(running.clone()));
        Ok(running)
    }

    fn election(&self) -> Election {
        let random = Random::seeded(Random::fresh_seed());
        let identity = format!("{}_{:016x}{:016x}", server::hostname(), random.next(), random.next());
        let client = self.remote.client();
        let events = Events::start(self.clock.clone(), self.metrics.clone());
        Election {
            lock: Lock { namespace: self.flags.lease_namespace.clone(), name: self.flags.lease_name.clone(), identity },
            timing: self.flags.timing,
            clock: self.clock.clone(),
            random: Arc::new(random),
            recorder: events.recorder(client.clone(), "kube-controller-manager"),
            client,
            metrics: self.metrics.clone(),
            fence: Fence::default(),
            observed: Default::default(),
        }
    }
}

/// What must hold between flags.
fn check(flags: &Flags) -> Result<()> {
    let mut errors = Vec::new();
    let timing = flags.timing;
    if flags.kubeconfig.is_none() {
        errors.push("--kubeconfig must name the API server".to_string());
    }
    if timing.lease_duration <= timing.renew_deadline {
        errors.push("--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline".to_string());
    }
    if timing.renew_deadline <= timing.retry_period.mul_f64(1.2) || timing.retry_period < Duration::from_millis(1) {
        errors.push("--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period".into());
    }
    if flags.options.allocate_node_cidrs && flags.options.cluster_cidr.is_empty() {
        errors.push("--allocate-node-cidrs needs --cluster-cidr".to_string());
    }
    if flags.tls_cert_file.is_some() != flags.tls_private_key_file.is_some() {
        errors.push("--tls-cert-file and --tls-private-key-file belong together".to_string());
    }
    let pairs = [
        &flags.signing,
        &flags.kubelet_serving,
        &flags.kubelet_client,
        &flags.kube_apiserver_client,
        &flags.legacy_unknown,
    ];
    if pairs.iter().any(|files| files.certificate.is_some() != files.key.is_some()) {
        errors.push("the certificate and the key of a signer belong together".to_string());
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::Flags(errors)) }
}

fn read(path: Option<&PathBuf>) -> Result<String> {
    path.map_or_else(|| Ok(String::new()), |path| fs::read_to_string(path).map_err(Error::file(path)))
}

/// What the controllers are told: the flags, and the files that they name.
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
    fn flags_that_need_each_other_are_named() {
        type Change = fn(&mut Flags);
        let cases: [(Change, &str); 4] = [
            (|_| {}, "--kubeconfig must name"),
            (|flags| flags.timing.lease_duration = Duration::from_secs(1), "--leader-elect-lease-duration must be"),
            (|flags| flags.options.allocate_node_cidrs = true, "--allocate-node-cidrs needs --cluster-cidr"),
            (|flags| flags.signing.key = Some("x".into()), "belong together"),
        ];
        for (change, want) in cases {
            let mut flags = Flags::default();
            change(&mut flags);
            let text = check(&flags).err().map(|error| error.describe()).unwrap_or_default();
            assert!(text.contains(want), "{text}");
        }
    }
}
