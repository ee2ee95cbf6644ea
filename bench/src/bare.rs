//! The bare server: hyper and TLS, and as little as possible behind them. Its throughput is the limit of any server on
//! this machine.
//!
//! `PUT /x` stores a body, `GET /x` returns it, `POST /echo` responds with its body, `POST /broadcast` sends its body
//! to all clients of `GET /watch`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use stdx::sync::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_rustls::TlsAcceptor;

use crate::Result;

/// More frames than any figure sends: no watcher falls behind.
const FRAMES: usize = 1 << 16;

struct Bare {
    kept: Mutex<HashMap<String, Bytes>>,
    frames: broadcast::Sender<Bytes>,
}

pub(crate) async fn serve(port: u16) -> Result<()> {
    let bare = Arc::new(Bare { kept: Mutex::new(HashMap::new()), frames: broadcast::Sender::new(FRAMES) });
    let acceptor = TlsAcceptor::from(Arc::new(tls()?));
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(bare.clone(), acceptor.clone(), stream));
    }
}

fn tls() -> Result<ServerConfig> {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_string()])?;
    let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn connection(bare: Arc<Bare>, acceptor: TlsAcceptor, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let Ok(tls) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| respond(bare.clone(), request));
    // An error is the client going away.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), service).await;
}

async fn respond(bare: Arc<Bare>, request: Request<Incoming>) -> Result<Response<Body>> {
    let path = request.uri().path().to_string();
    let method = request.method().clone();
    if method == Method::GET {
        return Ok(get(&bare, &path));
    }
    let body = request.into_body().collect().await?.to_bytes();
    Ok(match (method, path.as_str()) {
        (Method::POST, "/echo") => reply(StatusCode::CREATED, Body::Full(Some(body))),
        (Method::POST, _) => {
            // Without a receiver the caller gets the error.
            let _ = bare.frames.send(body);
            reply(StatusCode::CREATED, Body::Full(None))
        }
        _ => {
            bare.kept.lock().insert(path, body);
            reply(StatusCode::CREATED, Body::Full(None))
        }
    })
}

fn get(bare: &Bare, path: &str) -> Response<Body> {
    if path == "/watch" {
        return reply(StatusCode::OK, Body::Watch(watch(bare.frames.subscribe())));
    }
    match bare.kept.lock().get(path) {
        Some(body) => reply(StatusCode::OK, Body::Full(Some(body.clone()))),
        None => reply(StatusCode::NOT_FOUND, Body::Full(None)),
    }
}

fn reply(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

type Receiver = broadcast::Receiver<Bytes>;
type Next = Pin<Box<dyn Future<Output = (Option<Bytes>, Receiver)> + Send>>;

fn watch(mut receiver: Receiver) -> Next {
    Box::pin(async move { (receiver.recv().await.ok(), receiver) })
}

enum Body {
    Full(Option<Bytes>),
    Watch(Next),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Watch(next) => next.as_mut().poll(cx).map(|(frame, receiver)| {
                *next = watch(receiver);
                frame.map(|frame| Ok(Frame::data(frame)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Watch(_) => SizeHint::default(),
        }
    }
}
