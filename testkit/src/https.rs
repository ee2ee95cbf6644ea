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
use http_client::tls;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
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

    /// The same with whole responses, over HTTP/2 or HTTP/1.1.
    pub async fn serve_responses(
        serving: &CertificateAndKey,
        answer: impl Fn(&Parts, &[u8]) -> Option<Response<Full<Bytes>>> + Send + Sync + 'static,
    ) -> Https {
        Https::serve_protocols(serving, &[tls::HTTP2, tls::HTTP1], answer).await
    }

    /// The same over these protocols. Requests have the [`ConnectionNumber`] as an extension.
    pub async fn serve_protocols(
        serving: &CertificateAndKey,
        alpn: &[&[u8]],
        answer: impl Fn(&Parts, &[u8]) -> Option<Response<Full<Bytes>>> + Send + Sync + 'static,
    ) -> Https {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a port");
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().expect("an address").port()));
        let serving = credentials::serving(&Credentials { serving: serving.clone(), ..Credentials::default() });
        let serving = server::tls::server_config(serving.expect("a certificate"), &Default::default()).expect("TLS");
        let mut config = (*serving).clone();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let (acceptor, answer) = (TlsAcceptor::from(Arc::new(config)), Arc::new(answer));
        let task = tokio::spawn(async move {
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(serve_connection(ConnectionNumber(number), stream, acceptor.clone(), answer.clone()));
            }
        });
        Https { address, task }
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// The connection of a request, counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionNumber(pub usize);

async fn serve_connection(
    number: ConnectionNumber,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    answer: Arc<impl Fn(&Parts, &[u8]) -> Option<Response<Full<Bytes>>> + Send + Sync + 'static>,
) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(number);
        respond(answer.clone(), request)
    });
    let stream = TokioIo::new(stream);
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => http1::Builder::new().serve_connection(stream, service).with_upgrades().await,
    };
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
