//! Client certificates: the subject of a verified chain is the user.

use super::{Authenticator, Credentials, Verdict};
use crate::call::Peer;
use crate::request::head::RequestHead;

pub(super) fn authenticate(auth: &Authenticator, head: &mut RequestHead, peer: &Peer, _: &Credentials) -> Verdict {
    let chain = &peer.certificates;
    let Some(cas) = auth.config.clients.as_ref().filter(|_| !chain.is_empty()) else {
        return Verdict::Unknown;
    };
    match cas.owner(chain, head.now) {
        Ok(user) if user.name.is_empty() => Verdict::Unknown,
        Ok(user) => Verdict::known(user),
        Err(why) => Verdict::refused(why),
    }
}
