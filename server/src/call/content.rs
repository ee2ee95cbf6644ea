//! The body of a request.

use api::status::Status;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::request::negotiate::Media;
use crate::request::request_body::RequestBody;

/// The maximum size of a body.
pub(crate) const MAX_BODY_BYTES: usize = 3 << 20;
/// A body that is too large is read to its end as long as it is below this.
const MAX_DRAINED_BYTES: usize = 32 << 20;

/// The body of a request.
#[derive(Default)]
pub(crate) struct Content {
    pub body: Option<RequestBody>,
    /// The object in the body, once it was read: errors contain parts of it.
    pub object: Option<(Media, Bytes)>,
    /// Taken by WebSocket watches and proxies.
    pub upgrade: Option<hyper::upgrade::OnUpgrade>,
}

impl Content {
    /// Reads the body; a body above the limit is rejected and not buffered.
    pub(super) async fn take_body(&mut self) -> Result<Bytes, Status> {
        let Some(mut body) = self.body.take() else { return Ok(Bytes::new()) };
        if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
            drain(&mut body, 0).await;
            return Err(too_large());
        }
        let mut all = BytesMut::new();
        let mut first = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Status::bad_request(format!("the body could not be read: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            let length = all.len() + first.as_ref().map_or(0, Bytes::len) + data.len();
            if length > MAX_BODY_BYTES {
                drain(&mut body, length).await;
                return Err(too_large());
            }
            // Most bodies arrive in one piece, which is not copied.
            match first.take() {
                None if all.is_empty() => first = Some(data),
                earlier => {
                    all.extend_from_slice(&earlier.unwrap_or_default());
                    all.extend_from_slice(&data);
                }
            }
        }
        Ok(first.unwrap_or_else(|| all.freeze()))
    }
}

/// Reads the rest of a rejected body, up to a limit: a client that is still writing would otherwise get a broken
/// connection instead of the response.
async fn drain(body: &mut RequestBody, mut seen: usize) {
    while seen < MAX_DRAINED_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => seen += frame.data_ref().map_or(1, Bytes::len),
            _ => return,
        }
    }
}

fn too_large() -> Status {
    Status::too_large(format!("Request entity too large: limit is {MAX_BODY_BYTES}"))
}
