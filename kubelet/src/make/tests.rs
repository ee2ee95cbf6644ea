//! What is asked of the runtime, as tables.
