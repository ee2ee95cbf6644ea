//! Responses, and the errors that a response with an error code means.

use std::time::Duration;

use api::Tree;
use api::status::{Cause, Details, Status};
use bytes::Bytes;
use http::{HeaderMap, Method, header};

use super::gzip::Gunzip;
use super::log::RequestLog;
use crate::error::{Error, Result, message};

/// The longest text of an error that is not a Status.
const MAX_TEXT: usize = 2048;
/// The longest line of a watch: an event with the largest object.
const MAX_LINE: usize = 64 * 1024 * 1024;
/// The largest response that is read as one object.
const MAX_BODY: usize = 4 * 1024 * 1024 * 1024;

/// A body that is passed on.
pub(crate) type ResponseBody = client::Body;

/// A response whose body is not read yet.
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    body: client::Body,
    gunzip: Option<Gunzip>,
    log: RequestLog,
    /// When the whole body has to be there.
    deadline: Option<tokio::time::Instant>,
}

impl Response {
    pub(super) fn new(response: http::Response<client::Body>, log: RequestLog) -> Response {
        let (head, body) = response.into_parts();
        let is_gzip = head.headers.get(header::CONTENT_ENCODING).is_some_and(|value| value.as_bytes() == b"gzip");
        Response {
            code: head.status.as_u16(),
            headers: head.headers,
            body,
            gunzip: is_gzip.then(Gunzip::new),
            log,
            deadline: None,
        }
    }

    /// With a time for the whole body.
    pub(super) fn until(mut self, deadline: Option<tokio::time::Instant>) -> Response {
        self.deadline = deadline;
        self
    }

    async fn next_part(&mut self) -> Option<Result<Bytes>> {
        let part = self.body.next();
        let part = match self.deadline {
            None => part.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, part).await {
                Ok(part) => part,
                Err(_) => return Some(Err(Error::ReadTimeout)),
            },
        };
        part.map(|part| part.map_err(|error| Error::new(body_text(&stdx::error::chain(&error)))))
    }

    /// The next part of the body; None at its end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            let part = match self.next_part().await? {
                Ok(part) => part,
                Err(error) => return Some(Err(error)),
            };
            let Some(gunzip) = &mut self.gunzip else { return Some(Ok(part)) };
            match gunzip.push(&part) {
                Ok(plain) if plain.is_empty() => {}
                Ok(plain) => return Some(Ok(plain.into())),
                Err(error) => return Some(Err(Error::Io(error))),
            }
        }
    }

    /// The whole body.
    pub(crate) async fn bytes(mut self) -> Result<Bytes> {
        let mut all = Vec::new();
        while let Some(part) = self.next().await {
            let part = part?;
            if all.len() + part.len() > MAX_BODY {
                return Err(Error::new(format!("the response is larger than {MAX_BODY} bytes")));
            }
            all.extend_from_slice(&part);
        }
        self.log.body("Response Body", &all);
        Ok(all.into())
    }

    /// The body as an object.
    pub(crate) async fn tree(self) -> Result<Tree> {
        let bytes = self.object_bytes().await?;
        api::json::decode(&bytes)
            .map_err(|error| Error::new(format!("couldn't get version/kind; json parse error: {error}")))
    }

    /// The body, which is not a web page.
    pub(crate) async fn object_bytes(self) -> Result<Bytes> {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_html = kind.starts_with("text/html");
        if is_html {
            return message("the server's response is a web page; is this the URL of a Kubernetes API server?");
        }
        self.bytes().await
    }

    /// The response as it is, to pass it on.
    pub(crate) fn into_http(self) -> http::Response<ResponseBody> {
        let mut response = http::Response::new(self.body);
        *response.status_mut() = http::StatusCode::from_u16(self.code).unwrap_or_default();
        for (name, value) in &self.headers {
            // These are of this connection, and the next one has its own.
            if name != header::CONNECTION && name != header::TRANSFER_ENCODING {
                response.headers_mut().append(name, value.clone());
            }
        }
        response
    }

    /// The lines of the body, for watches.
    pub(crate) fn lines(self) -> Lines {
        Lines { response: self, buffer: Vec::new(), searched: 0 }
    }

    pub(super) fn retry_after(&self) -> Option<Duration> {
        if self.code != 429 && self.code < 500 {
            return None;
        }
        let seconds: u64 = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
        Some(Duration::from_secs(seconds.min(60)))
    }

    /// The error that this response is.
    pub(super) async fn into_error(self, method: &Method) -> Error {
        let code = self.code;
        let is_text =
            self.headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/"));
        let body = match self.bytes().await {
            Ok(body) => body,
            Err(error) => return error,
        };
        if let Ok(tree) = api::json::decode(&body)
            && tree.str("kind") == "Status"
        {
            let mut status = Status::from_tree(&tree);
            if status.code == 0 {
                status.code = code;
            }
            return Error::Server { status: Box::new(status), context: String::new() };
        }
        let text = String::from_utf8_lossy(&body[..body.len().min(MAX_TEXT)]);
        let text = if is_text { text.trim().to_string() } else { "unknown".to_string() };
        Error::Server { status: Box::new(generic(code, method, &text)), context: String::new() }
    }
}

/// A body that is read line by line.
pub(crate) struct Lines {
    response: Response,
    buffer: Vec<u8>,
    /// No line ends before this.
    searched: usize,
}

impl Lines {
    /// The next line without its end; None at the end of the body.
    pub(crate) async fn next(&mut self) -> Option<Result<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                self.searched = 0;
                return Some(Ok(line));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > MAX_LINE {
                return Some(Err(Error::new("the server sent a line that is too long")));
            }
            match self.response.next().await {
                Some(Ok(part)) => self.buffer.extend_from_slice(&part),
                Some(Err(error)) => return Some(Err(error)),
                None if self.buffer.is_empty() => return None,
                None => {
                    self.searched = 0;
                    return Some(Ok(std::mem::take(&mut self.buffer)));
                }
            }
        }
    }
}

/// The Status of a response that has none.
pub(super) fn generic(code: u16, method: &Method, text: &str) -> Status {
    let (reason, message) = match code {
        409 if method == Method::POST => ("AlreadyExists", "the server reported a conflict"),
        409 => ("Conflict", "the server reported a conflict"),
        404 => ("NotFound", "the server could not find the requested resource"),
        400 => ("BadRequest", "the server rejected our request for an unknown reason"),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials"),
        403 => ("Forbidden", text),
        406 if text == "unknown" => {
            ("NotAcceptable", "the server was unable to respond with a content type that the client supports")
        }
        406 => ("NotAcceptable", text),
        415 => ("UnsupportedMediaType", text),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
        422 => ("Invalid", "the server rejected our request due to an error in our request"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        429 => ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
        _ => ("", ""),
    };
    let (reason, message) = match message {
        "" if code >= 500 => {
            ("InternalError", format!("an error on the server ({text:?}) has prevented the request from succeeding"))
        }
        "" if reason.is_empty() => {
            ("", format!("the server responded with the status code {code} but did not return more information"))
        }
        message => (reason, message.to_string()),
    };
    let cause = Cause { reason: "UnexpectedServerResponse".into(), message: text.to_string(), field: String::new() };
    let mut status = Status::new(code, reason, message);
    status.details = Some(Details { causes: vec![cause], ..Details::default() });
    status
}

fn body_text(text: &str) -> String {
    let text = text.strip_prefix("request failed: ").unwrap_or(text);
    let ends = ["end of file", "incomplete", "closed", "reading a body"];
    if ends.iter().any(|end| text.contains(end)) { "unexpected EOF".to_string() } else { text.to_string() }
}
