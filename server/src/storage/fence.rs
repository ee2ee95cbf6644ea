//! Fencing: with each write an elected component names its lease and the lease's transition. The write succeeds only if
//! both still match, in the same commit. A component that was paused and has lost its lease meanwhile cannot write any
//! more, however late it notices.

use std::sync::Arc;

use api::{Tree, json};
use store::{Committed, Durability, Op, Precondition, Write};

use super::Storage;

/// `NAMESPACE/NAME HOLDER TRANSITIONS`
pub(crate) const HEADER: &str = "tiphys-fence";

/// The maximum number of renewals between a read of the lease and the commit.
const MAX_TRIES: usize = 64;

/// The lease that a write depends on.
#[derive(Debug, PartialEq)]
struct Fence<'a> {
    lease: &'a str,
    holder: &'a str,
    transitions: i64,
}

/// A lease as it is stored.
struct Lease {
    revision: u64,
    tree: Tree,
}

/// Commits writes, with a check of the lease that the request's header names.
pub(crate) async fn commit(
    storage: &Storage,
    header: Option<&str>,
    writes: Vec<Write>,
) -> Result<Vec<Committed>, store::Error> {
    let Some(text) = header else { return storage.store.commit(writes).await };
    let fence = parse(text).ok_or_else(|| refused(format!("{HEADER}: {text:?} names no lease")))?;
    let leases = storage.resources.find("coordination.k8s.io", "v1", "leases").ok_or(store::Error::Closed)?;
    let (namespace, name) = fence.lease.split_once('/').unwrap_or(("", fence.lease));
    let key = leases.store_key(namespace, name);
    if writes.iter().any(|write| write.key == key) {
        return Err(refused(format!("a write to the lease {} cannot go by itself", fence.lease)));
    }
    let mut lease = cached(storage, fence.lease);
    for _ in 0..MAX_TRIES {
        let mut checked = vec![fence.check(&key, lease.as_ref())?];
        checked.extend(writes.iter().cloned());
        match storage.store.commit(checked).await {
            Ok(mut committed) => {
                committed.remove(0);
                return Ok(committed);
            }
            // The lease was renewed, or another component holds it.
            Err(store::Error::Conflict { write: 0, current }) => {
                lease = current.and_then(|entry| stored(storage, &entry))
            }
            Err(store::Error::Conflict { write, current }) => {
                return Err(store::Error::Conflict { write: write - 1, current });
            }
            Err(error) => return Err(error),
        }
    }
    Err(store::Error::Unavailable(format!("the lease {} does not stand still", fence.lease)))
}

fn cached(storage: &Storage, key: &str) -> Option<Lease> {
    let item = storage.caches.get("leases")?.get(key)?;
    Some(Lease { revision: item.revision, tree: item.tree() })
}

fn stored(storage: &Storage, entry: &Arc<store::Entry>) -> Option<Lease> {
    let bytes = storage.adopt(entry)?;
    Some(Lease { revision: entry.revision, tree: json::decode(&bytes).ok()? })
}

fn parse(text: &str) -> Option<Fence<'_>> {
    let mut words = text.split(' ');
    let fence = Fence { lease: words.next()?, holder: words.next()?, transitions: words.next()?.parse().ok()? };
    (words.next().is_none() && fence.lease.contains('/')).then_some(fence)
}

/// The namespace and name of the lease that a header names.
pub(crate) fn lease_of(header: &str) -> Option<(&str, &str)> {
    parse(header)?.lease.split_once('/')
}

impl Fence<'_> {
    /// The precondition on the lease for the writes.
    fn check(&self, key: &str, lease: Option<&Lease>) -> Result<Write, store::Error> {
        let lease = lease.filter(|lease| self.is_held(lease)).ok_or_else(|| self.lost())?;
        Ok(Write {
            key: key.to_string(),
            op: Op::Check,
            expect: Precondition::Revision(lease.revision),
            durability: Durability::Relaxed,
            ttl: None,
            cause: Vec::new(),
        })
    }

    fn is_held(&self, lease: &Lease) -> bool {
        let spec = lease.tree.at("spec");
        spec.str("holderIdentity") == self.holder && spec.int("leaseTransitions").unwrap_or(0) == self.transitions
    }

    /// The text repeats only the request: the caller may not be allowed to read the lease.
    fn lost(&self) -> store::Error {
        let Fence { lease, holder, transitions } = self;
        refused(format!("the lease {lease} is not held by {holder:?} in transition {transitions}"))
    }
}

fn refused(why: String) -> store::Error {
    store::Error::Refused(why)
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn headers_name_a_lease_its_holder_and_a_transition() {
        let want = Fence { lease: "kube-system/a", holder: "host_1", transitions: 3 };
        assert_eq!(parse("kube-system/a host_1 3"), Some(want));
        for text in ["", "a host 3", "x/a host", "x/a host three", "x/a host 3 4"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_holder_of_this_transition_may_write() {
        let check = |holder: &str, transitions: i64, want: bool| {
            let spec = tree! { "holderIdentity" => holder, "leaseTransitions" => transitions };
            let lease = Lease { revision: 7, tree: tree! { "spec" => spec } };
            let fence = Fence { lease: "x/a", holder: "me", transitions: 3 };
            let absent = fence.check("k", None).expect_err("no lease").to_string();
            match fence.check("k", Some(&lease)) {
                Ok(write) => assert_eq!((want, write.expect), (true, Precondition::Revision(7))),
                // The rejection reveals neither the holder of the lease nor whether it exists.
                Err(error) => assert_eq!((want, error.to_string()), (false, absent), "{holder} {transitions}"),
            }
        };
        check("me", 3, true);
        check("me", 4, false);
        check("other", 3, false);
        check("", 3, false);
    }
}
