//! A text of a type or field.

/// Type, field and text; the field is empty for the type itself.
pub(crate) type Row = (Box<str>, Box<str>, Box<str>);
