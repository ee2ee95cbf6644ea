//! The header with which a component says why it writes: its name, and the object and revision that it acts on. The
//! server keeps it with the write if the account is one of a component; others ignore it.

use http::HeaderValue;

use crate::Resource;

pub(crate) const HEADER: &str = "tiphys-cause";

tokio::task_local! {
    static CAUSE: Cause;
}

/// Why a component writes.
#[derive(Debug, Clone)]
pub struct Cause(HeaderValue);

impl Cause {
    /// The component alone: what it acts on is unknown, or not one object.
    pub fn component(name: &'static str) -> Cause {
        Cause(HeaderValue::from_static(name))
    }

    /// The component, and the object and revision that it acts on.
    pub fn object(name: &'static str, resource: Resource, key: &str, revision: u64) -> Cause {
        let text = match resource.group {
            "" => format!("{name} {} {key} {revision}", resource.plural),
            group => format!("{name} {}.{group} {key} {revision}", resource.plural),
        };
        // A key that no header can carry is no key of an object.
        HeaderValue::try_from(text).map_or_else(|_| Cause::component(name), Cause)
    }

    /// Runs a future whose writes have this cause.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CAUSE.scope(self, work).await
    }
}

/// The cause of the calling task.
pub(crate) fn current() -> Option<Cause> {
    CAUSE.try_with(Cause::clone).ok()
}

pub(crate) fn header() -> Option<HeaderValue> {
    CAUSE.try_with(|cause| cause.0.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cause: &Cause, expected: &str) {
        assert_eq!(cause.0.to_str().ok(), Some(expected));
    }

    #[test]
    fn names_component_object_and_revision() {
        let deployments = Resource::new("apps", "v1", "deployments");
        check(&Cause::component("kubelet"), "kubelet");
        check(&Cause::object("kubelet", Resource::core("pods"), "a/b", 7), "kubelet pods a/b 7");
        check(&Cause::object("controller", deployments, "a/b", 7), "controller deployments.apps a/b 7");
        check(&Cause::object("controller", deployments, "a\nb", 7), "controller");
    }

    #[tokio::test]
    async fn belongs_to_the_task_and_those_that_it_spawns() {
        assert!(header().is_none());
        let spawned = Cause::component("kubelet").scope(async { crate::writes::spawn(async { header() }).await });
        assert_eq!(spawned.await.ok().flatten(), Some(HeaderValue::from_static("kubelet")));
    }
}
