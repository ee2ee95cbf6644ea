//! Health, readiness and metrics by HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use stdx::sources::{SourceLimits, Sources};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Shared;

/// Probes and scrapers are few.
const CONNECTIONS: SourceLimits = SourceLimits { total: 100, per_source: 25 };
/// A request has to arrive within this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves a listener until it is closed.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, mut closed: watch::Receiver<bool>) {
    let sources = Sources::new(CONNECTIONS);
    loop {
        let accepted = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Some(seat) = sources.admit(address.ip()) else { continue };
        let (shared, mut closed) = (shared.clone(), closed.clone());
        tokio::spawn(async move {
            let service = service_fn(async |request| Ok::<_, Infallible>(respond(&shared, &request)));
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => {}
                _ = connection => {}
                () = seat.evicted() => {}
            }
        });
    }
}

fn respond(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, text) = match request.uri().path() {
        "/health" => (StatusCode::OK, "OK".to_string()),
        "/ready" if shared.is_ready() => (StatusCode::OK, "OK".to_string()),
        "/ready" => (StatusCode::SERVICE_UNAVAILABLE, "kubernetes".to_string()),
        "/metrics" => (StatusCode::OK, shared.metrics.render()),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_string()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
