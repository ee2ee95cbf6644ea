//! AlwaysAdmit and AlwaysDeny, for tests of admission.

use api::Tree;
use api::status::Status;

use super::Attributes;

pub(super) fn admit(_: &Attributes<'_>, _: Option<&Tree>, _: Option<&Tree>, _: &mut Vec<String>) -> Result<(), Status> {
    Ok(())
}

pub(crate) fn deny(
    attributes: &Attributes<'_>,
    _: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    // Writes of the server itself are admitted: it could not start otherwise.
    match attributes.origin {
        Some(_) => Err(attributes.forbidden("admission control is denying all modifications")),
        None => Ok(()),
    }
}
