//! `kube-proxy`: the service proxy alone, with upstream's flags and configuration.

pub mod flags;
mod settings;

use std::sync::Arc;

use client::Metrics;
use proxy::runner::{self, Environment, StartError};
use stdx::clock::SystemClock;
use tokio::sync::watch;

use crate::component::follow::FileFollower;
use crate::component::remote::Remote;
use crate::error::{Error, Result};
use flags::Flags;

/// The name of the component.
pub const NAME: &str = "kube-proxy";

/// A running proxy, and the reloading of its credentials.
pub struct ProxyProcess {
    proxy: runner::ProxyHandle,
    stop: watch::Sender<bool>,
}

impl ProxyProcess {
    /// Waits until the proxy ends without a stop.
    pub async fn ended(&mut self) -> Result<()> {
        self.proxy.ended().await;
        Err(Error::Ended("the service proxy ended unexpectedly".to_string()))
    }

    /// Stops; the rules stay, and no connection is interrupted.
    pub async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        self.proxy.stop().await;
        Ok(())
    }
}

/// Starts the proxy.
pub async fn run(flags: Flags) -> Result<ProxyProcess> {
    let settings = settings::read(flags)?;
    let mut follow = FileFollower::default();
    let remote = Remote::open(NAME, settings.kubeconfig.as_deref(), &mut follow)?.limited(settings.limit);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(follow.run(stopped));
    let environment = Environment {
        client: remote.client(),
        node_client: None,
        configuration: settings.configuration,
        metrics: Metrics::default(),
        clock: Arc::new(SystemClock),
    };
    let proxy = runner::start(environment).await.map_err(start_error)?;
    Ok(ProxyProcess { proxy, stop })
}

/// Deletes all rules if --cleanup is set; returns whether it is.
pub fn cleanup(flags: &Flags) -> Result<bool> {
    if !flags.cleanup {
        return Ok(false);
    }
    let configuration = settings::read_without_server(flags)?;
    runner::cleanup(&configuration).map_err(|error| start_error(StartError::Open(error)))?;
    Ok(true)
}

/// An error of the proxy with its causes.
pub fn start_error(error: StartError) -> Error {
    Error::Ended(stdx::error::chain(&error))
}
