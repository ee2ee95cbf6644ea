//! The messages of `openapi.v3`.

use api::Tree;

use super::FieldType::{Any, Flag, Int, List, Message as One, Number, OneOf, Text, Wrapped};
use super::{Alternatives, Message, field, map_of, pick_boolean, pick_reference};

pub(crate) static DOCUMENT: Message = Message {
    fields: &[
        field(1, "openapi", Text),
        field(2, "info", One(&INFO)),
        field(4, "paths", One(&PATHS)),
        field(5, "components", One(&COMPONENTS)),
        field(6, "security", List(&One(&SECURITY_REQUIREMENT))),
    ],
    extensions: Some(9),
    named: None,
};

static INFO: Message = Message {
    fields: &[field(1, "title", Text), field(2, "description", Text), field(6, "version", Text)],
    extensions: Some(7),
    named: None,
};

static COMPONENTS: Message = Message {
    fields: &[field(1, "schemas", One(&PROPERTIES)), field(7, "securitySchemes", One(&SECURITY_SCHEMES))],
    extensions: Some(10),
    named: None,
};

static PATHS: Message = Message { fields: &[], extensions: Some(2), named: Some((1, One(&PATH_ITEM))) };

static PATH_ITEM: Message = Message {
    fields: &[
        field(1, "$ref", Text),
        field(2, "summary", Text),
        field(3, "description", Text),
        field(4, "get", One(&OPERATION)),
        field(5, "put", One(&OPERATION)),
        field(6, "post", One(&OPERATION)),
        field(7, "delete", One(&OPERATION)),
        field(8, "options", One(&OPERATION)),
        field(9, "head", One(&OPERATION)),
        field(10, "patch", One(&OPERATION)),
        field(13, "parameters", List(&OneOf(&PARAMETER_OR_REFERENCE))),
    ],
    extensions: Some(14),
    named: None,
};

static OPERATION: Message = Message {
    fields: &[
        field(1, "tags", List(&Text)),
        field(2, "summary", Text),
        field(3, "description", Text),
        field(5, "operationId", Text),
        field(6, "parameters", List(&OneOf(&PARAMETER_OR_REFERENCE))),
        field(7, "requestBody", OneOf(&BODY_OR_REFERENCE)),
        field(8, "responses", One(&RESPONSES)),
        field(10, "deprecated", Flag),
        field(11, "security", List(&One(&SECURITY_REQUIREMENT))),
    ],
    extensions: Some(13),
    named: None,
};

static PARAMETER_OR_REFERENCE: Alternatives =
    Alternatives { options: &[(1, One(&PARAMETER)), (2, One(&REFERENCE))], pick: pick_reference };
static PARAMETER: Message = Message {
    fields: &[
        field(1, "name", Text),
        field(2, "in", Text),
        field(3, "description", Text),
        field(4, "required", Flag),
        field(10, "schema", OneOf(&SCHEMA_OR_REFERENCE)),
    ],
    extensions: Some(14),
    named: None,
};

static BODY_OR_REFERENCE: Alternatives =
    Alternatives { options: &[(1, One(&REQUEST_BODY)), (2, One(&REFERENCE))], pick: pick_reference };
static REQUEST_BODY: Message = Message {
    fields: &[field(1, "description", Text), field(2, "content", One(&MEDIA_TYPES)), field(3, "required", Flag)],
    extensions: Some(4),
    named: None,
};

static MEDIA_TYPES: Message = map_of(One(&MEDIA_TYPE));
static MEDIA_TYPE: Message =
    Message { fields: &[field(1, "schema", OneOf(&SCHEMA_OR_REFERENCE))], extensions: Some(5), named: None };

static RESPONSES: Message = Message {
    fields: &[field(1, "default", OneOf(&RESPONSE_OR_REFERENCE))],
    extensions: Some(3),
    named: Some((2, OneOf(&RESPONSE_OR_REFERENCE))),
};
static RESPONSE_OR_REFERENCE: Alternatives =
    Alternatives { options: &[(1, One(&RESPONSE)), (2, One(&REFERENCE))], pick: pick_reference };
static RESPONSE: Message = Message {
    fields: &[field(1, "description", Text), field(3, "content", One(&MEDIA_TYPES))],
    extensions: Some(5),
    named: None,
};

static REFERENCE: Message = Message { fields: &[field(1, "$ref", Text)], extensions: None, named: None };

static SCHEMA_OR_REFERENCE: Alternatives =
    Alternatives { options: &[(1, One(&SCHEMA)), (2, One(&REFERENCE))], pick: pick_reference };
static SCHEMA: Message = Message {
    fields: &[
        field(1, "nullable", Flag),
        field(3, "readOnly", Flag),
        field(4, "writeOnly", Flag),
        field(7, "example", Any),
        field(8, "deprecated", Flag),
        field(9, "title", Text),
        field(10, "multipleOf", Number),
        field(11, "maximum", Number),
        field(12, "exclusiveMaximum", Flag),
        field(13, "minimum", Number),
        field(14, "exclusiveMinimum", Flag),
        field(15, "maxLength", Int),
        field(16, "minLength", Int),
        field(17, "pattern", Text),
        field(18, "maxItems", Int),
        field(19, "minItems", Int),
        field(20, "uniqueItems", Flag),
        field(21, "maxProperties", Int),
        field(22, "minProperties", Int),
        field(23, "required", List(&Text)),
        field(24, "enum", List(&Any)),
        field(25, "type", Text),
        field(26, "allOf", List(&OneOf(&SCHEMA_OR_REFERENCE))),
        field(27, "oneOf", List(&OneOf(&SCHEMA_OR_REFERENCE))),
        field(28, "anyOf", List(&OneOf(&SCHEMA_OR_REFERENCE))),
        field(29, "not", One(&SCHEMA)),
        field(30, "items", Wrapped(&OneOf(&SCHEMA_OR_REFERENCE))),
        field(31, "properties", One(&PROPERTIES)),
        field(32, "additionalProperties", OneOf(&ADDITIONAL_PROPERTIES)),
        field(33, "default", OneOf(&DEFAULT_TYPE)),
        field(34, "description", Text),
        field(35, "format", Text),
    ],
    extensions: Some(36),
    named: None,
};

static PROPERTIES: Message = map_of(OneOf(&SCHEMA_OR_REFERENCE));
static ADDITIONAL_PROPERTIES: Alternatives =
    Alternatives { options: &[(1, OneOf(&SCHEMA_OR_REFERENCE)), (2, Flag)], pick: pick_boolean };

/// List and object defaults cannot be represented.
static DEFAULT_TYPE: Alternatives = Alternatives { options: &[(1, Number), (2, Flag), (3, Text)], pick: pick_default };

fn pick_default(value: &Tree) -> Option<usize> {
    match value {
        Tree::Int(_) | Tree::Float(_) => Some(0),
        Tree::Bool(_) => Some(1),
        Tree::Str(_) => Some(2),
        _ => None,
    }
}

static SECURITY_REQUIREMENT: Message = map_of(Wrapped(&List(&Text)));
static SECURITY_SCHEMES: Message = map_of(OneOf(&SECURITY_SCHEME_OR_REFERENCE));
static SECURITY_SCHEME_OR_REFERENCE: Alternatives =
    Alternatives { options: &[(1, One(&SECURITY_SCHEME)), (2, One(&REFERENCE))], pick: pick_reference };
static SECURITY_SCHEME: Message = Message {
    fields: &[field(1, "type", Text), field(2, "description", Text), field(3, "name", Text), field(4, "in", Text)],
    extensions: Some(9),
    named: None,
};
