//! Empty lists and maps in errors. Decoding omits them from an object, and a rule would report `null`; upstream reports
//! the value that the client sent.

use api::Tree;
use api::field::{Errors, FieldError};
use api::schema::{Ty, Type};
use bytes::Bytes;

use crate::request::negotiate::Media;

const NULL: &str = "Invalid value: null";

/// The errors about an object of this type, with the empty values that the client sent.
pub(crate) fn restore(errors: &Errors, ty: &'static Type, media: Media, body: &Bytes) -> Errors {
    let mut out = Errors::new();
    let mut sent = None;
    for error in errors.iter() {
        let rest = error.message.strip_prefix(NULL);
        let shown = rest.and_then(|rest| {
            let sent = sent.get_or_insert_with(|| decode(media, body));
            Some(format!("Invalid value: {}{rest}", empty_text(find(sent, Ty::Struct(ty), &error.field)?)?))
        });
        let message = shown.unwrap_or_else(|| error.message.clone());
        out.push(FieldError { message, ..error.clone() });
    }
    out
}

/// A body that cannot be decoded has no empty values.
fn decode(media: Media, body: &Bytes) -> Tree {
    match media {
        Media::Json => api::json::decode(body).unwrap_or_default(),
        Media::Yaml => api::yaml::decode(body).unwrap_or_default(),
        // Here an empty list and no list are the same.
        Media::Protobuf => Tree::Null,
    }
}

fn empty_text(value: &Tree) -> Option<&'static str> {
    match value {
        Tree::List(items) if items.is_empty() => Some("[]"),
        Tree::Map(map) if map.is_empty() => Some("{}"),
        _ => None,
    }
}

/// The list or map at a path such as `spec.ports[0].name`. An empty struct is kept: a rule that reports `null` there
/// means something else.
fn find<'a>(tree: &'a Tree, ty: Ty, path: &str) -> Option<&'a Tree> {
    let (value, ty) =
        path.split(['.', '[']).try_fold((tree, ty), |(tree, ty), step| match (step.strip_suffix(']'), ty) {
            (Some(index), Ty::List(item)) => Some((tree.as_list()?.get(index.parse::<usize>().ok()?)?, *item)),
            (None, Ty::Struct(ty)) => Some((tree.get(step)?, ty.field(step)?.ty)),
            _ => None,
        })?;
    matches!(ty, Ty::List(_) | Ty::Map(_)).then_some(value)
}

#[cfg(test)]
mod tests {
    use api::field::Path;

    use super::*;

    #[test]
    fn errors_show_empty_values() {
        let body = br#"{"spec":{"nodeSelector":{},"containers":[{"args":[]},{"args":["x"]}],"volumes":null,"os":{}}}"#;
        let body = Bytes::from_static(body);
        let ty = api::schema::type_of("", "v1", "Pod").expect("a type");
        let check = |path: &str, want: &str| {
            let mut errors = Errors::new();
            errors.invalid(&Path::root(path), &Tree::Null, "no");
            let restored = restore(&errors, ty, Media::Json, &body);
            let texts: Vec<String> = restored.iter().map(ToString::to_string).collect();
            assert_eq!(texts, [format!("{path}: Invalid value: {want}: no")]);
        };
        check("spec.nodeSelector", "{}");
        check("spec.containers[0].args", "[]");
        let others = ["spec.containers[1].args", "spec.containers[2].args", "spec.volumes", "spec.os", "spec", "x[0"];
        for path in others {
            check(path, "null");
        }
    }
}
