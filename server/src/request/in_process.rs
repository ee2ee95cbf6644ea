//! Extensions of requests and responses for clients in this process.

/// An extension of a request: the client accepts objects in their stored form. The same extension of the response means
/// that each object is a frame of the body: in a list after its head, in a watch after the type of its event. An event
/// without an object is a line after the frame [`LINE`]. A client that requests only metadata gets whole objects too:
/// cutting out a part costs more than ignoring the rest.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFrames;

/// An extension of a request: the client reads only the code of a successful response, and the written object need not
/// be encoded.
#[derive(Debug, Clone, Copy)]
pub struct DiscardBody;

/// The frame before an event that is a line.
pub const LINE: &str = "LINE";
