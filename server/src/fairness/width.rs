//! The width of a request: a list occupies more seats the more objects it reads.

use crate::request::info::{Query, RequestInfo};
use crate::storage::resource::Resources;

/// The number of objects of a list for each seat.
const OBJECTS_PER_SEAT: u64 = 100;
const MAX_SEATS: u32 = 10;

pub(crate) fn seats(resources: &Resources, (info, query): (&RequestInfo, &Query), nominal: u32) -> u32 {
    let lists = match info.verb {
        "list" => true,
        "watch" => query.flag("sendInitialEvents"),
        _ => false,
    };
    if !lists || !info.name.is_empty() {
        return 1;
    }
    let resource = resources.find(&info.group, &info.version, &info.resource);
    let cache = resource.as_ref().and_then(|resource| resource.cache.as_ref());
    let stored = cache.map_or(0, |cache| cache.len() as u64);
    let selects = ["labelSelector", "fieldSelector"].iter().any(|key| !query.get(key).is_empty());
    list_seats(stored, query.get("limit").parse().unwrap_or(0), selects, nominal)
}

/// A list may occupy at most about a seventh of its level.
fn list_seats(stored: u64, limit: u64, selects: bool, nominal: u32) -> u32 {
    let seen = if limit > 0 && !selects { limit.min(stored) } else { stored };
    let most = (f64::from(nominal) * 0.15).ceil().clamp(1.0, f64::from(MAX_SEATS)) as u32;
    u32::try_from(seen.div_ceil(OBJECTS_PER_SEAT)).unwrap_or(u32::MAX).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::list_seats;

    #[test]
    fn lists_are_as_wide_as_what_they_go_through() {
        let cases = [
            ((0, 0, false, 245), 1),
            ((100, 0, false, 245), 1),
            ((101, 0, false, 245), 2),
            ((50_000, 0, false, 245), 10),
            ((50_000, 500, false, 245), 5),
            ((50_000, 500, true, 245), 10),
            ((50_000, 0, false, 13), 2),
            ((50_000, 0, false, 0), 1),
        ];
        for ((stored, limit, selects, nominal), want) in cases {
            assert_eq!(list_seats(stored, limit, selects, nominal), want, "{stored} {limit} {selects} {nominal}");
        }
    }
}
