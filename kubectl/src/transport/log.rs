//! The log of requests, from `-v=6` on. Credentials never appear in it.

use std::fmt::Write;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

use super::Request;
use crate::clock;

/// Bodies are cut here, unless everything is to be shown.
const MAX_BODY: usize = 1024;
const MAX_WHOLE_BODY: usize = 10240;

/// The verbosity of the request log.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestLog {
    pub(crate) verbosity: i64,
}

impl RequestLog {
    pub(super) fn request(&self, url: &str, request: &Request, headers: &HeaderMap) {
        if self.verbosity >= 9 {
            self.line(&format!("\"Request\" curlCommand={:?}", curl(url, request, headers)));
        } else if self.verbosity >= 7 {
            let headers = printed(headers);
            self.line(&format!(
                "\"Request\" verb=\"{}\" url=\"{url}{}\" headers=<\n{headers} >",
                request.method,
                request.target()
            ));
        }
        if !request.body.is_empty() {
            self.body("Request Body", &request.body);
        }
    }

    pub(super) fn response<B>(&self, url: &str, request: &Request, response: &http::Response<B>, took: Duration) {
        if self.verbosity < 6 {
            return;
        }
        let headers =
            if self.verbosity >= 8 { format!("<\n{} >", printed(response.headers())) } else { "\"\"".to_string() };
        self.line(&format!(
            "\"Response\" verb=\"{}\" url=\"{url}{}\" status=\"{}\" headers={headers} milliseconds={}",
            request.method,
            request.target(),
            response.status(),
            took.as_millis()
        ));
    }

    pub(super) fn body(&self, title: &str, body: &[u8]) {
        if self.verbosity < 8 {
            return;
        }
        let limit = if self.verbosity >= 10 {
            usize::MAX
        } else if self.verbosity == 9 {
            MAX_WHOLE_BODY
        } else {
            MAX_BODY
        };
        let shown = String::from_utf8_lossy(&body[..body.len().min(limit)]);
        let left = body.len().saturating_sub(limit);
        let cut = if left > 0 { format!(" [truncated {left} chars]") } else { String::new() };
        self.line(&format!("\"{title}\" body={shown:?}{cut}"));
    }

    fn line(&self, text: &str) {
        let (month, day, time) = clock::log_time();
        eprintln!("I{month:02}{day:02} {time} {:>7} request.go:1] {text}", std::process::id());
    }
}

/// The headers, one a line, without the credentials.
fn printed(headers: &HeaderMap) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (name, value) in headers {
        lines.push(format!(" \t{}: {}\n", canonical(name.as_str()), redacted(name.as_str(), value)));
    }
    lines.sort();
    lines.concat()
}

fn canonical(name: &str) -> String {
    let parts = name.split('-').map(|part| {
        let mut chars = part.chars();
        chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect::<String>()
    });
    parts.collect::<Vec<_>>().join("-")
}

fn redacted(name: &str, value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
    if name != header::AUTHORIZATION.as_str() && name != header::PROXY_AUTHORIZATION.as_str() {
        return text;
    }
    match text.split_once(' ') {
        Some((scheme, _)) => format!("{scheme} <masked>"),
        None => "<masked>".to_string(),
    }
}

fn curl(url: &str, request: &Request, headers: &HeaderMap) -> String {
    let mut text = format!("curl -v -X{}", request.method);
    for (name, value) in headers {
        let _ = write!(text, " -H \"{}: {}\"", canonical(name.as_str()), redacted(name.as_str(), value));
    }
    let _ = write!(text, " '{url}{}'", request.target());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked() {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("x"));
        assert_eq!(printed(&headers), " \tAccept: x\n \tAuthorization: Bearer <masked>\n");
        assert!(!curl("https://a", &Request::get("/"), &headers).contains("secret"));
    }
}
