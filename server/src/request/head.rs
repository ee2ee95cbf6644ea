//! What a client requests, without the body: method, path, query and headers, and what was parsed from them.

use http::header::AsHeaderName;
use http::{HeaderMap, Method};

use super::info::{Query, RequestInfo};

/// The head of a request. Authentication removes the credentials from its headers; nothing else changes it.
pub(crate) struct RequestHead {
    pub method: Method,
    pub path: String,
    pub raw_query: String,
    pub query: Query,
    pub headers: HeaderMap,
    pub info: RequestInfo,
    /// Seconds since the Unix epoch, the same for the whole request.
    pub now: i64,
}

impl RequestHead {
    /// A head without headers.
    pub(crate) fn new(method: Method, path: String, raw_query: String, now: i64) -> RequestHead {
        let query = Query::parse(&raw_query);
        let info = RequestInfo::parse(&method, &path, &query);
        RequestHead { method, path, raw_query, query, headers: HeaderMap::new(), info, now }
    }

    /// The value of a header, if it is text.
    pub(crate) fn header(&self, name: impl AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
