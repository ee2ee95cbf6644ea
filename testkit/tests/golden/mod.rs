//! The objects and events of controllers, step by step, against golden files. Values that differ between runs (times,
//! uids, hashes, suffixes of names) are replaced. `TIPHYS_BLESS=1` writes the files; read the difference.

mod jobs;
mod nodes;
mod upkeep;

use api::{Tree, tree, yaml};
use stdx::wait::until_ok_await;
use testkit::Client;

/// So many letters end a generated name.
const SUFFIX: usize = 5;

/// The observed objects and events, as text.
pub struct Transcript {
    client: Client,
    text: String,
    /// Random texts, and the names that replace them.
    names: Vec<(String, String)>,
}

impl Transcript {
    pub fn new(client: &Client) -> Transcript {
        Transcript { client: client.clone(), text: String::new(), names: Vec::new() }
    }

    /// Replaces the value of an object's label with this name from now on.
    pub fn call_label(&mut self, object: &Tree, label: &str, called: &str) {
        self.call(object.map("metadata.labels").str(label), called);
    }

    /// Replaces a random text with this name from now on.
    pub fn call(&mut self, text: &str, called: &str) {
        self.names.push((text.to_string(), format!("<{called}>")));
    }

    /// Tells of objects under a title; `fields` of them, or all.
    pub fn tell(&mut self, title: &str, objects: &[Tree], fields: &[&str]) {
        for object in objects {
            let mut shown = tree! {};
            let all = ["metadata", "spec", "status", "data", "revision"];
            for field in if fields.is_empty() { &all[..] } else { fields } {
                if let Some(value) = object.get(field) {
                    shown.set(field, self.plain(field, value));
                }
            }
            let shown = yaml::encode(&tree! { title => shown });
            self.text.push_str(&String::from_utf8_lossy(&shown));
        }
    }

    fn plain(&self, key: &str, value: &Tree) -> Tree {
        match value {
            Tree::Map(map) => {
                let mut plain = tree! {};
                for (key, value) in map.iter().filter(|(key, _)| !matches!(*key, "managedFields" | "resourceVersion")) {
                    plain.set(&self.hidden(key), self.plain(key, value));
                }
                let prefix = map.str("generateName");
                if !prefix.is_empty() && map.str("name").len() == prefix.len() + SUFFIX {
                    plain.set("name", format!("{}<suffix>", self.hidden(prefix)));
                }
                plain
            }
            Tree::List(items) => Tree::List(items.iter().map(|item| self.plain(key, item)).collect()),
            Tree::Str(_) if key == "uid" => Tree::from("<uid>"),
            Tree::Str(_) if is_time(key) => Tree::from("<time>"),
            Tree::Str(text) => Tree::from(self.hidden(text)),
            other => other.clone(),
        }
    }

    fn hidden(&self, text: &str) -> String {
        self.names.iter().fold(text.to_string(), |text, (created, called)| text.replace(created, called))
    }

    /// The events of objects with these names, without duplicate lines: the order between objects is random.
    pub async fn tell_events(&mut self, names: &[&str]) {
        let events = self.client.get("/api/v1/events").await.tree();
        let line = |event: &Tree| {
            let message = self.hidden(event.str("message"));
            let message = match message.split_once(" pod: ") {
                Some((verb, pod)) => format!("{verb} pod: {}", pod.rsplit_once('-').map_or(pod, |(prefix, _)| prefix)),
                None => message,
            };
            let of = |field: &str| event.str(field).to_string();
            format!("{} {} {} {message}", of("involvedObject.kind"), of("type"), of("reason"))
        };
        let is_meant = |event: &&Tree| names.iter().any(|name| event.str("involvedObject.name").starts_with(name));
        let mut lines: Vec<String> = events.list("items").iter().filter(is_meant).map(line).collect();
        lines.sort();
        lines.dedup();
        let lines: Vec<Tree> = lines.into_iter().map(Tree::from).collect();
        self.text.push_str(&String::from_utf8_lossy(&yaml::encode(&tree! { "events" => lines })));
    }

    /// Waits until there is an event about an object.
    pub async fn until_event(&self, about: &str, reason: &str) {
        let path = format!("/api/v1/events?fieldSelector=involvedObject.name%3D{about},reason%3D{reason}");
        self.see(&path, |events| !events.list("items").is_empty()).await;
    }

    /// Makes an object from JSON.
    pub async fn make(&self, path: &str, json: &str) {
        let object = api::json::decode(json.as_bytes()).expect("JSON");
        let reply = self.client.post(path, &object).await;
        assert_eq!(reply.code, 201, "{path}: {}", reply.tree().str("message"));
    }

    pub async fn patch(&self, path: &str, body: &str) {
        let reply = self.client.patch(path, "strategic-merge", body).await;
        assert_eq!(reply.code, 200, "{path}: {}", reply.tree().str("message"));
    }

    pub fn compare(&self, file: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
        if std::env::var_os("TIPHYS_BLESS").is_some() {
            std::fs::write(&path, &self.text).expect("the file is written");
        }
        let wanted = std::fs::read_to_string(&path).expect("a file");
        for (number, (got, want)) in self.text.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(got, want, "{file}:{}", number + 1);
        }
        assert_eq!(self.text.lines().count(), wanted.lines().count(), "{file}");
    }

    /// Waits, without a node, until something holds of an object.
    pub async fn see(&self, path: &str, holds: impl Fn(&Tree) -> bool) -> Tree {
        let look = async || {
            let seen = self.client.get(path).await.tree();
            if !seen.is_null() && holds(&seen) { Ok(seen) } else { Err(format!("{:?}", seen.at("status"))) }
        };
        until_ok_await(path, testkit::client::DEADLINE, look).await
    }
}

fn is_time(key: &str) -> bool {
    key.ends_with("Time") || key.ends_with("Timestamp") || key == "timeAdded"
}

/// Whether a condition is there with a status.
fn holds(object: &Tree, condition: &str, status: &str) -> bool {
    let mut conditions = object.list("status.conditions").iter();
    conditions.any(|one| one.str("type") == condition && one.str("status") == status)
}
