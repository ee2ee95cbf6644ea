//! The two ends of the list: a plugin that lets everything pass, and one that lets nothing pass. Both are
//! there for the sake of those who try out a gate.

use api::Tree;
use api::status::Status;

use super::Attributes;

pub fn admit(_: &Attributes<'_>, _: Option<&Tree>, _: Option<&Tree>, _: &mut Vec<String>) -> Result<(), Status> {
    Ok(())
}

pub fn deny(
    attributes: &Attributes<'_>,
    _: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    // What the server writes of itself passes: it could not start otherwise.
    match attributes.call {
        Some(_) => Err(attributes.forbidden("admission control is denying all modifications")),
        None => Ok(()),
    }
}
