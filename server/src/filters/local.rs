//! In-process requests. They contain their user, which no request from a socket can do, and pass the same filters as
//! all others.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use kinds::User;

use crate::Server;
use crate::authentication::ClientChain;
use crate::call::{Call, HttpResponse, Peer};
use crate::filters::chain;
use crate::request::in_process::{DiscardBody, ObjectFrames};
use crate::request::watch_flag::WatchFlag;

/// Handles a request of this process on behalf of a user.
pub async fn handle(server: &Arc<Server>, request: Request<Bytes>, user: Arc<User>) -> HttpResponse {
    let peer = Peer {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        certificates: Arc::new(ClientChain::new(Vec::new())),
        watched: WatchFlag::default(),
        leave: Arc::default(),
        seat: None,
    };
    let pieces = request.extensions().get::<ObjectFrames>().is_some();
    let unread = request.extensions().get::<DiscardBody>().is_some();
    let mut call = Call::from_request(request, peer, server.now());
    call.caller.user = Some(user);
    call.delivery.pieces = pieces;
    call.delivery.unread = unread;
    let mut response = chain::handle(server.clone(), call).await;
    if pieces && response.body_mut().take_items() {
        response.extensions_mut().insert(ObjectFrames);
    }
    response
}
