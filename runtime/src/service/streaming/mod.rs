//! Exec, attach and port-forward over HTTP: a client asks the CRI for an address, and comes to it once.
//!
//! What happens in a session does not know how it is carried: that is the business of the crate `streaming`.

mod sessions;

pub(crate) use sessions::connect;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use stdx::sync::Mutex;
use tokio::net::{TcpListener, TcpStream};

use crate::error::{Result, refused};
use crate::service::{Service, new_id};

/// An address that nobody came to is forgotten.
const LIFETIME: Duration = Duration::from_secs(60);
const MOST_SESSIONS: usize = 1000;

/// What an address was given out for.
pub enum Session {
    Exec(cri::ExecRequest),
    Attach(cri::AttachRequest),
    PortForward(cri::PortForwardRequest),
}

impl Session {
    fn name(&self) -> &'static str {
        match self {
            Session::Exec(_) => "exec",
            Session::Attach(_) => "attach",
            Session::PortForward(_) => "portforward",
        }
    }
}

type Waiting = Arc<Mutex<BTreeMap<String, (Session, Instant)>>>;

/// The server, and who is expected at it.
pub struct Streaming {
    address: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    waiting: Waiting,
}

impl Streaming {
    pub async fn start(address: SocketAddr) -> io::Result<Streaming> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Streaming { address, listener: Mutex::new(Some(listener)), waiting: Waiting::default() })
    }

    /// An address for one use: whoever knows it is let in.
    pub fn url(&self, session: Session) -> Result<String> {
        let token = new_id()?;
        let url = format!("http://{}/{}/{token}", self.address, session.name());
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, (_, since)| since.elapsed() < LIFETIME);
        if waiting.len() >= MOST_SESSIONS {
            return refused("too many streaming sessions are waiting");
        }
        waiting.insert(token, (session, Instant::now()));
        Ok(url)
    }

    /// Begins to serve; the service ends with the process.
    pub fn serve(&self, service: Service) {
        let Some(listener) = self.listener.lock().take() else { return };
        tokio::spawn(accept(listener, service, self.waiting.clone()));
    }
}

async fn accept(listener: TcpListener, service: Service, waiting: Waiting) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                tokio::spawn(connection(stream, service.clone(), waiting.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a streaming connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, service: Service, waiting: Waiting) {
    let answer = service_fn(move |request| {
        let answer = answer(request, &service, &waiting);
        async move { Ok::<_, Infallible>(answer) }
    });
    let served =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).with_upgrades().await;
    if let Err(error) = served {
        tracing::debug!(%error, "a streaming connection ended");
    }
}

fn answer(request: Request<Incoming>, service: &Service, waiting: &Waiting) -> Response<Full<Bytes>> {
    match take(waiting, request.uri().path()) {
        Some(session) => sessions::answer(request, session, service.clone()),
        None => {
            let mut response = Response::new(Full::from("no session waits at this address\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

/// The session behind a path, which nobody else can have from now on.
fn take(waiting: &Waiting, path: &str) -> Option<Session> {
    let (name, token) = path.strip_prefix('/')?.split_once('/')?;
    let (session, since) = waiting.lock().remove(token)?;
    (session.name() == name && since.elapsed() < LIFETIME).then_some(session)
}
