//! Requests of this very process. They carry their identity with them, which no socket can do, and pass
//! the same chain as all others.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use kinds::User;

use crate::auth::ClientChain;
use crate::call::{Answer, Peer};
use crate::http::io::Watched;
use crate::{Server, chain, http::serve};

pub async fn handle(server: &Arc<Server>, request: Request<Bytes>, user: Arc<User>) -> Answer {
    let peer = Peer {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        certificates: Arc::new(ClientChain::new(Vec::new())),
        watched: Watched::default(),
        leave: Arc::default(),
    };
    let mut call = serve::read(request, peer, server.now());
    call.user = Some(user);
    chain::handle(server.clone(), call).await
}
