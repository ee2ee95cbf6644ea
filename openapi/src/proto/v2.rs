//! The messages of `openapi.v2`.

use api::Tree;

use super::FieldType::{Any, Flag, Int, List, Message as One, Number, OneOf, Text, Wrapped};
use super::{Alternatives, Message, field, map_of, pick_boolean, pick_reference};

pub(crate) static DOCUMENT: Message = Message {
    fields: &[
        field(1, "swagger", Text),
        field(2, "info", One(&INFO)),
        field(8, "paths", One(&PATHS)),
        field(9, "definitions", One(&PROPERTIES)),
        field(10, "parameters", One(&PARAMETERS)),
        field(12, "security", List(&One(&SECURITY_REQUIREMENT))),
        field(13, "securityDefinitions", One(&SECURITY_DEFINITIONS)),
    ],
    extensions: Some(16),
    named: None,
};

static INFO: Message = Message {
    fields: &[field(1, "title", Text), field(2, "version", Text), field(3, "description", Text)],
    extensions: Some(7),
    named: None,
};

static PATHS: Message = Message { fields: &[], extensions: Some(1), named: Some((2, One(&PATH_ITEM))) };

static PATH_ITEM: Message = Message {
    fields: &[
        field(1, "$ref", Text),
        field(2, "get", One(&OPERATION)),
        field(3, "put", One(&OPERATION)),
        field(4, "post", One(&OPERATION)),
        field(5, "delete", One(&OPERATION)),
        field(6, "options", One(&OPERATION)),
        field(7, "head", One(&OPERATION)),
        field(8, "patch", One(&OPERATION)),
        field(9, "parameters", List(&OneOf(&PARAMETERS_ITEM))),
    ],
    extensions: Some(10),
    named: None,
};

static OPERATION: Message = Message {
    fields: &[
        field(1, "tags", List(&Text)),
        field(2, "summary", Text),
        field(3, "description", Text),
        field(5, "operationId", Text),
        field(6, "produces", List(&Text)),
        field(7, "consumes", List(&Text)),
        field(8, "parameters", List(&OneOf(&PARAMETERS_ITEM))),
        field(9, "responses", One(&RESPONSES)),
        field(10, "schemes", List(&Text)),
        field(11, "deprecated", Flag),
        field(12, "security", List(&One(&SECURITY_REQUIREMENT))),
    ],
    extensions: Some(13),
    named: None,
};

static RESPONSES: Message = Message { fields: &[], extensions: Some(2), named: Some((1, OneOf(&RESPONSE_VALUE))) };
static RESPONSE_VALUE: Alternatives =
    Alternatives { options: &[(1, One(&RESPONSE)), (2, One(&JSON_REFERENCE))], pick: pick_reference };
static RESPONSE: Message = Message {
    fields: &[field(1, "description", Text), field(2, "schema", OneOf(&SCHEMA_ITEM))],
    extensions: Some(5),
    named: None,
};
/// A response is never a file here.
static SCHEMA_ITEM: Alternatives = Alternatives { options: &[(1, One(&SCHEMA))], pick: |_| Some(0) };

static PARAMETERS: Message = map_of(OneOf(&PARAMETER));
static PARAMETERS_ITEM: Alternatives =
    Alternatives { options: &[(1, OneOf(&PARAMETER)), (2, One(&JSON_REFERENCE))], pick: pick_reference };
static PARAMETER: Alternatives =
    Alternatives { options: &[(1, One(&BODY_PARAMETER)), (2, OneOf(&NON_BODY))], pick: pick_body };
static NON_BODY: Alternatives =
    Alternatives { options: &[(3, One(&QUERY_PARAMETER)), (4, One(&PATH_PARAMETER))], pick: pick_location };

fn pick_body(parameter: &Tree) -> Option<usize> {
    Some(usize::from(parameter.str("in") != "body"))
}

fn pick_location(parameter: &Tree) -> Option<usize> {
    match parameter.str("in") {
        "query" => Some(0),
        "path" => Some(1),
        _ => None,
    }
}

static JSON_REFERENCE: Message =
    Message { fields: &[field(1, "$ref", Text), field(2, "description", Text)], extensions: None, named: None };

static BODY_PARAMETER: Message = Message {
    fields: &[
        field(1, "description", Text),
        field(2, "name", Text),
        field(3, "in", Text),
        field(4, "required", Flag),
        field(5, "schema", One(&SCHEMA)),
    ],
    extensions: Some(6),
    named: None,
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        field(1, "required", Flag),
        field(2, "in", Text),
        field(3, "description", Text),
        field(4, "name", Text),
        field(6, "type", Text),
        field(7, "format", Text),
        field(20, "uniqueItems", Flag),
    ],
    extensions: Some(23),
    named: None,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        field(1, "required", Flag),
        field(2, "in", Text),
        field(3, "description", Text),
        field(4, "name", Text),
        field(5, "type", Text),
        field(6, "format", Text),
        field(19, "uniqueItems", Flag),
    ],
    extensions: Some(22),
    named: None,
};

static SCHEMA: Message = Message {
    fields: &[
        field(1, "$ref", Text),
        field(2, "format", Text),
        field(3, "title", Text),
        field(4, "description", Text),
        field(5, "default", Any),
        field(6, "multipleOf", Number),
        field(7, "maximum", Number),
        field(8, "exclusiveMaximum", Flag),
        field(9, "minimum", Number),
        field(10, "exclusiveMinimum", Flag),
        field(11, "maxLength", Int),
        field(12, "minLength", Int),
        field(13, "pattern", Text),
        field(14, "maxItems", Int),
        field(15, "minItems", Int),
        field(16, "uniqueItems", Flag),
        field(17, "maxProperties", Int),
        field(18, "minProperties", Int),
        field(19, "required", List(&Text)),
        field(20, "enum", List(&Any)),
        field(21, "additionalProperties", OneOf(&ADDITIONAL_PROPERTIES)),
        field(22, "type", Wrapped(&Text)),
        field(23, "items", Wrapped(&One(&SCHEMA))),
        field(24, "allOf", List(&One(&SCHEMA))),
        field(25, "properties", One(&PROPERTIES)),
        field(26, "discriminator", Text),
        field(27, "readOnly", Flag),
        field(30, "example", Any),
    ],
    extensions: Some(31),
    named: None,
};

static PROPERTIES: Message = map_of(One(&SCHEMA));
static ADDITIONAL_PROPERTIES: Alternatives =
    Alternatives { options: &[(1, One(&SCHEMA)), (2, Flag)], pick: pick_boolean };

static SECURITY_REQUIREMENT: Message = map_of(Wrapped(&List(&Text)));
static SECURITY_DEFINITIONS: Message = map_of(OneOf(&SECURITY_ITEM));
/// The documents only use API key authentication.
static SECURITY_ITEM: Alternatives = Alternatives { options: &[(2, One(&API_KEY))], pick: |_| Some(0) };
static API_KEY: Message = Message {
    fields: &[field(1, "type", Text), field(2, "name", Text), field(3, "in", Text), field(4, "description", Text)],
    extensions: Some(5),
    named: None,
};
