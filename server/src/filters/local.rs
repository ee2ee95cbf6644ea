//! In-process requests. They carry their user with them, which no socket can do, and pass the same filters as all
//! others.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use kinds::User;

use crate::Server;
use crate::authentication::ClientChain;
use crate::call::{Answer, Call, Peer};
use crate::filters::chain;
use crate::request::in_process::{Pieces, Unread};
use crate::request::watched::Watched;

/// Handles a request of this process on behalf of a user.
pub async fn handle(server: &Arc<Server>, request: Request<Bytes>, user: Arc<User>) -> Answer {
    let peer = Peer {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        certificates: Arc::new(ClientChain::new(Vec::new())),
        watched: Watched::default(),
        leave: Arc::default(),
        seat: None,
    };
    let pieces = request.extensions().get::<Pieces>().is_some();
    let unread = request.extensions().get::<Unread>().is_some();
    let mut call = Call::from_request(request, peer, server.now());
    call.caller.user = Some(user);
    call.delivery.pieces = pieces;
    call.delivery.unread = unread;
    let mut answer = chain::handle(server.clone(), call).await;
    if pieces && answer.body_mut().take_apart() {
        answer.extensions_mut().insert(Pieces);
    }
    answer
}
