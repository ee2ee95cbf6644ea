//! The port of a component that is no API server, over TLS or plain: health, metrics, and what else it answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::serve::{PATIENCE, builder};
use crate::auth::ClientChain;

/// A question.
pub struct Question {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    /// Empty until [`Question::read`].
    pub body: Bytes,
    incoming: Option<Incoming>,
    /// For those who speak another protocol on the connection from here on.
    pub upgrade: Option<OnUpgrade>,
    pub chain: Arc<ClientChain>,
}

impl Question {
    /// Reads what came along, which is for those who may ask alone. False where there is too much of it, or it
    /// does not come.
    pub async fn read(&mut self) -> bool {
        let Some(incoming) = self.incoming.take() else { return true };
        let whole = http_body_util::Limited::new(incoming, MAX_BODY_BYTES).collect();
        let Ok(Ok(whole)) = tokio::time::timeout(PATIENCE, whole).await else { return false };
        self.body = whole.to_bytes();
        true
    }
}

pub struct Reply {
    pub code: u16,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Reply {
    pub fn json(code: u16, tree: &api::Tree) -> Reply {
        Reply { code, content_type: "application/json", body: api::json::encode(tree, None).into() }
    }

    pub fn text(code: u16, text: impl Into<Bytes>) -> Reply {
        Reply { code, content_type: "text/plain; charset=utf-8", body: text.into() }
    }
}

/// An answer as it goes out: whole, or as it comes.
pub type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        let mut answer = Response::new(Full::new(reply.body).map_err(|never| match never {}).boxed_unsync());
        *answer.status_mut() = http::StatusCode::from_u16(reply.code).unwrap_or_default();
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(reply.content_type));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
        answer
    }
}

pub type Replying<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

pub trait Handler: Send + Sync + 'static {
    fn answer(&self, question: Question) -> Replying<'_>;
}

/// As many streams as a connection may have; those who ask are few.
const STREAMS: u32 = 100;
/// The most that a question may bring.
const MAX_BODY_BYTES: usize = 3 << 20;
/// As many connections are served at once; one that was upgraded does not count any more.
const MAX_CONNECTIONS: usize = 1000;

/// Serves until `closing` turns true; without TLS for those of this machine.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    handler: Arc<dyn Handler>,
    mut closing: watch::Receiver<bool>,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let seats = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let Ok(seat) = seats.clone().try_acquire_owned() else { continue };
        let (acceptor, handler) = (acceptor.clone(), handler.clone());
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => secured(stream, acceptor, handler).await,
                None => connection(stream, Arc::new(ClientChain::new(Vec::new())), handler).await,
            }
            drop(seat);
        });
    }
}

async fn secured(stream: TcpStream, acceptor: TlsAcceptor, handler: Arc<dyn Handler>) {
    let Ok(Ok(tls)) = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await else { return };
    let chain = tls.get_ref().1.peer_certificates().unwrap_or(&[]);
    let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
    connection(tls, Arc::new(ClientChain::new(chain)), handler).await;
}

async fn connection<S>(stream: S, chain: Arc<ClientChain>, handler: Arc<dyn Handler>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| answer(handler.clone(), chain.clone(), request));
    if let Err(error) = builder(STREAMS).serve_connection_with_upgrades(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "the connection ended");
    }
}

async fn answer(
    handler: Arc<dyn Handler>,
    chain: Arc<ClientChain>,
    mut request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let upgrade = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let (parts, incoming) = request.into_parts();
    let question = Question {
        method: parts.method,
        path: parts.uri.path().to_string(),
        query: parts.uri.query().unwrap_or_default().to_string(),
        headers: parts.headers,
        body: Bytes::new(),
        incoming: Some(incoming),
        upgrade,
        chain,
    };
    Ok(handler.answer(question).await)
}
