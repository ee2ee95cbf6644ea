//! Follows the ConfigMap with the Corefile. Only this object is read, since the account may not see others.

use std::time::Duration;

use api::{Tree, json};
use client::{Client, Error, Event, Random, Resource, Result};
use stdx::backoff::Backoff;
use tokio::sync::watch;

const CONFIG_MAPS: Resource = Resource::core("configmaps");
const KEY: &str = "Corefile";
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct ConfigMap {
    pub client: Client,
    pub namespace: String,
    pub name: String,
}

fn text_of(object: &Tree) -> Option<String> {
    object.map("data").get(KEY).and_then(Tree::as_str).map(str::to_string)
}

impl ConfigMap {
    fn query(&self) -> String {
        format!("fieldSelector=metadata.name%3D{}", self.name)
    }

    /// The text, and the version to watch from; None without the ConfigMap.
    pub(super) async fn read(&self) -> Result<(Option<String>, String)> {
        let list = self.client.list(CONFIG_MAPS, &self.namespace, &self.query()).await?;
        let text = list.list("items").first().and_then(text_of);
        Ok((text, list.str("metadata.resourceVersion").to_string()))
    }

    /// Sends each text until it is dropped; None when the ConfigMap is deleted.
    pub(super) async fn follow(self, texts: watch::Sender<Option<String>>) {
        let random = Random::seeded(Random::fresh_seed());
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match self.step(&texts).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::debug!(%error, "failed to watch the Corefile, retrying");
                    tokio::time::sleep(random.jitter(backoff.next_pause(), 1.0)).await;
                }
            }
        }
    }

    /// One list, and watches until one fails.
    async fn step(&self, texts: &watch::Sender<Option<String>>) -> Result<()> {
        let (text, mut version) = self.read().await?;
        send(texts, text);
        loop {
            let query = format!("allowWatchBookmarks=true&resourceVersion={version}&{}", self.query());
            let mut watch = self.client.watch_namespace(CONFIG_MAPS, &self.namespace, &query).await?;
            let mut has_event = false;
            while let Some(event) = watch.next().await {
                version = apply_event(event?, texts)?;
                has_event = true;
            }
            if !has_event {
                return Err(Error::Transport("the watch ended without an event".to_string()));
            }
        }
    }
}

fn send(texts: &watch::Sender<Option<String>>, text: Option<String>) {
    texts.send_if_modified(|current| {
        let is_new = *current != text;
        *current = text;
        is_new
    });
}

fn apply_event(event: Event, texts: &watch::Sender<Option<String>>) -> Result<String> {
    let read = |bytes: &[u8]| json::decode(bytes).map_err(|error| Error::Answer(error.to_string()));
    let (object, text) = match event {
        Event::Bookmark(version) => return Ok(version),
        Event::Put(bytes) => {
            let object = read(&bytes)?;
            let text = text_of(&object);
            (object, text)
        }
        Event::Deleted(bytes) => (read(&bytes)?, None),
    };
    send(texts, text);
    Ok(object.str("metadata.resourceVersion").to_string())
}
