//! Requests of this very process. They carry their identity with them, which no socket can do, and pass
//! the same chain as all others.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use kinds::User;

use crate::Server;
use crate::authentication::ClientChain;
use crate::call::{Answer, Peer};
use crate::filters::chain;
use crate::http::io::Watched;
use crate::http::serve;

/// Stands among the extensions of a request whose sender can take objects as they are kept, and of an
/// answer that hands them over so. Each is then a frame of the body: of a list behind its head, of a watch
/// behind the type of its event. An event that is no object is a line, behind the frame [`LINE`]. Whoever asks
/// for metadata alone gets whole objects too: taking a part out costs more than not looking at the rest.
#[derive(Debug, Clone, Copy)]
pub struct Pieces;

/// Stands among the extensions of a request whose sender looks at nothing of a good answer but its code: the object
/// that was written is not put into words for nobody.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

pub const LINE: &str = "LINE";

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
    let mut call = serve::read(request, peer, server.now());
    call.user = Some(user);
    call.pieces = pieces;
    call.unread = unread;
    let mut answer = chain::handle(server.clone(), call).await;
    if pieces && answer.body_mut().take_apart() {
        answer.extensions_mut().insert(Pieces);
    }
    answer
}
