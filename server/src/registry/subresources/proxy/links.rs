//! Rewrites the links of proxied pages: links to the target's host lead through the proxy, as in upstream's transport.
//! A page is rewritten while it is streamed, and only the values of attributes change.

use std::io::Write;

use bytes::Bytes;
use flate2::write::{DeflateDecoder, GzDecoder};

use crate::request::body::Source;

/// Elements and their attributes that hold a URL.
const ATTRIBUTES: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is plain text.
const RAW_TEXT: &[&str] =
    &["iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "title", "xmp"];

/// A tag or comment that is longer is passed on as it is.
const MAX_TOKEN_BYTES: usize = 64 << 10;
/// The size of the pieces in which a page is decompressed: a small piece cannot expand into a large one.
const PIECE_BYTES: usize = 4 << 10;

/// The target of a page's links.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    /// The client's path up to and with `proxy`.
    pub prefix: String,
    /// The host of the target, and the host that the client requested.
    pub hosts: [String; 2],
}

impl Location {
    /// Rewrites a URL to lead through the proxy; a URL of another host and a relative URL stay unchanged.
    pub(crate) fn rewrite(&self, url: &str) -> String {
        self.rewritten(url).unwrap_or_else(|| url.to_string())
    }

    fn rewritten(&self, url: &str) -> Option<String> {
        let end = url.find(['?', '#']).unwrap_or(url.len());
        let (before, behind) = url.split_at(end);
        let (origin, host, path) = split_origin(before);
        let is_foreign = !host.is_empty() && !self.hosts.iter().any(|own| own == host);
        if is_foreign || !path.starts_with('/') {
            return None;
        }
        let origin = if host == self.hosts[1] { origin } else { "" };
        if path.starts_with(&self.prefix) {
            return Some(format!("{origin}{path}{behind}"));
        }
        let slash = if path.ends_with('/') { "/" } else { "" };
        Some(format!("{origin}{}{slash}{behind}", clean(&format!("{}{path}", self.prefix))))
    }
}

/// `SCHEME://HOST`, its host, and the path.
fn split_origin(url: &str) -> (&str, &str, &str) {
    let scheme = url.find("//").filter(|at| *at == 0 || is_scheme(&url[..*at]));
    let Some(start) = scheme.map(|at| at + 2) else { return ("", "", url) };
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    (&url[..end], &url[start..end], &url[end..])
}

fn is_scheme(text: &str) -> bool {
    let Some(name) = text.strip_suffix(':') else { return false };
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// A path without empty and dotted parts, and without a slash at its end.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The content encoding of a page.
#[derive(Debug)]
pub(crate) enum Encoding {
    Plain,
    Gzip(GzDecoder<Vec<u8>>),
    Deflate(DeflateDecoder<Vec<u8>>),
}

impl Encoding {
    /// None for an unknown encoding: such a page is passed unchanged.
    pub(super) fn named(name: &str) -> Option<Encoding> {
        match name {
            "" => Some(Encoding::Plain),
            "gzip" => Some(Encoding::Gzip(GzDecoder::new(Vec::new()))),
            "deflate" => Some(Encoding::Deflate(DeflateDecoder::new(Vec::new()))),
            _ => None,
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Encoding::Plain => Ok(bytes.to_vec()),
            Encoding::Gzip(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Encoding::Deflate(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
        }
    }
}

/// A page that is streamed to the client.
pub(crate) struct Page<S> {
    source: S,
    encoding: Encoding,
    /// The bytes of the source that are not processed yet.
    piece: Bytes,
    links: Links,
    is_done: bool,
}

impl<S> Page<S> {
    pub(super) fn new(source: S, encoding: Encoding, place: Location) -> Page<S> {
        Page { source, encoding, piece: Bytes::new(), links: Links::new(place), is_done: false }
    }
}

impl<S: Source> Source for Page<S> {
    async fn next(&mut self) -> Option<Bytes> {
        while !self.is_done {
            if self.piece.is_empty() {
                match self.source.next().await {
                    Some(piece) => self.piece = piece,
                    None => {
                        self.is_done = true;
                        return Some(self.links.finish()).filter(|rest| !rest.is_empty());
                    }
                }
            }
            let piece = self.piece.split_to(PIECE_BYTES.min(self.piece.len()));
            let Ok(decoded) = self.encoding.decode(&piece).inspect_err(|error| {
                tracing::debug!(%error, "failed to decode proxied page");
            }) else {
                self.is_done = true;
                return None;
            };
            let ready = self.links.push(&decoded);
            if !ready.is_empty() {
                return Some(ready);
            }
        }
        None
    }
}

/// Finds the tags of a page while it is streamed.
struct Links {
    place: Location,
    pending: Vec<u8>,
    /// The element whose text this is.
    raw_text: Option<&'static str>,
}

/// The token at the start of the remaining bytes.
enum Token {
    /// This many bytes are passed unchanged.
    Plain(usize),
    StartTag(Tag),
    /// More bytes are needed.
    Incomplete,
}

/// A start tag: its length, its name and the values of its attributes as ranges of bytes.
struct Tag {
    length: usize,
    name: String,
    values: Vec<(String, std::ops::Range<usize>)>,
}

impl Links {
    fn new(place: Location) -> Links {
        Links { place, pending: Vec::new(), raw_text: None }
    }

    /// Adds bytes; returns the bytes that are ready to be sent.
    fn push(&mut self, bytes: &[u8]) -> Bytes {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let (mut out, mut at) = (Vec::with_capacity(pending.len() + 256), 0);
        while at < pending.len() {
            let rest = &pending[at..];
            match self.token(rest) {
                Token::Incomplete if rest.len() <= MAX_TOKEN_BYTES => break,
                Token::Incomplete => {
                    out.extend_from_slice(rest);
                    at = pending.len();
                }
                Token::Plain(length) => {
                    out.extend_from_slice(&rest[..length]);
                    at += length;
                }
                Token::StartTag(tag) => {
                    self.write_tag(&rest[..tag.length], &tag, &mut out);
                    at += tag.length;
                    self.raw_text = RAW_TEXT.iter().find(|name| **name == tag.name).copied();
                }
            }
        }
        self.pending = pending[at..].to_vec();
        Bytes::from(out)
    }

    fn finish(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.pending))
    }

    fn token(&mut self, rest: &[u8]) -> Token {
        if let Some(name) = self.raw_text {
            return self.raw_token(rest, name);
        }
        match rest {
            [b'<', next, ..] if next.is_ascii_alphabetic() => {
                start_tag(rest).map_or(Token::Incomplete, Token::StartTag)
            }
            [b'<', b'!', b'-', b'-', ..] => find(rest, b"-->").map_or(Token::Incomplete, |at| Token::Plain(at + 3)),
            b"<" | b"<!" | b"<!-" => Token::Incomplete,
            [b'<', b'!' | b'?' | b'/', ..] => find(rest, b">").map_or(Token::Incomplete, |at| Token::Plain(at + 1)),
            _ => Token::Plain(1 + rest[1..].iter().position(|byte| *byte == b'<').unwrap_or(rest.len() - 1)),
        }
    }

    /// Text up to the end tag of its element.
    fn raw_token(&mut self, rest: &[u8], name: &str) -> Token {
        let end = format!("</{name}");
        let is_end = |window: &[u8]| window.eq_ignore_ascii_case(end.as_bytes());
        match rest.windows(end.len()).position(is_end) {
            Some(at) => {
                self.raw_text = None;
                // The end tag itself is the next token.
                if at == 0 { Token::Plain(1) } else { Token::Plain(at) }
            }
            None if rest.len() < end.len() => Token::Incomplete,
            None => Token::Plain(rest.len() - end.len() + 1),
        }
    }

    fn write_tag(&self, bytes: &[u8], tag: &Tag, out: &mut Vec<u8>) {
        let wanted = ATTRIBUTES.iter().find(|(name, _)| *name == tag.name).map_or(&[][..], |(_, names)| names);
        let mut at = 0;
        for (_, range) in tag.values.iter().filter(|(name, _)| wanted.contains(&name.as_str())) {
            let Ok(url) = std::str::from_utf8(&bytes[range.clone()]) else { continue };
            out.extend_from_slice(&bytes[at..range.start]);
            out.extend_from_slice(self.place.rewrite(url).as_bytes());
            at = range.end;
        }
        out.extend_from_slice(&bytes[at..]);
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// A start tag that is whole.
fn start_tag(bytes: &[u8]) -> Option<Tag> {
    let mut scan = Scanner { bytes, at: 1 };
    let name = scan.until(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>'))?;
    let name = String::from_utf8_lossy(&bytes[name]).to_ascii_lowercase();
    let mut values = Vec::new();
    loop {
        scan.until(|byte| !byte.is_ascii_whitespace() && byte != b'/')?;
        if bytes[scan.at] == b'>' {
            return Some(Tag { length: scan.at + 1, name, values });
        }
        let start = scan.at;
        // A name may begin with `=`, which then is a part of the name.
        scan.at += 1;
        scan.until(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | b'='))?;
        let attribute = String::from_utf8_lossy(&bytes[start..scan.at]).to_ascii_lowercase();
        scan.until(|byte| !byte.is_ascii_whitespace())?;
        if bytes[scan.at] == b'=' {
            scan.at += 1;
            values.push((attribute, scan.value()?));
        }
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// Advances to the first byte that ends this part.
    fn until(&mut self, ends: impl Fn(u8) -> bool) -> Option<std::ops::Range<usize>> {
        let start = self.at;
        let length = self.bytes.get(start..)?.iter().position(|byte| ends(*byte))?;
        self.at = start + length;
        Some(start..self.at)
    }

    fn value(&mut self) -> Option<std::ops::Range<usize>> {
        self.until(|byte| !byte.is_ascii_whitespace())?;
        let quote = self.bytes[self.at];
        if !matches!(quote, b'"' | b'\'') {
            return self.until(|byte| byte.is_ascii_whitespace() || byte == b'>');
        }
        self.at += 1;
        let range = self.until(|byte| byte == quote)?;
        self.at += 1;
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "/api/v1/namespaces/a/pods/b/proxy";

    fn place() -> Location {
        Location { prefix: PREFIX.to_string(), hosts: ["10.0.0.1:80".to_string(), "localhost:8001".to_string()] }
    }

    #[test]
    fn a_link_of_the_target_leads_through_the_proxy() {
        let check = |url: &str, want: &str| assert_eq!(place().rewrite(url), want.replace("PREFIX", PREFIX), "{url}");
        check("/", "PREFIX/");
        check("/x/y?a=/b#c", "PREFIX/x/y?a=/b#c");
        check("/x//y/../z/", "PREFIX/x/z/");
        check("http://10.0.0.1:80/x", "PREFIX/x");
        check("//10.0.0.1:80/x", "PREFIX/x");
        check("https://localhost:8001/x", "https://localhost:8001PREFIX/x");
        check(&format!("{PREFIX}/x"), "PREFIX/x");
        for same in ["", "x", "./x", "#top", "?q=/", "mailto:a@b", "http://10.0.0.1:80", "http://else/x", "//else/x"] {
            check(same, same);
        }
    }

    /// Checks the page in one piece and byte by byte.
    fn check(page: &str, want: &str) {
        let want = want.replace("PREFIX", PREFIX);
        for size in [page.len().max(1), 1, 7] {
            let mut links = Links::new(place());
            let mut got = Vec::new();
            page.as_bytes().chunks(size).for_each(|piece| got.extend_from_slice(&links.push(piece)));
            got.extend_from_slice(&links.finish());
            assert_eq!(String::from_utf8_lossy(&got), want, "{page} in pieces of {size}");
        }
    }

    #[test]
    fn only_values_of_links_are_changed() {
        check(r#"<p>x < y <a href="/x">z</a>"#, r#"<p>x < y <a href="PREFIX/x">z</a>"#);
        check("<A HREF='/x' class=b>", "<A HREF='PREFIX/x' class=b>");
        check("<img alt='>' src=/x/y.png><br/>", "<img alt='>' src=PREFIX/x/y.png><br/>");
        check(r#"<a name="/x" hreflang=/x>"#, r#"<a name="/x" hreflang=/x>"#);
        check(r#"<p href="/x">"#, r#"<p href="/x">"#);
        check(
            r#"<script src="/x">a = '<a href="/y">';</script><a href="/z">"#,
            r#"<script src="PREFIX/x">a = '<a href="/y">';</script><a href="PREFIX/z">"#,
        );
        check(r#"<!-- <a href="/x"> --><a href="/y">"#, r#"<!-- <a href="/x"> --><a href="PREFIX/y">"#);
        check(r#"<!DOCTYPE html><html manifest="/m">"#, r#"<!DOCTYPE html><html manifest="PREFIX/m">"#);
        check("<title><a href=/x></TITLE ><a href=/y>", "<title><a href=/x></TITLE ><a href=PREFIX/y>");
        check(
            "<video poster = \"/p\" src\n=\n'/s' controls>",
            "<video poster = \"PREFIX/p\" src\n=\n'PREFIX/s' controls>",
        );
        check("<a href=\"/x", "<a href=\"/x");
        check("<a =\"/x\" href=\"/y\">é</a>", "<a =\"/x\" href=\"PREFIX/y\">é</a>");
        check("", "");
    }

    #[test]
    fn passes_unterminated_tokens_unchanged() {
        let mut links = Links::new(place());
        let open = format!("<a title=\"{}", "x".repeat(MAX_TOKEN_BYTES));
        assert_eq!(links.push(open.as_bytes()).len(), open.len());
        assert!(links.pending.is_empty());
    }

    struct ChunkSource(Vec<Bytes>);

    impl Source for ChunkSource {
        async fn next(&mut self) -> Option<Bytes> {
            if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
        }
    }

    #[tokio::test]
    async fn rewrites_compressed_pages() {
        let page = r#"<a href="/x">z</a>"#.repeat(1000);
        let zipped = crate::request::compress::gzip(page.as_bytes());
        let encoding = Encoding::named("gzip").expect("gzip is known");
        let pieces = zipped.chunks(10).map(Bytes::copy_from_slice).collect();
        let mut body = Page::new(ChunkSource(pieces), encoding, place());
        let mut got = Vec::new();
        while let Some(piece) = body.next().await {
            got.extend_from_slice(&piece);
        }
        let want = format!(r#"<a href="{PREFIX}/x">z</a>"#).repeat(1000);
        assert_eq!(String::from_utf8_lossy(&got), want);
        assert!(Encoding::named("br").is_none());
    }
}
