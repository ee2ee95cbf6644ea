//! Extensions of requests and responses for clients in this process.

/// An extension of a request: the client takes objects as they are stored. The same extension of the response says that
/// each object is a frame of the body: in a list behind its head, in a watch behind the type of its event. An event
/// without an object is a line behind the frame [`LINE`]. A client that asks for metadata alone gets whole objects too:
/// cutting a part out costs more than ignoring the rest.
#[derive(Debug, Clone, Copy)]
pub struct Pieces;

/// An extension of a request: the client reads only the code of a successful response, so that the written object need
/// not be encoded.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

/// The frame before an event that is a line.
pub const LINE: &str = "LINE";
