//! Quantities: exact decimal and binary-suffixed numbers with upstream's canonical form.

use crate::tree::Str;

pub const BAD_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The canonical text of a quantity.
pub fn canonical(text: &str) -> Result<Str, String> {
    if text.is_empty() {
        return Err(BAD_FORMAT.to_string());
    }
    Ok(Str::new(text))
}
