//! Compaction by time, the same on every engine: the revision of an interval ago is the oldest that can be read. An
//! older page of a list gets 410 with a token for the rest of the current list. `store::etcd` compacts etcd's own
//! history, coordinated with other servers.

use std::sync::Arc;
use std::time::Duration;

use super::Storage;

/// Runs until it is dropped; an interval of zero disables it.
pub async fn run(storage: Arc<Storage>, interval: Duration) {
    if interval.is_zero() {
        return;
    }
    let mut seen = None;
    loop {
        tokio::time::sleep(interval).await;
        match compact_once(&storage, seen).await {
            Ok(revision) => seen = Some(revision),
            Err(error) => tracing::warn!(%error, "failed to compact the store"),
        }
    }
}

/// Compacts to the revision of the last run, and returns the revision for the next one.
async fn compact_once(storage: &Storage, seen: Option<u64>) -> Result<u64, store::Error> {
    let newest = storage.store.revision().await?;
    if let Some(revision) = seen {
        storage.caches.compact(revision);
        if !storage.is_shared {
            storage.store.compact(revision).await?;
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use api::status::Status;
    use api::tree;
    use kinds::User;

    use super::*;
    use crate::registry::Registry;
    use crate::registry::options::WriteOptions;
    use crate::registry::verbs::list::{self, ListOptions, ListPage};
    use crate::request::codec::Validation;
    use crate::request::info::Query;
    use crate::{Config, testing};

    async fn create(registry: &Registry, name: &str) {
        let resource = registry.storage.resources.find("", "v1", "configmaps").expect("a resource");
        let user = User::default();
        let options = WriteOptions {
            dry_run: false,
            field_manager: "test".to_string(),
            validation: Validation::Ignore,
            force: false,
        };
        let object = tree! { "apiVersion" => "v1", "kind" => "ConfigMap", "metadata" => tree! { "name" => name } };
        let created = testing::scope(registry, &resource, &user).create(object, &options, &mut Vec::new()).await;
        created.map(|_| ()).expect("an object");
    }

    async fn page(registry: &Registry, token: &str) -> Result<ListPage, Status> {
        let resource = registry.storage.resources.find("", "v1", "configmaps").expect("a resource");
        let options = ListOptions::parse(&Query::parse(&format!("limit=1&continue={token}")), &resource.kind, false)?;
        list::read(registry, &resource, "default", "", &options).await
    }

    fn names(listed: &ListPage) -> Vec<&str> {
        listed.items.iter().map(|item| item.name()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_page_expires_after_two_intervals_and_can_be_continued() {
        let server = testing::server(Config::default()).await;
        let interval = server.config.compaction_interval;
        assert_eq!(interval, Duration::from_secs(300));
        tokio::spawn(run(server.registry.storage.clone(), interval));
        for name in ["a", "b", "c"] {
            create(&server.registry, name).await;
        }
        let first = page(&server.registry, "").await.expect("a page");
        let token = first.continue_token.clone().expect("there is more");
        // The compacted revision itself can still be read: only older ones are removed.
        create(&server.registry, "b2").await;
        tokio::time::sleep(interval + Duration::from_secs(1)).await;
        let second = page(&server.registry, &token).await.expect("one interval is not enough");
        assert_eq!(names(&second), ["b"]);
        tokio::time::sleep(interval).await;
        let gone = page(&server.registry, &token).await.err().expect("the page has expired");
        assert_eq!((gone.code, gone.reason.as_ref()), (410, "Expired"));
        let token = gone.continue_token.expect("a token for the rest");
        let rest = page(&server.registry, &token).await.expect("the rest as it is now");
        assert_eq!(names(&rest), ["b"]);
        let rest = page(&server.registry, rest.continue_token.as_deref().expect("more")).await.expect("the next page");
        assert_eq!(names(&rest), ["b2"], "what was created meanwhile shows up");
    }
}
