//! EventRateLimit: limits the rate of events. Each limit has a token bucket for the whole server, or one for each
//! namespace, user, or source and object.

use std::collections::HashMap;
use std::time::Instant;

use api::Tree;
use api::status::Status;
use stdx::sync::Mutex;
use stdx::token_bucket::TokenBucket;

use super::setup::{FieldError, Source};
use super::{Attributes, Operation, Settings, join_errors};

/// The default number of a limit's buckets.
const CACHE_SIZE: usize = 4096;
const TYPES: &[&str] = &["Server", "Namespace", "User", "SourceAndObject"];

pub(crate) struct Limit {
    ty: String,
    qps: f64,
    burst: f64,
    cache_size: usize,
    buckets: Mutex<HashMap<String, TokenBucket<Instant>>>,
}

pub(super) fn configure(settings: &mut Settings, source: &Source<'_>) -> Result<(), FieldError> {
    source.expect(&["eventratelimit.admission.k8s.io/v1alpha1"], "Configuration")?;
    source.only("", source.tree, &["apiVersion", "kind", "limits"])?;
    let limits = source.tree.list("limits");
    if limits.is_empty() {
        return Err(FieldError::new("limits", "must not be empty"));
    }
    for (index, limit) in limits.iter().enumerate() {
        let at = format!("limits[{index}]");
        source.only(&at, limit, &["type", "qps", "burst", "cacheSize"])?;
        settings.event_limits.push(read(limit).map_err(|error| error.below(&at))?);
    }
    Ok(())
}

fn read(limit: &Tree) -> Result<Limit, FieldError> {
    let ty = limit.str("type").to_string();
    if !TYPES.contains(&ty.as_str()) {
        return Err(FieldError::new("type", format_args!("{ty:?} is none of {}", TYPES.join(", "))));
    }
    let positive = |key: &str| match limit.int(key) {
        Some(number) if number > 0 => Ok(number as f64),
        _ => Err(FieldError::new(key, "must be positive")),
    };
    let cache_size = match limit.int("cacheSize") {
        Some(size) if size < 0 => return Err(FieldError::new("cacheSize", "must not be negative")),
        Some(size) if size > 0 => usize::try_from(size).unwrap_or(CACHE_SIZE),
        _ => CACHE_SIZE,
    };
    Ok(Limit { ty, qps: positive("qps")?, burst: positive("burst")?, cache_size, buckets: Mutex::default() })
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    event: Option<&Tree>,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let write = matches!(attributes.operation, Operation::Create | Operation::Update);
    let Some(event) = event.filter(|_| write && attributes.is_kind("", "Event") && !attributes.dry_run) else {
        return Ok(());
    };
    let now = Instant::now();
    let refused = |limit: &Limit| {
        let key = limit.key(attributes, event);
        let message = format!("limit reached on type {} for key {key}", limit.ty);
        (!limit.accepts(&key, now)).then_some(message)
    };
    let errors: Vec<String> = attributes.registry.admission.settings.event_limits.iter().filter_map(refused).collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::new(429, "TooManyRequests", format!("Too many requests: {}", join_errors(errors))))
}

impl Limit {
    fn key(&self, attributes: &Attributes<'_>, event: &Tree) -> String {
        match self.ty.as_str() {
            "Namespace" => attributes.namespace.to_string(),
            "User" => attributes.user.name.clone(),
            "SourceAndObject" => {
                let object = ["kind", "namespace", "name", "uid", "apiVersion"];
                let object = object.iter().map(|key| event.at("involvedObject").str(key));
                [event.str("source.component"), event.str("source.host")].into_iter().chain(object).collect()
            }
            _ => String::new(),
        }
    }

    fn accepts(&self, key: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock();
        if !buckets.contains_key(key) && buckets.len() >= self.cache_size {
            let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.last_used()).map(|(key, _)| key.clone());
            oldest.map(|key| buckets.remove(&key));
        }
        let full = || TokenBucket::new(self.qps, self.burst, now);
        buckets.entry(key.to_string()).or_insert_with(full).try_take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::json;
    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let limit = read(&json(r#"{"type":"Namespace","qps":1,"burst":2,"cacheSize":2}"#)).expect("a limit");
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let cases = [("a", 0, true), ("a", 0, true), ("a", 0, false), ("b", 0, true), ("a", 1, true), ("a", 1, false)];
        for (key, seconds, want) in cases {
            assert_eq!(limit.accepts(key, after(seconds)), want, "{key} {seconds}");
        }
        assert!(limit.accepts("c", after(2)));
        assert_eq!(limit.buckets.lock().len(), 2, "the oldest has gone");
    }

    #[test]
    fn errors_name_the_limit() {
        let cases = [
            (r#"{"type":"X"}"#, "type: "),
            (r#"{"type":"User","qps":0,"burst":1}"#, "qps: must be positive"),
            (r#"{"type":"User","qps":1}"#, "burst: must be positive"),
            (r#"{"type":"User","qps":1,"burst":1,"cacheSize":-1}"#, "cacheSize: must not be negative"),
        ];
        for (limit, want) in cases {
            let error = read(&json(limit)).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
