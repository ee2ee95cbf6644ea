//! Chooses the images to remove. Pure: computed from when each was first observed and last used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::ImageGc;

/// The images of the node. Times are seconds since the epoch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    known: BTreeMap<String, Record>,
    has_looked: bool,
}

#[derive(Debug, Clone, Default)]
struct Record {
    first_seen: i64,
    last_used: i64,
    size: u64,
    is_pinned: bool,
}

/// An image as the runtime has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) id: String,
    /// Tags and digests.
    pub(crate) names: Vec<String>,
    pub(crate) size: u64,
    /// The runtime needs the image itself.
    pub(crate) is_pinned: bool,
}

/// An image that can go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnusedImage {
    pub(crate) id: String,
    pub(crate) size: u64,
}

impl Records {
    /// Records which images exist, and which are used by any of their names.
    pub(crate) fn update(&mut self, images: &[Image], used: &BTreeSet<String>, now: i64) {
        // Images from before the first listing may be as old as the machine.
        let first_seen = if self.has_looked { now } else { 0 };
        self.has_looked = true;
        let before = std::mem::take(&mut self.known);
        for image in images {
            let mut record = before.get(&image.id).cloned().unwrap_or(Record { first_seen, ..Record::default() });
            if used.contains(&image.id) || image.names.iter().any(|name| used.contains(name)) {
                record.last_used = now;
            }
            record.size = image.size;
            record.is_pinned = image.is_pinned;
            self.known.insert(image.id.clone(), record);
        }
    }

    /// Unused images that are old enough to be removed, least recently used first.
    pub(crate) fn unused(&self, now: i64, gc: &ImageGc) -> Vec<UnusedImage> {
        self.choose(now, gc, |_| true)
    }

    /// The same, of images that were unused for too long.
    pub(crate) fn old(&self, now: i64, gc: &ImageGc) -> Vec<UnusedImage> {
        let Some(most) = gc.maximum_age else { return Vec::new() };
        self.choose(now, gc, |record| now - record.last_used > seconds(most))
    }

    fn choose(&self, now: i64, gc: &ImageGc, may_go: impl Fn(&Record) -> bool) -> Vec<UnusedImage> {
        let is_spare = |(_, record): &(&String, &Record)| {
            let is_new = now - record.first_seen < seconds(gc.minimum_age);
            record.last_used < now && !is_new && !record.is_pinned && may_go(record)
        };
        let mut chosen: Vec<(&String, &Record)> = self.known.iter().filter(is_spare).collect();
        chosen.sort_by_key(|(_, record)| (record.last_used, record.first_seen));
        chosen.into_iter().map(|(id, record)| UnusedImage { id: id.clone(), size: record.size }).collect()
    }
}

/// How many bytes have to be freed of a disk that is too full.
pub(crate) fn to_free(capacity: u64, available: u64, gc: &ImageGc) -> Option<u64> {
    let available = available.min(capacity);
    let used_percent = 100 - (u128::from(available) * 100).checked_div(u128::from(capacity))?;
    if used_percent < u128::from(gc.high_threshold) {
        return None;
    }
    let desired = u128::from(capacity) * u128::from(100 - gc.low_threshold.min(100)) / 100;
    Some(u64::try_from(desired).unwrap_or(u64::MAX).saturating_sub(available))
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gc(maximum: Option<u64>) -> ImageGc {
        ImageGc { maximum_age: maximum.map(Duration::from_secs), ..ImageGc::default() }
    }

    fn image(id: &str) -> Image {
        Image { id: id.to_string(), names: vec![format!("{id}:tag")], size: 7, is_pinned: id == "pause" }
    }

    fn ids(chosen: Vec<UnusedImage>) -> Vec<String> {
        chosen.into_iter().map(|spare| spare.id).collect()
    }

    #[test]
    fn removes_unused_images_by_last_use_and_age() {
        let mut records = Records::default();
        let used = |ids: &[&str]| ids.iter().map(|id| id.to_string()).collect::<BTreeSet<_>>();
        let mut all: Vec<Image> = ["a", "b", "c", "pause"].map(image).to_vec();
        records.update(&all, &used(&["a", "b:tag"]), 1000);
        assert_eq!(ids(records.unused(1000, &gc(None))), ["c"], "what was there before is old enough");
        all.push(image("new"));
        records.update(&all, &used(&["a"]), 1100);
        assert_eq!(ids(records.unused(1100, &gc(None))), ["c", "b"], "a new one may be about to be used");
        records.update(&all, &used(&[]), 1220);
        assert_eq!(ids(records.unused(1220, &gc(None))), ["c", "new", "b", "a"]);
        records.update(&all[1..2], &used(&[]), 1230);
        assert_eq!(ids(records.unused(1230, &gc(None))), ["b"], "what is gone is forgotten");
    }

    #[test]
    fn first_seen_images_are_new() {
        let mut records = Records::default();
        records.update(&[], &BTreeSet::new(), 1000);
        records.update(&[image("a")], &BTreeSet::new(), 1300);
        assert_eq!(ids(records.unused(1300, &gc(None))), [""; 0]);
        assert_eq!(ids(records.unused(1420, &gc(None))), ["a"]);
    }

    #[test]
    fn removes_images_above_the_maximum_age() {
        let mut records = Records::default();
        records.update(&["a", "b"].map(image), &BTreeSet::from(["a".to_string()]), 5000);
        assert_eq!(ids(records.old(5100, &gc(None))), [""; 0]);
        assert_eq!(ids(records.old(5100, &gc(Some(200)))), ["b"]);
        assert_eq!(ids(records.old(5201, &gc(Some(200)))), ["b", "a"]);
    }

    #[test]
    fn frees_a_full_disk_down_to_the_low_threshold() {
        let cases = [(1000, 160, None), (1000, 150, Some(50)), (1000, 0, Some(200)), (1000, 5000, None), (0, 0, None)];
        for (capacity, available, want) in cases {
            assert_eq!(to_free(capacity, available, &gc(None)), want, "{available} of {capacity}");
        }
    }
}
