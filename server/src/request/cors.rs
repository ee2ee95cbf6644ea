//! CORS: the origins whose pages a browser allows to call the server.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use regex_automata::nfa::thompson::pikevm::PikeVM;

use crate::request::body::Body;

const METHODS: &str = "POST, GET, OPTIONS, PUT, DELETE, PATCH";
const HEADERS: &str =
    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since";

/// Patterns of allowed origins; without any, responses have no CORS headers.
#[derive(Debug, Clone, Default)]
pub struct Cors(Vec<PikeVM>);

/// A pattern that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    #[error("{0:?} does not anchor the start of the host: begin it with ^ or //")]
    Start(String),
    #[error("{0:?} does not anchor the end of the host: end it with $ or (:|$)")]
    End(String),
    #[error("{0:?} is not a regular expression")]
    NotRegex(String),
}

impl Cors {
    /// A pattern that is not anchored at both ends of the host would also match names that contain it.
    pub fn new(patterns: &[&str]) -> Result<Cors, PatternError> {
        let mut all = Vec::new();
        for pattern in patterns {
            let host = pattern.split_once("//").map(|(_, host)| host);
            if !pattern.starts_with('^') && host.is_none() {
                return Err(PatternError::Start(pattern.to_string()));
            }
            if !host.unwrap_or(pattern).contains(['$', ':']) {
                return Err(PatternError::End(pattern.to_string()));
            }
            all.push(PikeVM::new(pattern).map_err(|_| PatternError::NotRegex(pattern.to_string()))?);
        }
        Ok(Cors(all))
    }

    fn origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        headers.get(header::ORIGIN).filter(|origin| self.allows(origin.as_bytes()))
    }

    fn allows(&self, origin: &[u8]) -> bool {
        self.0.iter().any(|pattern| pattern.is_match(&mut pattern.create_cache(), origin))
    }

    /// The response to a preflight request, which has no credentials.
    pub(crate) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
        if *method != Method::OPTIONS {
            return None;
        }
        self.origin(headers)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Some(response)
    }

    pub(crate) fn add_headers(&self, request: &HeaderMap, headers: &mut HeaderMap) {
        let Some(origin) = self.origin(request) else { return };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Date"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_match_whole_hosts() {
        let cors = Cors::new(&["//example.com(:|$)", r"^https://[a-z]+\.acme\.io$"]).expect("patterns");
        let cases = [
            ("https://example.com", true),
            ("http://example.com:8080", true),
            ("https://example.com.evil.org", false),
            ("https://web.acme.io", true),
            ("https://web.acme.io:1", false),
            ("http://web.acme.io", false),
        ];
        for (origin, want) in cases {
            assert_eq!(cors.allows(origin.as_bytes()), want, "{origin}");
        }
        for bad in ["example.com", "//example.com", "^(", ".*"] {
            assert!(Cors::new(&[bad]).is_err(), "{bad}");
        }
    }
}
