//! The targets of the API's webhook configurations: `clientConfig` names a URL, or a service of the cluster, which is
//! called at one of its ready endpoints and must present a certificate with the service's name.

use std::time::Duration;

use api::Tree;
use http::Method;

use super::error::Failure;
use super::{CalloutResponse, Client, Error, Login, Logins, Trust, Url, UrlError};
use crate::outbound::addresses::proxyable_address;
use crate::outbound::endpoints::{self, ServiceError};
use crate::outbound::tunnels::Dialer;

/// A `clientConfig`, compiled.
pub(crate) struct Target {
    client: Client,
    url: Url,
    service: Option<Service>,
}

struct Service {
    namespace: String,
    name: String,
    port: i64,
}

/// A `clientConfig` that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("caBundle: {0}")]
    CaBundle(#[from] api::base64::DecodeError),
    #[error("unable to load root certificates: {0}")]
    Certificates(String),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl Target {
    /// Reads a `clientConfig`.
    pub(crate) fn new(config: &Tree, logins: &Logins) -> Result<Target, TargetError> {
        let trust = match config.str("caBundle") {
            "" => Trust::System,
            bundle => {
                let pem = api::base64::decode(bundle)?;
                Trust::pem(&pem).map_err(|error| TargetError::Certificates(error.to_string()))?
            }
        };
        let service = config.has("service").then(|| Service::new(config.at("service")));
        let url = match &service {
            Some(service) => service.url(config.str("service.path"))?,
            None => Url::parse(config.str("url"))?,
        };
        let login = logins.find(&format!("{}:{}", url.host_name(), url.port));
        let client = Login::client(login, &trust)?;
        Ok(Target { client, url, service })
    }

    /// Sends JSON; the URL contains the timeout.
    pub(crate) async fn post_json(
        &self,
        dialer: &Dialer,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<CalloutResponse, Error> {
        let url = self.url.clone().with_query("timeout", &format!("{}s", timeout.as_secs()));
        let Some(service) = &self.service else { return self.client.post_json(&url, body, timeout).await };
        let found = endpoints::for_service(&dialer.storage, &service.namespace, &service.name, service.port);
        let found = match found {
            Ok(at) => resolve(at).await,
            Err(why) => Err(why),
        };
        match found {
            Ok(at) => self.client.post_json_at(&url, (at, dialer), body, timeout).await,
            Err(why) => Err(Error { method: Method::POST, url: url.to_string(), failure: Failure::Service(why) }),
        }
    }
}

/// An external name is resolved once, and must not lead to the server itself.
async fn resolve((host, port): (String, u16)) -> Result<(String, u16), ServiceError> {
    let refused = || ServiceError::Address(host.clone());
    let found = tokio::net::lookup_host((host.as_str(), port)).await.map_err(|_| refused())?;
    let address = proxyable_address(&found.collect::<Vec<_>>()).ok_or_else(refused)?;
    Ok((address.ip().to_string(), address.port()))
}

impl Service {
    fn new(reference: &Tree) -> Service {
        Service {
            namespace: reference.str("namespace").to_string(),
            name: reference.str("name").to_string(),
            port: reference.int("port").unwrap_or(443),
        }
    }

    fn url(&self, path: &str) -> Result<Url, UrlError> {
        let slash = if path.starts_with('/') { "" } else { "/" };
        Url::parse(&format!("https://{}.{}.svc:{}{slash}{path}", self.name, self.namespace, self.port))
    }
}
