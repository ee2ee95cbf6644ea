//! The way of this process's own clients to its own API server.

use std::sync::Arc;

use api::Map;
use bytes::Bytes;
use client::{Body, Client, Pieces, Sending, Transport};
use http::{Request, Response};
use server::{Server, local};

/// Carries requests as one user.
struct InProcess {
    server: Arc<Server>,
    user: Arc<kinds::User>,
}

impl InProcess {
    /// Objects that the client can take as they are kept are handed over so.
    async fn exchange(&self, mut request: Request<Bytes>) -> client::Result<Response<Body>> {
        if request.extensions_mut().remove::<Pieces>().is_some() {
            request.extensions_mut().insert(local::Pieces);
        }
        let answer = local::handle(&self.server, request, self.user.clone()).await;
        let pieces = answer.extensions().get::<local::Pieces>().is_some();
        let answer = answer.map(Body::new);
        Ok(if pieces { answer.map(Body::in_pieces) } else { answer })
    }
}

impl Transport for InProcess {
    fn send(&self, request: Request<Bytes>) -> Sending<'_> {
        Box::pin(self.exchange(request))
    }
}

/// What their fields are owned as, and how they name themselves.
const AGENT: &str = "kube-controller-manager";

/// A client of this process that acts as a user.
pub fn client(server: &Arc<Server>, name: String, groups: &[&str]) -> Client {
    client_as(server, name, groups, AGENT)
}

/// For what a cluster makes of itself when it starts.
pub fn administrator(server: &Arc<Server>) -> Client {
    client_as(server, "tiphys".to_string(), &["system:masters", "system:authenticated"], "tiphys")
}

fn client_as(server: &Arc<Server>, name: String, groups: &[&str], agent: &'static str) -> Client {
    let groups = groups.iter().map(ToString::to_string).collect();
    let user = kinds::User { name, uid: String::new(), groups, extra: Map::new() };
    Client::new(Arc::new(InProcess { server: server.clone(), user: Arc::new(user) }), agent)
}

/// The controllers: they read as their manager and write as their own accounts.
pub fn environment(server: &Arc<Server>, options: Arc<controllers::Options>) -> controllers::Environment {
    let reader = client(server, "system:kube-controller-manager".to_string(), &["system:authenticated"]);
    let server = server.clone();
    let writer = move |account: &'static str| {
        let name = format!("system:serviceaccount:kube-system:{account}");
        client(&server, name, &["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"])
    };
    controllers::Environment {
        reader,
        writer: Box::new(writer),
        options,
        clock: Arc::new(client::SystemClock),
        metrics: client::Metrics::default(),
        seed: client::Random::fresh_seed(),
    }
}
