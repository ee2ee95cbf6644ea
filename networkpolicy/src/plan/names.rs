//! The names of chains and sets.

use std::collections::BTreeMap;

use crate::model::{Direction, Policy};

/// The kernel has names of up to 255 bytes, and names of sets are longer than those of their policies.
const LONGEST: usize = 200;

/// The name of a direction, and of its base chain.
pub(super) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}

/// The chain of a policy.
pub(super) fn policy(of: Direction, policy: &Policy) -> String {
    let Policy { namespace, name, uid, .. } = policy;
    let direction = direction(of);
    let readable = format!("{direction}/{namespace}/{name}");
    if readable.len() <= LONGEST { readable } else { format!("{direction}-uid/{uid}") }
}

/// The chains of groups: pods to which the same policies apply share one.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<String, Vec<String>>);

impl Groups {
    /// The name for a list of policies' chains, and whether it is new. Policies of one namespace select its pods only,
    /// so the name has the namespace: no name that a tenant chooses leads to a group of another tenant.
    pub(super) fn name(&mut self, of: Direction, namespace: &str, policies: &[String]) -> (String, bool) {
        let mut hash = stdx::fnv::fnv1a_64(policies.join("\n").into_bytes());
        loop {
            let name = format!("{}-group/{namespace}/{hash:016x}", direction(of));
            match self.0.get(&name) {
                None => {
                    self.0.insert(name.clone(), policies.to_vec());
                    return (name, true);
                }
                Some(known) if known == policies => return (name, false),
                Some(_) => hash = hash.wrapping_add(1),
            }
        }
    }
}
