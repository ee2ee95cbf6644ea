//! Statuses.
