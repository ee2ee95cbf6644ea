//! Mirror pods show static pods in the API. They are created if they are missing, and deleted with their pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use client::{Client, DeleteOptions, Resource, Store};
use tokio::sync::watch;

use super::manifest;
use crate::model::pod;
use crate::node::NodeView;
use crate::pod::status::writer::Writer;
use crate::pod::worker::Workers;

const PODS: Resource = Resource::core("pods");
const PAUSE: Duration = Duration::from_secs(1);
const CHECK: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Shows a static pod, by its uid.
    Create(String),
    /// Deletes a mirror pod: namespace, name and UID.
    Delete(String, String, String),
}

/// The steps after which each static pod has its mirror pod, and no mirror pod is without its static pod. A mirror pod
/// is orphaned only if all sources are known.
pub(crate) fn plan(statics: &[Arc<Tree>], seen: &[Arc<Tree>], all_known: bool) -> Vec<Step> {
    let desired: BTreeMap<(&str, &str), &Arc<Tree>> =
        statics.iter().map(|own| ((pod::namespace(own), pod::name(own)), own)).collect();
    let mut steps = Vec::new();
    let mut shown = Vec::new();
    for mirror in seen.iter().filter(|seen| pod::is_mirror(seen)) {
        let key = (pod::namespace(mirror), pod::name(mirror));
        let own = desired.get(&key).filter(|own| pod::annotation(mirror, pod::MIRROR) == pod::uid(own));
        match own {
            Some(_) if !pod::is_deleted(mirror) => shown.push(key),
            None if !all_known && !desired.contains_key(&key) => {}
            // A mirror pod that a client has deleted is removed, and created again.
            _ => steps.push(Step::Delete(key.0.to_string(), key.1.to_string(), pod::uid(mirror).to_string())),
        }
    }
    let taken = |key: &(&str, &str)| seen.iter().any(|seen| (pod::namespace(seen), pod::name(seen)) == *key);
    let missing = desired.iter().filter(|(key, _)| !shown.contains(*key) && !taken(key));
    steps.extend(missing.map(|(_, own)| Step::Create(pod::uid(own).to_string())));
    steps
}

/// The dependencies of mirror pods.
pub(crate) struct Mirrors {
    pub(crate) client: Client,
    pub(crate) node: NodeView,
    /// The pods of this node, as the API has them.
    pub(crate) pods: Arc<Store>,
    pub(crate) statuses: Arc<Writer>,
}

/// Syncs mirror pods until it is dropped.
pub(crate) async fn follow(mirrors: Mirrors, workers: Arc<Workers>, mut all_known: watch::Receiver<bool>) {
    loop {
        let is_known = *all_known.borrow_and_update();
        let statics: Vec<Arc<Tree>> = workers.pods().into_iter().filter(|own| pod::is_static(own)).collect();
        let steps = plan(&statics, &mirrors.pods.all(), is_known);
        let revision = mirrors.pods.revision();
        for step in &steps {
            if let Err(error) = apply_step(&mirrors, &statics, step).await {
                tracing::debug!(%error, "failed to sync mirror pod");
            }
        }
        let pause = if steps.is_empty() { CHECK } else { PAUSE };
        let moved = mirrors.pods.wait_until(|store| store.revision() > revision);
        let _ = tokio::time::timeout(pause, async {
            tokio::select! {
                biased;
                () = workers.changed() => {}
                () = moved => {}
                Ok(_) = all_known.wait_for(|known| *known), if !is_known => {}
            }
        })
        .await;
    }
}

async fn apply_step(mirrors: &Mirrors, statics: &[Arc<Tree>], step: &Step) -> client::Result<()> {
    match step {
        Step::Create(uid) => {
            let own = statics.iter().find(|own| pod::uid(own) == uid);
            // A node that is not registered yet cannot be an owner.
            let node = mirrors.node.object().filter(|node| !node.str("metadata.uid").is_empty());
            let (Some(own), Some(node)) = (own, node) else { return Ok(()) };
            mirrors.client.create(PODS, pod::namespace(own), &manifest::mirror(own, &node)).await?;
            mirrors.statuses.check(uid);
            Ok(())
        }
        Step::Delete(namespace, name, uid) => {
            let options = DeleteOptions { uid: Some(uid), grace_period_seconds: Some(0), ..DeleteOptions::default() };
            match mirrors.client.delete(PODS, namespace, name, options).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
                _ => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    fn own(name: &str, uid: &str) -> Arc<Tree> {
        let meta = tree! { "name" => name, "namespace" => "default", "uid" => uid };
        Arc::new(tree! { "metadata" => meta })
    }

    fn mirror(name: &str, uid: &str, of: &str) -> Arc<Tree> {
        let mut pod = (*own(name, uid)).clone();
        pod.child("metadata.annotations").set(pod::MIRROR, of);
        Arc::new(pod)
    }

    #[test]
    fn mirrors_follow_static_pods() {
        let delete = |name: &str, uid: &str| Step::Delete("default".into(), name.into(), uid.into());
        let plan = |statics: &[Arc<Tree>], seen: &[Arc<Tree>]| super::plan(statics, seen, true);
        assert_eq!(plan(&[own("a", "1")], &[]), [Step::Create("1".into())]);
        assert_eq!(plan(&[own("a", "1")], &[mirror("a", "m", "1")]), []);
        assert_eq!(plan(&[], &[mirror("a", "m", "1"), own("b", "2")]), [delete("a", "m")]);
        // The changed pod gets its mirror once the old mirror was deleted.
        assert_eq!(plan(&[own("a", "2")], &[mirror("a", "m", "1")]), [delete("a", "m")]);
        // Another pod has the name: the mirror pod cannot be created.
        assert_eq!(plan(&[own("a", "1")], &[own("a", "x")]), []);
    }

    #[test]
    fn keeps_mirrors_until_all_sources_are_known() {
        let plan = |statics: &[Arc<Tree>], seen: &[Arc<Tree>]| super::plan(statics, seen, false);
        assert_eq!(plan(&[], &[mirror("a", "m", "1")]), []);
        assert_eq!(plan(&[own("b", "2")], &[mirror("a", "m", "1")]), [Step::Create("2".into())]);
        let old = Step::Delete("default".into(), "a".into(), "m".into());
        assert_eq!(plan(&[own("a", "2")], &[mirror("a", "m", "1")]), [old], "its pod is another one by now");
    }
}
