//! Watches over WebSocket.

use api::status::Status;

use crate::call::{Answer, Call};
use crate::verbs::watch::Watcher;

pub fn is_upgrade(call: &Call) -> bool {
    call.upgrade.is_some()
        && call.header(http::header::UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

pub fn watch(_call: &mut Call, _watcher: Watcher) -> Result<Answer, Status> {
    Err(Status::bad_request("watches over WebSocket are not there yet"))
}
