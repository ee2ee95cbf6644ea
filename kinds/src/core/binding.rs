//! Binding: assigns a pod to a node. It is executed and never stored.

use crate::kind::{Kind, Verb};

/// Binding.
pub static KIND: Kind =
    Kind { verbs: &[Verb::Create], storage: "", ..Kind::namespaced("", "v1", "Binding", "bindings", "binding") };
