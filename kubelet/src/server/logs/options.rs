//! The options of a request for logs: how much, and in which form.

use std::fmt;

use api::query::Query;
use api::time::{self, Timestamp};
use http::StatusCode;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    pub(crate) timestamps: bool,
    /// Only lines from this time on.
    pub(crate) since: Option<Timestamp>,
    pub(crate) tail_lines: Option<u64>,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) stream: Stream,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Stream {
    #[default]
    All,
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InvalidOption {
    /// A value cannot be read.
    Undecodable,
    /// The parameter can be parsed, but its value is invalid.
    Invalid,
    Stream(String),
}

impl InvalidOption {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            InvalidOption::Undecodable | InvalidOption::Stream(_) => StatusCode::BAD_REQUEST,
            InvalidOption::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidOption::Undecodable => write!(f, "{{\"message\": \"Unable to decode query.\"}}"),
            InvalidOption::Invalid => write!(f, "{{\"message\": \"Invalid request.\"}}"),
            InvalidOption::Stream(stream) => write!(f, "invalid stream type {stream:?}"),
        }
    }
}

pub(crate) fn read(query: &Query, now: Timestamp) -> Result<Options, InvalidOption> {
    // A legacy name; `all` means no limit.
    let tail = match query.get("tail") {
        "" => query.get("tailLines"),
        "all" => "",
        tail => tail,
    };
    let number = |text: &str, least: i64| match text {
        "" => Ok(None),
        text => match text.parse::<i64>() {
            Err(_) => Err(InvalidOption::Undecodable),
            Ok(number) if number < least => Err(InvalidOption::Invalid),
            Ok(number) => Ok(u64::try_from(number).ok()),
        },
    };
    let tail_lines = number(tail, 0)?;
    let limit_bytes = number(query.get("limitBytes"), 1)?;
    let since_seconds = number(query.get("sinceSeconds"), 1)?;
    let since_time = match query.get("sinceTime") {
        "" => None,
        text => Some(time::parse(text).map_err(|_| InvalidOption::Undecodable)?),
    };
    if since_seconds.is_some() && since_time.is_some() {
        return Err(InvalidOption::Invalid);
    }
    let ago = |seconds: u64| {
        let seconds = now.seconds.saturating_sub(i64::try_from(seconds).unwrap_or(i64::MAX));
        Timestamp { seconds, nanos: now.nanos }
    };
    let stream = match query.get("stream") {
        "" | "All" => Stream::All,
        "Stdout" => Stream::Stdout,
        "Stderr" => Stream::Stderr,
        other => return Err(InvalidOption::Stream(other.to_string())),
    };
    if stream != Stream::All && tail_lines.is_some() {
        return Err(InvalidOption::Invalid);
    }
    Ok(Options {
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        since: since_time.or(since_seconds.map(ago)),
        tail_lines,
        limit_bytes,
        stream,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_options_from_the_query() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 5 });
        let whole = Options::default();
        let cases = [
            ("", Ok(whole.clone())),
            ("follow=true&timestamps=1", Ok(Options { follow: true, timestamps: true, ..whole.clone() })),
            ("previous=true&tailLines=0", Ok(Options { previous: true, tail_lines: Some(0), ..whole.clone() })),
            ("tail=7", Ok(Options { tail_lines: Some(7), ..whole.clone() })),
            ("tail=all", Ok(whole.clone())),
            ("sinceSeconds=90", Ok(Options { since: at(10), ..whole.clone() })),
            ("limitBytes=3&stream=Stderr", {
                Ok(Options { limit_bytes: Some(3), stream: Stream::Stderr, ..whole.clone() })
            }),
            ("sinceTime=1970-01-01T00:00:09.000000005Z", Ok(Options { since: at(9), ..whole })),
            ("tailLines=x", Err(InvalidOption::Undecodable)),
            ("sinceTime=yesterday", Err(InvalidOption::Undecodable)),
            ("tailLines=-1", Err(InvalidOption::Invalid)),
            ("limitBytes=0", Err(InvalidOption::Invalid)),
            ("sinceSeconds=0", Err(InvalidOption::Invalid)),
            ("sinceSeconds=1&sinceTime=1970-01-01T00:00:00Z", Err(InvalidOption::Invalid)),
            ("stream=Stdout&tailLines=1", Err(InvalidOption::Invalid)),
            ("stream=Both", Err(InvalidOption::Stream("Both".to_string()))),
        ];
        let now = Timestamp { seconds: 100, nanos: 5 };
        for (query, want) in cases {
            assert_eq!(read(&Query::parse(query), now), want, "{query}");
        }
    }
}
