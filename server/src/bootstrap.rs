//! The objects that every cluster has from its first moment.
