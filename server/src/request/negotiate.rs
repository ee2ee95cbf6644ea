//! Content negotiation: the media types of request and response, and the representation of the object.

use api::status::Status;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Yaml,
    Protobuf,
}

impl Media {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Media::Json => "application/json",
            Media::Yaml => "application/yaml",
            Media::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    fn parse(name: &str) -> Option<Media> {
        match name {
            "application/json" | "*/*" => Some(Media::Json),
            "application/yaml" => Some(Media::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Media::Protobuf),
            _ => None,
        }
    }
}

/// The shape that `as=` requests; the version is that of meta.k8s.io.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    Plain,
    Table(&'static str),
    PartialObjectMetadata(&'static str),
    PartialObjectMetadataList(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub media: Media,
    pub shape: Representation,
    pub pretty: bool,
}

impl Accepted {
    pub(crate) const JSON: Accepted = Accepted { media: Media::Json, shape: Representation::Plain, pretty: false };

    /// A small number for each format, for cached frames.
    pub(crate) fn code(self) -> u32 {
        let shape = match self.shape {
            Representation::Plain => 0,
            Representation::Table("v1") => 1,
            Representation::Table(_) => 2,
            Representation::PartialObjectMetadata("v1") => 3,
            Representation::PartialObjectMetadata(_) => 4,
            Representation::PartialObjectMetadataList(_) => 5,
        };
        shape * 4 + self.media as u32
    }
}

const REPRESENTATIONS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const UNTYPED: &str = "application/json, application/yaml";
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// One clause of an Accept header.
struct Clause<'a> {
    name: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Clause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or("");
        let params: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(k, v)| (k.trim(), v.trim().trim_matches('"')))
            .collect();
        let quality = params.iter().find(|(key, _)| *key == "q").and_then(|(_, q)| q.parse().ok()).unwrap_or(1.0);
        Clause { name, params, quality }
    }

    fn get(&self, key: &str) -> &str {
        self.params.iter().find(|(k, _)| *k == key).map_or("", |(_, value)| value)
    }

    /// None if the representation is unknown or not allowed here.
    fn shape(&self, shapes: bool) -> Option<Representation> {
        let wanted = self.get("as");
        if wanted.is_empty() {
            return Some(Representation::Plain);
        }
        let version = match (self.get("g"), self.get("v")) {
            ("meta.k8s.io", "v1") => "v1",
            ("meta.k8s.io", "v1beta1") => "v1beta1",
            _ => return None,
        };
        let shape = match wanted {
            "Table" => Representation::Table(version),
            "PartialObjectMetadata" => Representation::PartialObjectMetadata(version),
            "PartialObjectMetadataList" => Representation::PartialObjectMetadataList(version),
            _ => return None,
        };
        shapes.then_some(shape)
    }
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = accept.split(',').map(Clause::parse).filter(|clause| clause.quality > 0.0).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

/// The media types of an Accept header, the most preferred first, without their parameters.
pub(crate) fn names(accept: &str) -> Vec<&str> {
    clauses(accept).iter().map(|clause| clause.name).collect()
}

/// Chooses the format of the response. `shapes` is true if `as=` is supported here.
pub(crate) fn accept(header: Option<&str>, shapes: bool) -> Result<Accepted, NotAcceptable> {
    accept_typed(header, shapes, true)
}

/// The same for an object that may be untyped: then only its metadata has a protobuf encoding.
pub(crate) fn accept_typed(header: Option<&str>, shapes: bool, typed: bool) -> Result<Accepted, NotAcceptable> {
    let header = header.unwrap_or("").trim();
    // The most common header needs no parsing.
    if matches!(header, "" | "*/*" | "application/json") {
        return Ok(Accepted::JSON);
    }
    let mut known = false;
    for clause in clauses(header) {
        let Some(media) = Media::parse(clause.name) else { continue };
        known = true;
        let pretty = matches!(clause.get("pretty"), "1" | "true");
        if let Some(shape) = clause.shape(shapes)
            && !(media == Media::Protobuf && matches!(shape, Representation::Table(_)))
            && (typed || media != Media::Protobuf || shape != Representation::Plain)
        {
            return Ok(Accepted { media, shape, pretty });
        }
    }
    Err(if known { NotAcceptable::Representation } else { NotAcceptable::Media })
}

/// Nothing that the client accepts is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAcceptable {
    #[error("406: Not Acceptable\n\nAvailable representations: {REPRESENTATIONS}")]
    Media,
    /// Like `Media`, for a watch, which has more representations.
    #[error("406: Not Acceptable\n\nAvailable representations: {REPRESENTATIONS}, {STREAMS}")]
    WatchMedia,
    /// A media type is served, but not in this representation.
    #[error("only the following media types are accepted: {REPRESENTATIONS}")]
    Representation,
}

impl From<NotAcceptable> for Status {
    fn from(error: NotAcceptable) -> Status {
        let mut status = Status::not_acceptable(error.to_string());
        if error != NotAcceptable::Representation {
            status.details = Some(api::status::Details::default());
        }
        status
    }
}

/// The format of a body; JSON by default. A custom resource is not `typed`: it has no protobuf encoding.
pub(crate) fn content_type(header: Option<&str>, typed: bool) -> Result<Media, Status> {
    let name = header.unwrap_or("").split(';').next().unwrap_or("").trim();
    match name {
        "" | "application/json" => Ok(Media::Json),
        "application/yaml" => Ok(Media::Yaml),
        "application/vnd.kubernetes.protobuf" if typed => Ok(Media::Protobuf),
        _ if !typed => Err(Status::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {UNTYPED}"
        ))),
        _ => Err(Status::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {REPRESENTATIONS}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_headers_choose_media_and_shape() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let cases = [
            ("", Some((Media::Json, Representation::Plain))),
            ("*/*", Some((Media::Json, Representation::Plain))),
            ("application/yaml", Some((Media::Yaml, Representation::Plain))),
            ("application/json;q=0.1,application/yaml", Some((Media::Yaml, Representation::Plain))),
            (table, Some((Media::Json, Representation::Table("v1")))),
            ("application/vnd.kubernetes.protobuf,application/json", Some((Media::Protobuf, Representation::Plain))),
            ("application/json;as=Table;g=other;v=v1,application/json", Some((Media::Json, Representation::Plain))),
            ("application/json;as=Table", None),
            ("text/plain", None),
        ];
        for (header, want) in cases {
            let got = accept(Some(header), true).ok().map(|accepted| (accepted.media, accepted.shape));
            assert_eq!(got, want, "{header}");
        }
        assert!(accept(Some("application/json;as=Table;v=v1;g=meta.k8s.io"), false).is_err());
    }
}
