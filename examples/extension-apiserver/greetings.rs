//! The resource: its names, and what a valid object is.

use api::Tree;
use api::field::{Errors, Path};
use api::status::Status;

pub(crate) const GROUP: &str = "greetings.example.com";
pub(crate) const VERSION: &str = "v1";
pub(crate) const API_VERSION: &str = "greetings.example.com/v1";
pub(crate) const KIND: &str = "Greeting";
pub(crate) const RESOURCE: &str = "greetings";

/// An error that names every bad field.
pub(crate) fn validate(object: &Tree) -> Result<(), Status> {
    if object.str("apiVersion") != API_VERSION || object.str("kind") != KIND {
        return Err(Status::bad_request(format!("the object must be a {KIND} of {API_VERSION}")));
    }
    let mut errors = Errors::new();
    let name = object.str("metadata.name");
    let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() {
        errors.required(&Path::root("metadata").field("name"), "name is required");
    } else if name.len() > 63 || !name.bytes().all(is_label) {
        errors.invalid(&Path::root("metadata").field("name"), name, "must be lower case letters, digits and '-'");
    }
    if object.str("spec.text").is_empty() {
        errors.required(&Path::root("spec").field("text"), "a greeting has a text");
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(GROUP, KIND, name, &errors)) }
}
