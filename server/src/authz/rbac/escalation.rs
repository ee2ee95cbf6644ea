//! Nobody can give what they do not have.
