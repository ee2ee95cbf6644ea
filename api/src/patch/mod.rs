//! JSON patch, merge patch and strategic merge patch. All operate on trees; the result may have unknown fields, which
//! `typed::conform` handles.

mod convert;
mod go;
pub mod json;
mod merge;
mod order;
mod strategic;

use crate::json::Strict;
use crate::tree::{MAX_DEPTH, Map, Tree};

pub use convert::unconvertible;
pub use go::print as printed;
pub use merge::merge;
pub use strategic::strategic;

/// Why a patch could not be applied, by response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// 400 with this message.
    #[error("{0}")]
    BadRequest(String),
    /// 413 with this message.
    #[error("{0}")]
    TooLarge(String),
    /// 422; upstream returns a general message, the cause is for the log.
    #[error(transparent)]
    Unprocessable(#[from] Unprocessable),
    /// 500 with this message: upstream's response to a patch that does not match the object.
    #[error("{0}")]
    Internal(String),
}

/// Why a valid patch does not apply to the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unprocessable {
    #[error(transparent)]
    Operation(#[from] json::OperationError),
    #[error("lists of lists are not supported")]
    ListOfLists,
}

/// Decodes a merge patch or strategic merge patch, which must be an object.
pub fn decode_object(bytes: &[u8], strict: &mut Strict) -> Result<Tree, Error> {
    let tree =
        crate::json::decode_as(bytes, None, strict).map_err(|_| Error::BadRequest("invalid JSON patch".to_string()))?;
    match tree {
        Tree::Map(_) => Ok(tree),
        other => Err(Error::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::json_kind(&other)
        ))),
    }
}

/// Whether a value below a path of this length would make the tree too deep.
fn too_deep(value: &Tree, above: usize) -> bool {
    above > MAX_DEPTH || value.exceeds_depth(MAX_DEPTH - above)
}

/// Entry point of the robustness tests: the first byte selects the patch type, the rest is split by a zero byte into
/// object and patch. Nothing may panic, and no result may be too deep.
pub fn fuzz_patch(data: &[u8]) {
    let Some((pick, rest)) = data.split_first() else { return };
    let Some(at) = rest.iter().position(|byte| *byte == 0) else { return };
    let (object, patch) = (&rest[..at], &rest[at + 1..]);
    let Ok(object @ Tree::Map(_)) = crate::json::decode(object) else { return };
    let mut strict = Strict::default();
    let patched = match pick % 3 {
        0 => json::decode(patch, &mut strict).and_then(|operations| json::apply(object, &operations)),
        1 => decode_object(patch, &mut strict).map(|patch| merge(object, &patch)),
        _ => {
            let Some(ty) = crate::schema::type_of("", "v1", "Pod") else { return };
            decode_object(patch, &mut strict).and_then(|patch| strategic(object, &patch, ty))
        }
    };
    if let Ok(tree) = patched {
        assert!(!too_deep(&tree, 0), "a patch made a tree too deep");
    }
}

/// The map of an object, or an empty one.
fn into_map(tree: Tree) -> Map {
    match tree {
        Tree::Map(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
