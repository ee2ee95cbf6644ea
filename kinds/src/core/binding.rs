//! Binding: an order to put a pod on a node. It is carried out and never stored.

use crate::kind::{Kind, Verb};

pub static KIND: Kind =
    Kind { verbs: &[Verb::Create], storage: "", ..Kind::namespaced("", "v1", "Binding", "bindings", "binding") };
