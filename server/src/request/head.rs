//! The head of a request: method, path, query and headers, and the values that are parsed from them.

use http::header::AsHeaderName;
use http::{HeaderMap, Method};

use super::info::{Query, RequestInfo};

/// The head of a request. Authentication removes the credentials from its headers; the router notes whether objects have a type; nothing else
/// changes it.
pub(crate) struct RequestHead {
    pub method: Method,
    pub path: String,
    pub raw_query: String,
    pub query: Query,
    pub headers: HeaderMap,
    pub info: RequestInfo,
    /// Seconds since the Unix epoch, the same for the whole request.
    pub now: i64,
    /// The objects have no type: they are custom resources, of which only the metadata has a protobuf encoding.
    pub untyped: bool,
}

impl RequestHead {
    /// A head without headers.
    pub(crate) fn new(method: Method, path: String, raw_query: String, now: i64) -> RequestHead {
        let query = Query::parse(&raw_query);
        let info = RequestInfo::parse(&method, &path, &query);
        RequestHead { method, path, raw_query, query, headers: HeaderMap::new(), info, now, untyped: false }
    }

    /// The value of a header, if it is text.
    pub(crate) fn header(&self, name: impl AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
