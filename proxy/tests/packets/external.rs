//! Traffic from outside.
