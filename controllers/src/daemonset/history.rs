//! ControllerRevisions of a DaemonSet: one for each of its templates, the newest one for the current template.

use std::sync::Arc;

use api::{Tree, tree};
use client::{DeleteOptions, Error, Patch, Result};

use super::pod::HASH;
use super::{Controller, REVISIONS, SETS};
use crate::support::{PODS, family, hash, history, owner, status};

/// The revisions of the current template, and the old ones, both sorted.
struct Revisions {
    current: Vec<Arc<Tree>>,
    old: Vec<Arc<Tree>>,
}

impl Revisions {
    fn of(set: &Tree, mut all: Vec<Arc<Tree>>) -> Revisions {
        history::sort(&mut all);
        let (current, old) =
            all.into_iter().partition(|revision| history::has_template(revision, set.at("spec.template")));
        Revisions { current, old }
    }

    fn next_number(&self) -> i64 {
        self.old.last().map(|last| history::number(last)).unwrap_or_default() + 1
    }
}

impl Controller {
    /// Ensures that the newest revision has the current template; returns its hash and the old revisions.
    pub(super) async fn revise(&self, set: &Tree, pods: &mut [Arc<Tree>]) -> Result<(String, Vec<Arc<Tree>>)> {
        let claim = owner::claim(set, &family::label_selector(set), family::candidates(&self.revisions, set));
        let all = owner::execute(&self.control.client, SETS, set, REVISIONS, claim).await?;
        let mut revisions = Revisions::of(set, all);
        let number = revisions.next_number();
        let Some(current) = revisions.current.pop() else {
            return Ok((self.snapshot(set, number).await?, revisions.old));
        };
        let hash = self.hash_of(&current).await?;
        for duplicate in &revisions.current {
            self.merge(set, duplicate, &hash, pods).await?;
        }
        if history::number(&current) < number {
            self.update(&history::renumbered(&current, number)).await?;
        }
        Ok((hash, revisions.old))
    }

    async fn update(&self, revision: &Tree) -> Result<Tree> {
        let (namespace, name) = (revision.str("metadata.namespace"), revision.str("metadata.name"));
        self.control.client.update(REVISIONS, namespace, name, revision).await
    }

    /// Very old revisions have no hash label: they get their name.
    async fn hash_of(&self, revision: &Tree) -> Result<String> {
        let hash = revision.map("metadata.labels").str(HASH);
        if !hash.is_empty() {
            return Ok(hash.to_string());
        }
        let name = revision.str("metadata.name").to_string();
        let mut labelled = history::renumbered(revision, history::number(revision));
        labelled.child("metadata.labels").set(HASH, name.as_str());
        self.update(&labelled).await?;
        Ok(name)
    }

    async fn snapshot(&self, set: &Tree, number: i64) -> Result<String> {
        let template = set.at("spec.template");
        let hash = hash::template_hash(template, set.int("status.collisionCount"));
        let revision = history::build(set, number, HASH, &hash);
        let (namespace, name) = (set.str("metadata.namespace"), revision.str("metadata.name"));
        match self.control.client.create(REVISIONS, namespace, &revision).await {
            Err(error) if error.is_already_exists() => {
                let there = self.control.client.get(REVISIONS, namespace, name).await?;
                if history::has_template(&there, template) && owner::is_controlled_by(&there, set) {
                    return Ok(hash);
                }
                self.increase_collision_count(set).await?;
                Err(error)
            }
            result => result.map(|_| hash),
        }
    }

    /// Another object has the name: the next hash uses a higher collision count.
    async fn increase_collision_count(&self, set: &Tree) -> std::result::Result<(), Error> {
        let mut status = set.at("status").clone();
        status.set("collisionCount", set.int("status.collisionCount").unwrap_or_default() + 1);
        status::write(&self.control.client, SETS, set, status).await
    }

    /// Deletes the older of two revisions with the same template and relabels its pods.
    async fn merge(&self, set: &Tree, duplicate: &Tree, hash: &str, pods: &mut [Arc<Tree>]) -> Result<()> {
        let namespace = set.str("metadata.namespace");
        for pod in pods.iter_mut().filter(|pod| pod.map("metadata.labels").str(HASH) != hash) {
            let mut labels = tree! {};
            labels.set(HASH, hash);
            let patch = tree! { "metadata" => tree! { "labels" => labels } };
            let name = pod.str("metadata.name").to_string();
            *pod =
                Arc::new(self.control.client.patch(PODS.resource, namespace, &name, "", Patch::Merge(&patch)).await?);
        }
        self.remove(duplicate).await
    }

    async fn remove(&self, revision: &Tree) -> Result<()> {
        let (namespace, name) = (revision.str("metadata.namespace"), revision.str("metadata.name"));
        match self.control.client.delete(REVISIONS, namespace, name, DeleteOptions::of(revision)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes old revisions beyond the limit that no pod uses.
    pub(super) async fn truncate(&self, set: &Tree, old: &[Arc<Tree>], pods: &[Arc<Tree>]) -> Result<()> {
        let hash = |object: &Tree| object.map("metadata.labels").str(HASH).to_string();
        let is_live = |revision: &Tree| pods.iter().any(|pod| hash(pod) == hash(revision));
        for revision in history::surplus(old, history::limit(set), is_live) {
            self.remove(&revision).await?;
        }
        Ok(())
    }
}
