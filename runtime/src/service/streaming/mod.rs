//! The streaming server for exec, attach and port-forward: a client requests a URL over CRI, and connects to it once.
//!
//! The sessions are independent of the transport, which is implemented by the crate `streaming`.

mod listener;
mod sessions;

pub(crate) use sessions::connect;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use stdx::sync::Mutex;
use tokio::net::TcpListener;

use self::listener::Limits;
use crate::error::{Result, refused};
use crate::service::{Service, new_id};

/// A URL that is not used in this time expires.
const LIFETIME: Duration = Duration::from_secs(60);
const MAX_SESSIONS: usize = 1000;

/// The request that a URL was issued for.
pub(super) enum Session {
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

type PendingSessions = Arc<Mutex<BTreeMap<String, (Session, Instant)>>>;

/// The streaming server, and the sessions that it expects.
pub(super) struct Streaming {
    address: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    pending: PendingSessions,
}

impl Streaming {
    pub(super) async fn start(address: SocketAddr) -> io::Result<Streaming> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Streaming { address, listener: Mutex::new(Some(listener)), pending: PendingSessions::default() })
    }

    /// Issues a URL for one use. Knowing the URL is the only authorization.
    pub(super) fn url(&self, session: Session) -> Result<String> {
        let token = new_id()?;
        let url = format!("http://{}/{}/{token}", self.address, session.name());
        let mut pending = self.pending.lock();
        pending.retain(|_, (_, since)| since.elapsed() < LIFETIME);
        if pending.len() >= MAX_SESSIONS {
            return refused("too many pending streaming sessions");
        }
        pending.insert(token, (session, Instant::now()));
        Ok(url)
    }

    /// Starts serving. The server runs until the process exits.
    pub(super) fn serve(&self, service: Service) {
        let Some(listener) = self.listener.lock().take() else { return };
        let pending = self.pending.clone();
        let respond = move |request| respond(request, &service, &pending);
        tokio::spawn(listener::serve(listener, Limits::default(), respond));
    }
}

fn respond(request: Request<Incoming>, service: &Service, pending: &PendingSessions) -> Response<Full<Bytes>> {
    match take(pending, request.uri().path()) {
        Some(session) => sessions::start(request, session, service.clone()),
        None => {
            let mut response = Response::new(Full::from("unknown or expired streaming URL\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

/// Takes the session of a path. No other client can use it from then on.
fn take(pending: &PendingSessions, path: &str) -> Option<Session> {
    let (name, token) = path.strip_prefix('/')?.split_once('/')?;
    let (session, since) = pending.lock().remove(token)?;
    (session.name() == name && since.elapsed() < LIFETIME).then_some(session)
}
