//! Event correlation: equal events are counted in one object, many similar ones are aggregated, and objects with too
//! many events are rate limited. Pure; time is in the events.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use api::time::{Timestamp, format_micros, format_seconds};
use api::{Tree, tree};
use stdx::token_bucket::TokenBucket;

use super::{Event, EventAction};

/// The rate limit per object: a burst, then one event per so many seconds.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// From the tenth message within so many seconds, events of one reason are aggregated.
const SIMILAR: usize = 10;
const SIMILAR_SECONDS: i64 = 600;
/// The maximum number of entries of each cache.
const REMEMBERED: usize = 4096;
/// The maximum length of an events.k8s.io/v1 note, and the mark of truncation.
const MAX_NOTE: usize = 1024;
const CUT: &str = " ...";
const COMBINED: &str = "(combined from similar events): ";
/// A name ends with a dot and up to sixteen digits.
const MAX_NAME: usize = 253 - 17;

/// The event to create, and the patch if it already exists.
#[derive(Debug, PartialEq)]
pub(super) struct Write {
    pub object: Tree,
    pub patch: Option<Tree>,
}

#[derive(Default)]
pub(crate) struct Correlator {
    buckets: BoundedCache<TokenBucket<Timestamp>>,
    similar: BoundedCache<SimilarEvents>,
    counted: BoundedCache<EventSeries>,
    /// Names are derived from the time, which may not advance.
    last_name: i128,
}

struct SimilarEvents {
    messages: BTreeSet<String>,
    at: Timestamp,
}

struct EventSeries {
    name: String,
    first: Timestamp,
    count: i64,
}

impl Correlator {
    /// The write for an event, and the key it is counted under; None if its object is rate limited.
    pub(super) fn take(&mut self, mut event: Event) -> Option<(String, Write)> {
        let object = object_key(&event);
        let key = self.combine(&mut event, &object);
        if !self.allow(&object, event.at) {
            return None;
        }
        let name = self.name(&event);
        let counted = self.counted.entry(&key, || EventSeries { name, first: event.at, count: 0 });
        counted.count += 1;
        Some((key.clone(), write(&event, counted)))
    }

    /// The next event with this key is created again.
    pub(super) fn remove(&mut self, key: &str) {
        self.counted.remove(key);
    }

    fn combine(&mut self, event: &mut Event, object: &str) -> String {
        let (action, related) = event
            .action_fields
            .as_ref()
            .map_or(("", ""), |action_fields| (action_fields.action, action_fields.related_uid()));
        let group = [object, event.kind, &event.reason, action, related].join("\n");
        let similar = self.similar.entry(&group, || SimilarEvents { messages: BTreeSet::new(), at: event.at });
        if event.at.seconds - similar.at.seconds > SIMILAR_SECONDS {
            similar.messages.clear();
        }
        similar.at = event.at;
        similar.messages.insert(event.message.clone());
        if similar.messages.len() < SIMILAR {
            return [&group, event.message.as_str()].join("\n");
        }
        similar.messages.pop_first();
        event.message = format!("{COMBINED}{}", event.message);
        group
    }

    fn allow(&mut self, object: &str, now: Timestamp) -> bool {
        self.buckets.entry(object, || TokenBucket::new(1.0 / REFILL_SECONDS, BURST, now)).try_take(now)
    }

    fn name(&mut self, event: &Event) -> String {
        self.last_name = nanos(event.at).max(self.last_name + 1);
        let object = event.object.str("name");
        let object = object.get(..MAX_NAME).unwrap_or(object);
        format!("{object}.{:x}", self.last_name)
    }
}

fn nanos(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos)
}

fn object_key(event: &Event) -> String {
    let object = &event.object;
    let parts = ["kind", "namespace", "name", "uid", "apiVersion"].map(|field| object.str(field));
    format!("{}\n{}", event.component, parts.join("\n"))
}

impl EventAction {
    fn related_uid(&self) -> &str {
        self.related.as_ref().map_or("", |related| related.str("uid"))
    }
}

fn namespace_of(event: &Event) -> &str {
    match event.object.str("namespace") {
        "" => "default",
        namespace => namespace,
    }
}

fn write(event: &Event, counted: &EventSeries) -> Write {
    match &event.action_fields {
        Some(action_fields) => write_acted(event, action_fields, counted),
        None => write_plain(event, counted),
    }
}

/// A repeated event becomes a series; nothing else may change.
fn write_acted(event: &Event, action_fields: &EventAction, counted: &EventSeries) -> Write {
    let mut object = tree! {
        "apiVersion" => "events.k8s.io/v1",
        "kind" => "Event",
        "metadata" => tree! { "name" => counted.name.as_str(), "namespace" => namespace_of(event) },
        "eventTime" => format_micros(counted.first),
        "reportingController" => event.component,
        "reportingInstance" => &*action_fields.instance,
        "action" => action_fields.action,
        "reason" => event.reason.as_str(),
        "regarding" => event.object.clone(),
        "note" => truncate(&event.message),
        "type" => event.kind,
    };
    if let Some(related) = &action_fields.related {
        object.set("related", related.clone());
    }
    let patch = (counted.count > 1).then(|| {
        let series = tree! { "count" => counted.count, "lastObservedTime" => format_micros(event.at) };
        tree! { "series" => series }
    });
    if let Some(patch) = &patch {
        object.set("series", patch.at("series").clone());
    }
    Write { object, patch }
}

/// Truncates a note.
fn truncate(text: &str) -> String {
    if text.len() <= MAX_NOTE {
        return text.to_string();
    }
    let end = (0..=MAX_NOTE - CUT.len()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}{CUT}", &text[..end])
}

fn write_plain(event: &Event, counted: &EventSeries) -> Write {
    let last = format_seconds(event.at.seconds);
    let mut object = tree! {
        "apiVersion" => "v1",
        "kind" => "Event",
        "metadata" => tree! { "name" => counted.name.as_str(), "namespace" => namespace_of(event) },
        "involvedObject" => event.object.clone(),
        "reason" => event.reason.as_str(),
        "message" => event.message.as_str(),
        "source" => tree! { "component" => event.component },
        "firstTimestamp" => format_seconds(counted.first.seconds),
        "lastTimestamp" => last.clone(),
        "count" => counted.count,
        "type" => event.kind,
        "reportingComponent" => event.component,
    };
    if !event.host.is_empty() {
        object.child("source").set("host", &*event.host);
        object.set("reportingInstance", &*event.host);
    }
    let patch = (counted.count > 1).then(|| {
        tree! { "count" => counted.count, "lastTimestamp" => last, "message" => event.message.as_str() }
    });
    Write { object, patch }
}

/// A bounded cache. The hasher has no seed, so that simulations are reproducible.
struct BoundedCache<T> {
    entries: HashMap<Arc<str>, T, BuildHasherDefault<DefaultHasher>>,
    order: VecDeque<Arc<str>>,
}

impl<T> Default for BoundedCache<T> {
    fn default() -> Self {
        BoundedCache { entries: HashMap::default(), order: VecDeque::new() }
    }
}

impl<T> BoundedCache<T> {
    fn entry(&mut self, key: &str, make: impl FnOnce() -> T) -> &mut T {
        let key: Arc<str> = key.into();
        if self.order.len() >= REMEMBERED
            && !self.entries.contains_key(&key)
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        match self.entries.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                self.order.push_back(free.key().clone());
                free.insert(make())
            }
        }
    }

    fn remove(&mut self, key: &str) {
        if self.entries.remove(key).is_some() {
            self.order.retain(|other| **other != *key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, message: &str, seconds: i64) -> Event {
        Event {
            component: "replicaset-controller",
            host: "".into(),
            object: tree! { "kind" => "ReplicaSet", "namespace" => "a", "name" => name, "uid" => "u" },
            kind: "Normal",
            reason: "SuccessfulCreate".to_string(),
            message: message.to_string(),
            at: Timestamp { seconds, nanos: 0 },
            action_fields: None,
        }
    }

    fn take(correlator: &mut Correlator, event: Event) -> Option<Write> {
        correlator.take(event).map(|(_, write)| write)
    }

    #[test]
    fn counts_equal_events() {
        let mut correlator = Correlator::default();
        let first = take(&mut correlator, event("x", "made", 100)).expect("a write");
        assert_eq!((first.object.int("count"), first.patch), (Some(1), None));
        assert_eq!(first.object.str("metadata.name"), "x.174876e800");
        let again = take(&mut correlator, event("x", "made", 160)).expect("a write");
        let patch = tree! { "count" => 2, "lastTimestamp" => "1970-01-01T00:02:40Z", "message" => "made" };
        assert_eq!(again.patch, Some(patch));
        assert_eq!(again.object.str("metadata.name"), first.object.str("metadata.name"));
        assert_eq!(again.object.str("firstTimestamp"), "1970-01-01T00:01:40Z");
        let other = take(&mut correlator, event("x", "other", 160)).expect("a write");
        assert_ne!(other.object.str("metadata.name"), first.object.str("metadata.name"));
    }

    #[test]
    fn sets_the_host_if_given() {
        let told = Event { host: "n".into(), ..event("x", "made", 1) };
        let write = take(&mut Correlator::default(), told).expect("a write");
        assert_eq!((write.object.str("source.host"), write.object.str("reportingInstance")), ("n", "n"));
        let nowhere = take(&mut Correlator::default(), event("x", "made", 1)).expect("a write");
        assert!(!nowhere.object.at("source").has("host") && !nowhere.object.has("reportingInstance"));
    }

    #[test]
    fn new_events_have_action_and_series() {
        let mut correlator = Correlator::default();
        let action_fields =
            |related: Option<Tree>| EventAction { action: "Preempting", related, instance: "s-host".into() };
        let told = |related: Option<Tree>, seconds| Event {
            action_fields: Some(action_fields(related)),
            ..event("x", "gone", seconds)
        };
        let other = tree! { "kind" => "Pod", "name" => "y", "uid" => "v" };
        let first = take(&mut correlator, told(Some(other.clone()), 1)).expect("a write");
        let texts = ["apiVersion", "eventTime", "reportingInstance", "action", "note", "related.name"];
        let texts = texts.map(|field| first.object.str(field));
        let want = ["events.k8s.io/v1", "1970-01-01T00:00:01.000000Z", "s-host", "Preempting", "gone", "y"];
        assert_eq!((texts, first.patch), (want, None));
        let again = take(&mut correlator, told(Some(other), 2)).expect("a write");
        let series = tree! { "count" => 2, "lastObservedTime" => "1970-01-01T00:00:02.000000Z" };
        assert_eq!(again.patch, Some(tree! { "series" => series.clone() }));
        assert_eq!((again.object.at("series"), again.object.str("eventTime")), (&series, want[1]));
        assert_eq!(take(&mut correlator, told(None, 2)).expect("a write").patch, None, "it is about another");
    }

    #[test]
    fn truncates_long_notes() {
        assert_eq!(truncate("short"), "short");
        let long = truncate(&"ö".repeat(600));
        assert!(long.len() <= MAX_NOTE && long.len() > MAX_NOTE - 8 && long.ends_with("ö ..."), "{}", long.len());
    }

    #[test]
    fn forgotten_events_are_created_again() {
        let mut correlator = Correlator::default();
        let (key, _) = correlator.take(event("x", "made", 1)).expect("a write");
        correlator.remove(&key);
        assert_eq!(take(&mut correlator, event("x", "made", 2)).expect("a write").patch, None);
    }

    #[test]
    fn aggregates_similar_events() {
        let mut correlator = Correlator::default();
        let texts: Vec<String> = (0..12)
            .map(|at| take(&mut correlator, event("x", &format!("pod {at}"), at)).expect("a write"))
            .map(|write| format!("{} {}", write.object.int("count").unwrap_or(0), write.object.str("message")))
            .collect();
        assert_eq!(texts[8], "1 pod 8");
        assert_eq!(texts[9], "1 (combined from similar events): pod 9");
        assert_eq!(texts[11], "3 (combined from similar events): pod 11");
        let later = take(&mut correlator, event("x", "pod 12", 1000)).expect("a write");
        assert_eq!(later.object.str("message"), "pod 12", "it has been quiet for long");
    }

    #[test]
    fn rate_limits_per_object() {
        let mut correlator = Correlator::default();
        let written = (0..100).filter(|_| correlator.take(event("x", "again", 0)).is_some()).count();
        assert_eq!(written, 25);
        assert!(correlator.take(event("y", "again", 0)).is_some());
        assert!(correlator.take(event("x", "again", 299)).is_none());
        assert!(correlator.take(event("x", "again", 301)).is_some());
        assert!(correlator.take(event("x", "again", 302)).is_none());
    }

    #[test]
    fn cache_is_bounded() {
        let mut correlator = Correlator::default();
        for at in 0..10_000 {
            correlator.take(event(&at.to_string(), "made", 0));
        }
        assert_eq!(correlator.counted.entries.len(), REMEMBERED);
        assert_eq!(correlator.buckets.order.len(), REMEMBERED);
    }
}
