//! The connections to the endpoints of an etcd cluster. All calls use one endpoint until it fails; then all use the
//! next one. Each process starts with another endpoint, which spreads the load.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::Config;
use super::client::cause;
use crate::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Detects a dead peer. etcd closes connections with pings more often than every 5 s.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Channels {
    all: Vec<Channel>,
    current: AtomicUsize,
}

/// A channel, and its number for `Channels::leave`.
#[derive(Clone)]
pub(super) struct NumberedChannel {
    pub channel: Channel,
    number: usize,
}

impl Channels {
    pub(super) fn new(config: &Config) -> Result<Channels> {
        let tls = tls(config)?;
        let channel = |address: &String| Ok(endpoint(address, tls.as_ref())?.connect_lazy());
        let all: Vec<Channel> = config.endpoints.iter().map(channel).collect::<Result<_>>()?;
        if all.is_empty() {
            return Err(Error::Unavailable("no etcd endpoint is configured".to_owned()));
        }
        let current = AtomicUsize::new(std::process::id() as usize % all.len());
        Ok(Channels { all, current })
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn current(&self) -> NumberedChannel {
        let number = self.current.load(Ordering::Relaxed);
        // The number is always one of the channels.
        let channel = self.all.get(number).unwrap_or(&self.all[0]).clone();
        NumberedChannel { channel, number }
    }

    /// A call on this channel has failed: later calls use the next one. Calls that fail together change it once.
    pub(super) fn leave(&self, failed: &NumberedChannel) {
        let next = (failed.number + 1) % self.all.len();
        let _ = self.current.compare_exchange(failed.number, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn endpoint(address: &str, tls: Option<&ClientTlsConfig>) -> Result<Endpoint> {
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| unusable(address, &error))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(Some(4 << 20))
        .initial_connection_window_size(Some(16 << 20))
        .tcp_nodelay(true);
    match tls.filter(|_| address.starts_with("https:")) {
        Some(tls) => endpoint.tls_config(tls.clone()).map_err(|error| unusable(address, &error)),
        None => Ok(endpoint),
    }
}

fn tls(config: &Config) -> Result<Option<ClientTlsConfig>> {
    if config.ca_file.is_none() && config.cert_file.is_none() {
        return Ok(None);
    }
    let mut tls = ClientTlsConfig::new();
    if let Some(path) = &config.ca_file {
        tls = tls.ca_certificate(Certificate::from_pem(read(path)?));
    }
    if let (Some(cert), Some(key)) = (&config.cert_file, &config.key_file) {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(tls))
}

fn read(path: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::Io { what: format!("cannot read {}", path.display()), source })
}

fn unusable(address: &str, error: &dyn std::error::Error) -> Error {
    Error::Unavailable(format!("{address}: {}", cause(error)))
}
