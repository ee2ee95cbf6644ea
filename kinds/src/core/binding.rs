//! Binding.

use crate::kind::{Kind, Verb};

pub static KIND: Kind =
    Kind { verbs: &[Verb::Create], storage: "", ..Kind::namespaced("", "v1", "Binding", "bindings", "binding") };
