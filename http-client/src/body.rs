//! Response bodies with a limit.

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError<E> {
    /// The body is longer than this limit.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// The connection failed.
    #[error(transparent)]
    Connection(E),
}

/// The whole body.
pub async fn read<B: Body<Data = Bytes> + Unpin>(mut body: B, limit: usize) -> Result<Bytes, BodyError<B::Error>> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::Connection)?.into_data() else { continue };
        if all.len() + data.len() > limit {
            return Err(BodyError::TooLarge(limit));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.into())
}

/// The beginning of a body, as far as it arrived: an error ends it.
pub async fn read_start<B: Body<Data = Bytes> + Unpin>(mut body: B, limit: usize) -> Vec<u8> {
    let mut start = Vec::new();
    while start.len() < limit
        && let Some(Ok(frame)) = body.frame().await
    {
        start.extend_from_slice(frame.data_ref().map_or(&[][..], Buf::chunk));
    }
    start.truncate(limit);
    start
}
