//! Requests to the cluster's API server, as the service account of the pod.

use std::sync::Arc;

use api::Tree;
use bytes::Bytes;
use http_body_util::Full;
use http_client::{Address, Trust};
use hyper::Request;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use rustls::ClientConfig;

use crate::Result;

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MAX_RESPONSE_BYTES: usize = 1 << 20;

pub(crate) struct Cluster {
    address: Address,
    tls: Arc<ClientConfig>,
}

impl Cluster {
    /// The API server's address from the environment, and its CA from the mounted account.
    pub(crate) fn from_pod() -> Result<Cluster> {
        let (host, port) = (std::env::var("KUBERNETES_SERVICE_HOST")?, std::env::var("KUBERNETES_SERVICE_PORT")?);
        let trust = Trust::pem(&std::fs::read(format!("{ACCOUNT}/ca.crt"))?)?;
        let tls = Arc::new(http_client::tls::config(&trust, None, &[http_client::tls::HTTP1])?);
        Ok(Cluster { address: Address::new(true, &host, port.parse()?), tls })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Tree> {
        self.send("GET", path, Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Tree) -> Result<Tree> {
        self.send("POST", path, Bytes::from(api::json::encode(object, None))).await
    }

    async fn send(&self, method: &str, path: &str, body: Bytes) -> Result<Tree> {
        // Read each time: the kubelet rotates it.
        let token = std::fs::read_to_string(format!("{ACCOUNT}/token"))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.address.host)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .body(Full::new(body))?;
        let stream = http_client::connect(&self.address, &self.tls).await?;
        let response = http_client::send_once(stream, request).await?;
        let code = response.status();
        let body = http_client::body::read(response.into_body(), MAX_RESPONSE_BYTES).await?;
        let object = api::json::decode(&body).map_err(|error| error.to_string())?;
        match code.is_success() {
            true => Ok(object),
            false => Err(format!("{method} {path}: {code}: {}", object.str("message")).into()),
        }
    }
}
