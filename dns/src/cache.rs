//! The cache of forwarded answers: bounded in entries and bytes, positive and negative, with stale entries. Time is
//! passed in.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use stdx::sync::Mutex;
use tokio::time::Instant;

use crate::corefile::{Cache as Config, CacheLimits};
use crate::message::{Data, Message, Name, Question, Rcode, Record, Type};
use crate::metrics::Metrics;

const SHARDS: usize = 16;
/// The bytes of each of the two parts, whatever their capacity is.
const MAX_BYTES: usize = 16 << 20;
/// How long a response without any record is kept, before the minimum applies.
const NO_RECORD_TTL: Duration = Duration::from_secs(5);

/// The key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    name: Name,
    qtype: Type,
    dnssec_ok: bool,
    checking_disabled: bool,
}

impl Key {
    pub(crate) fn new(question: &Question, query: &Message) -> Key {
        Key {
            name: question.name.to_lower(),
            qtype: question.qtype,
            dnssec_ok: query.edns.is_some_and(|edns| edns.dnssec_ok),
            checking_disabled: query.header.checking_disabled,
        }
    }
}

struct Entry {
    message: Message,
    size: usize,
    stored: Instant,
    ttl: Duration,
    /// Hits without a long gap, and when the last one was, in milliseconds after it was stored.
    hits: AtomicU32,
    last_hit: AtomicU64,
}

/// A cached response.
pub(crate) struct CachedResponse {
    /// With the remaining TTL, and without a question.
    pub message: Message,
    pub is_stale: bool,
    /// Whether the entry is popular and expires soon.
    pub is_due: bool,
}

/// The class of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Success,
    Denial,
    Failure,
    /// Not cached.
    Other,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Key, Arc<Entry>>,
    bytes: usize,
}

/// Successful responses, or denials.
struct CacheSection {
    label: &'static str,
    limits: CacheLimits,
    shards: [Mutex<Shard>; SHARDS],
}

pub(crate) struct Cache {
    pub config: Config,
    success: CacheSection,
    denial: CacheSection,
    hasher: RandomState,
    metrics: Arc<Metrics>,
    server: String,
    zones: String,
}

impl CacheSection {
    fn new(label: &'static str, limits: CacheLimits) -> CacheSection {
        CacheSection { label, limits, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Stores an entry; how many were evicted for it.
    fn insert(&self, shard: usize, key: Key, entry: Entry) -> u64 {
        let mut shard = self.shards[shard].lock();
        let shard = &mut *shard;
        let mut evicted = 0;
        shard.bytes += entry.size;
        if let Some(old) = shard.entries.insert(key.clone(), Arc::new(entry)) {
            shard.bytes -= old.size;
        }
        while shard.entries.len() > (self.limits.capacity / SHARDS).max(1) || shard.bytes > MAX_BYTES / SHARDS {
            // The order of the map is random.
            let Some(victim) = shard.entries.keys().find(|other| **other != key).cloned() else { break };
            if let Some(old) = shard.entries.remove(&victim) {
                shard.bytes -= old.size;
            }
            evicted += 1;
        }
        evicted
    }
}

impl Cache {
    pub(crate) fn new(config: Config, metrics: Arc<Metrics>, server: &str) -> Cache {
        Cache {
            success: CacheSection::new("success", config.success),
            denial: CacheSection::new("denial", config.denial),
            hasher: RandomState::new(),
            metrics,
            server: server.to_string(),
            zones: config.zones.iter().map(Name::to_string).collect::<Vec<_>>().join(","),
            config,
        }
    }

    fn shard(&self, key: &Key) -> usize {
        (self.hasher.hash_one(key) % SHARDS as u64) as usize
    }

    /// Whether responses to a name are cached.
    pub(crate) fn covers(&self, name: &Name) -> bool {
        self.config.zones.iter().any(|zone| name.is_within(zone))
    }

    /// A response that has not expired, or has not been expired for too long.
    pub(crate) fn get(&self, key: &Key, now: Instant) -> Option<CachedResponse> {
        let labels = [&*self.server, &self.zones, ""];
        self.metrics.cache.requests.with_label_values(&labels).inc();
        let hit = [&self.denial, &self.success].into_iter().find_map(|part| self.get_from(part, key, now));
        match &hit {
            None => self.metrics.cache.misses.with_label_values(&labels).inc(),
            Some(hit) if hit.is_stale => self.metrics.cache.stale.with_label_values(&labels).inc(),
            Some(_) => {}
        }
        hit
    }

    fn get_from(&self, part: &CacheSection, key: &Key, now: Instant) -> Option<CachedResponse> {
        let entry = part.shards[self.shard(key)].lock().entries.get(key).cloned()?;
        let age = now.saturating_duration_since(entry.stored);
        let remaining = entry.ttl.saturating_sub(age);
        let is_stale = remaining.is_zero();
        if is_stale && self.config.stale.is_none_or(|stale| age >= entry.ttl + stale.duration) {
            return None;
        }
        self.metrics.cache.hits.with_label_values(&[&*self.server, part.label, &self.zones, ""]).inc();
        let is_due = !is_stale && self.is_due(&entry, age, remaining);
        let shown = if self.config.keeps_ttl && !is_stale { entry.ttl } else { remaining };
        let mut message = entry.message.clone();
        // A second that has begun counts, so that an entry that is not stale has a TTL.
        let seconds = u32::try_from(shown.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
        message.records_mut().for_each(|record| record.ttl = seconds);
        Some(CachedResponse { message, is_stale, is_due })
    }

    /// Counts a hit; whether the entry is popular and about to expire.
    fn is_due(&self, entry: &Entry, age: Duration, remaining: Duration) -> bool {
        let Some(prefetch) = self.config.prefetch else { return false };
        let now = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let last = entry.last_hit.swap(now, Ordering::Relaxed);
        if Duration::from_millis(now.saturating_sub(last)) >= prefetch.gap {
            entry.hits.store(0, Ordering::Relaxed);
        }
        let hits = entry.hits.fetch_add(1, Ordering::Relaxed) + 1;
        let soon = entry.ttl.mul_f64(f64::from(prefetch.percentage) / 100.0).max(Duration::from_secs(1));
        hits >= prefetch.amount && remaining <= soon
    }

    /// Stores a response. A failure does not replace what may still be served as stale.
    pub(crate) fn insert(&self, key: Key, response: &Message, now: Instant) {
        if response.header.truncated {
            return;
        }
        let is_excluded = |zones: &[Name]| zones.iter().any(|zone| key.name.is_within(zone));
        let (part, ttl) = match classify(response) {
            Class::Success if !is_excluded(&self.config.success_except) => {
                (&self.success, bounded(min_ttl(response.records()), self.success.limits))
            }
            Class::Denial if !is_excluded(&self.config.denial_except) => {
                (&self.denial, bounded(denial_ttl(response), self.denial.limits))
            }
            Class::Failure if !self.config.servfail.is_zero() && !self.has_stale(&key, now) => {
                (&self.denial, self.config.servfail)
            }
            _ => return,
        };
        let shard = self.shard(&key);
        if part.label == "success" {
            // Otherwise an older denial would hide it.
            self.remove(&self.denial, shard, &key);
        }
        let mut message = response.clone();
        (message.question, message.edns) = (None, None);
        let size = size_of(&message);
        let (hits, last_hit) = (AtomicU32::new(0), AtomicU64::new(0));
        let evicted = part.insert(shard, key, Entry { message, size, stored: now, ttl, hits, last_hit });
        let labels = [&*self.server, part.label, &self.zones, ""];
        self.metrics.cache.evictions.with_label_values(&labels).inc_by(evicted);
        self.metrics.cache.entries.with_label_values(&labels).set(i64::try_from(part.len()).unwrap_or(i64::MAX));
    }

    fn remove(&self, part: &CacheSection, shard: usize, key: &Key) {
        let mut shard = part.shards[shard].lock();
        if let Some(old) = shard.entries.remove(key) {
            shard.bytes -= old.size;
        }
    }

    fn has_stale(&self, key: &Key, now: Instant) -> bool {
        self.config.stale.is_some() && self.get_from(&self.success, key, now).is_some()
    }
}

fn classify(response: &Message) -> Class {
    match response.header.rcode {
        Rcode::NO_ERROR if response.answers.is_empty() => Class::Denial,
        Rcode::NO_ERROR => Class::Success,
        Rcode::NAME_ERROR => Class::Denial,
        Rcode::SERVER_FAILURE => Class::Failure,
        _ => Class::Other,
    }
}

fn bounded(ttl: Duration, limits: CacheLimits) -> Duration {
    ttl.max(limits.min_ttl).min(limits.max_ttl)
}

fn min_ttl<'a>(records: impl Iterator<Item = &'a Record>) -> Duration {
    records.map(|record| Duration::from_secs(record.ttl.into())).min().unwrap_or(NO_RECORD_TTL)
}

/// The TTL of a denial is in its SOA record (RFC 2308).
fn denial_ttl(response: &Message) -> Duration {
    let soa = response.authorities.iter().find_map(|record| match &record.data {
        Data::Soa(soa) => Some(record.ttl.min(soa.minimum)),
        _ => None,
    });
    soa.map_or_else(|| min_ttl(response.records()), |seconds| Duration::from_secs(seconds.into()))
}

/// Roughly, in memory.
fn size_of(message: &Message) -> usize {
    let data = |data: &Data| match data {
        Data::Raw(bytes) => bytes.len(),
        Data::Name(name) | Data::Preference(_, name) => name.as_wire().len(),
        _ => 64,
    };
    let record = |record: &Record| size_of::<Record>() + record.name.as_wire().len() + data(&record.data);
    use std::mem::size_of;
    size_of::<Entry>() + 2 * size_of::<Key>() + message.records().map(record).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corefile::Corefile;
    use crate::message::Soa;

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    fn cache(options: &str) -> Cache {
        let text = format!(". {{\ncache {options}\n}}");
        let corefile = Corefile::parse(&text, &|_| None).expect("a Corefile");
        Cache::new(corefile.blocks[0].cache.clone().expect("the plugin"), Arc::default(), "dns://:53")
    }

    fn query(of: &str) -> (Key, Message) {
        let query = Message::query(1, Question::new(name(of), Type::A));
        (Key::new(query.question.as_ref().expect("a question"), &query), query)
    }

    fn positive(of: &str, ttl: u32) -> (Key, Message) {
        let (key, query) = query(of);
        let mut response = query.reply(Rcode::NO_ERROR);
        response.answers.push(Record::address(name(of), ttl, [10, 0, 0, 1].into()));
        (key, response)
    }

    fn negative(of: &str, ttl: u32, minimum: u32) -> (Key, Message) {
        let (key, query) = query(of);
        let mut response = query.reply(Rcode::NAME_ERROR);
        let soa = Soa { mname: name("a"), rname: name("b"), serial: 1, refresh: 1, retry: 1, expire: 1, minimum };
        response.authorities.push(Record::soa(name("org"), ttl, soa));
        (key, response)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn entries_expire_by_their_ttl() {
        let start = Instant::now();
        let check = |options: &str, (key, response): (Key, Message), want: u64| {
            let cache = cache(options);
            cache.insert(key.clone(), &response, start);
            let at = |after: Duration| cache.get(&key, start + after).map(|hit| hit.message);
            if want > 0 {
                let message = at(seconds(want) - Duration::from_millis(1)).expect("it is cached");
                assert!(message.records().all(|record| record.ttl == 1), "{message:?}");
                assert_eq!(message.header.rcode, response.header.rcode);
            }
            assert!(at(seconds(want)).is_none(), "{options} {want}");
        };
        check("", positive("a.org", 300), 300);
        check("", positive("a.org", 1), 5);
        check("", positive("a.org", 100_000), 3600);
        check("30", positive("a.org", 300), 30);
        check("{\nsuccess 1024 60 0\n}", positive("a.org", 2), 2);
        check("", negative("a.org", 300, 60), 60);
        check("", negative("a.org", 30, 60), 30);
        check("", negative("a.org", 9999, 9999), 1800);
        let failure = || {
            let (key, query) = query("a.org");
            (key, query.reply(Rcode::SERVER_FAILURE))
        };
        check("", failure(), 5);
        check("{\nservfail 0s\n}", failure(), 0);
        let (key, query) = query("a.org");
        check("", (key.clone(), query.reply(Rcode::REFUSED)), 0);
        check("{\ndisable success org\n}", positive("a.org", 300), 0);
        check("{\ndisable denial\n}", negative("a.org", 300, 60), 0);
        let (_, mut truncated) = positive("a.org", 300);
        truncated.header.truncated = true;
        check("", (key, truncated), 0);
    }

    #[test]
    fn keys_ignore_case_but_not_dnssec() {
        let cache = cache("");
        let (key, response) = positive("a.org", 300);
        let now = Instant::now();
        cache.insert(key, &response, now);
        assert!(cache.get(&query("A.Org").0, now).is_some());
        let mut with_dnssec = query("a.org").1;
        with_dnssec.edns = Some(crate::message::Edns { payload: 512, version: 0, dnssec_ok: true });
        let key = Key::new(with_dnssec.question.as_ref().expect("a question"), &with_dnssec);
        assert!(cache.get(&key, now).is_none());
    }

    #[test]
    fn stale_entries_are_served_for_a_while() {
        let cache = cache("{\nserve_stale 1h\n}");
        let (key, response) = positive("a.org", 300);
        let start = Instant::now();
        cache.insert(key.clone(), &response, start);
        let hit = cache.get(&key, start + seconds(301)).expect("a stale entry");
        assert!(hit.is_stale && hit.message.answers[0].ttl == 0);
        let failed = query("a.org").1.reply(Rcode::SERVER_FAILURE);
        cache.insert(key.clone(), &failed, start + seconds(301));
        let hit = cache.get(&key, start + seconds(302)).expect("still the stale entry");
        assert_eq!(hit.message.header.rcode, Rcode::NO_ERROR);
        assert!(cache.get(&key, start + seconds(3901)).is_none());
    }

    #[test]
    fn a_denial_is_replaced() {
        let cache = cache("");
        let (key, denial) = negative("a.org", 300, 300);
        let now = Instant::now();
        cache.insert(key.clone(), &denial, now);
        cache.insert(key.clone(), &positive("a.org", 300).1, now);
        assert_eq!(cache.get(&key, now).expect("a hit").message.header.rcode, Rcode::NO_ERROR);
    }

    #[test]
    fn popular_entries_are_due_before_they_expire() {
        let cache = cache("{\nprefetch 2 1m 10%\n}");
        let (key, response) = positive("a.org", 100);
        let start = Instant::now();
        cache.insert(key.clone(), &response, start);
        let due = |after: u64| cache.get(&key, start + seconds(after)).expect("a hit").is_due;
        assert_eq!([due(1), due(50), due(89), due(91)], [false, false, false, true]);
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = cache("");
        let now = Instant::now();
        for number in 0..12_000 {
            let (key, response) = positive(&format!("x{number}.org"), 300);
            cache.insert(key, &response, now);
        }
        assert!(cache.success.len() <= 9984 && cache.success.len() > 9000, "{}", cache.success.len());
        for number in 0..2000 {
            let (key, mut response) = positive(&format!("y{number}.org"), 300);
            response.answers[0].data = Data::Raw(vec![0; 60_000].into());
            cache.insert(key, &response, now);
        }
        let bytes: usize = cache.success.shards.iter().map(|shard| shard.lock().bytes).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
    }
}
