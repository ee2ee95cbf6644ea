//! A small HTTPS server for tests: an identity provider or a webhook.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use cluster::pki::CertificateAndKey;
use cluster::pki::credentials::{self, Credentials};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An HTTPS server of a test.
pub struct Https {
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Https {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Https {
    /// Answers each request by path and body.
    pub async fn serve(
        serving: &CertificateAndKey,
        answer: impl Fn(&str, &[u8]) -> (u16, Vec<u8>) + Send + Sync + 'static,
    ) -> Https {
        Https::serve_some(serving, move |parts, body| Some(answer(parts.uri.path(), body))).await
    }

    /// The same on every address of the machine; None is no response, for longer than any client waits.
    pub(crate) async fn serve_some(
        serving: &CertificateAndKey,
        answer: impl Fn(&Parts, &[u8]) -> Option<(u16, Vec<u8>)> + Send + Sync + 'static,
    ) -> Https {
        Https::serve_responses(serving, move |parts, body| answer(parts, body).map(|(code, body)| plain(code, body)))
            .await
    }

    /// The same with whole responses.
    pub async fn serve_responses(
        serving: &CertificateAndKey,
        answer: impl Fn(&Parts, &[u8]) -> Option<Response<Full<Bytes>>> + Send + Sync + 'static,
    ) -> Https {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().expect("an address").port()));
        let serving = credentials::serving(&Credentials { serving: serving.clone(), ..Credentials::default() });
        let tls = server::tls::server_config(serving.expect("a certificate"), &Default::default()).expect("TLS");
        let (acceptor, answer) = (TlsAcceptor::from(tls), Arc::new(answer));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| respond(answer.clone(), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Https { address, task }
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

async fn respond(
    answer: Arc<impl Fn(&Parts, &[u8]) -> Option<Response<Full<Bytes>>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    match answer(&parts, &body) {
        Some(response) => Ok(response),
        None => std::future::pending().await,
    }
}

/// A response without headers of its own.
pub fn plain(code: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response
}
