use super::*;
use crate::plugins::list::default_profile;
use crate::testing::pod;

const SECOND: Duration = Duration::from_secs(1);

fn queue() -> Queue {
    let profile = default_profile("default-scheduler");
    let at = profile.position_of("PrioritySort").expect("a plugin");
    Queue::new(profile.plugins()[at].plugin.clone())
}

fn names(queue: &mut Queue, now: Instant) -> String {
    let mut names = Vec::new();
    while let Some(waiting) = queue.pop(now) {
        names.push(waiting.pod.name.to_string());
    }
    names.join(" ")
}

#[tokio::test]
async fn orders_by_priority_then_arrival() {
    let (mut queue, now) = (queue(), Instant::now());
    for (name, priority, after) in [("a", 0, 0), ("b", 5, 2), ("c", 5, 1), ("d", 0, 0)] {
        queue.add(pod(name).priority(priority).pod(), None, now + SECOND * after);
    }
    queue.remove("d");
    assert_eq!(names(&mut queue, now), "c b a");
}

#[tokio::test]
async fn backoff_grows_and_ends_early_if_idle() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add(pod("a").pod(), None, now);
    for (failures, seconds) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10)] {
        queue.pop(now).expect("a pod");
        queue.mark_unschedulable("a", vec!["NodePorts"], now);
        assert_eq!(queue.requeue_by_event(now, |waiting| waiting.rejected_by == ["NodePorts"]).len(), 1);
        let until = now + SECOND * seconds;
        assert_eq!(queue.get("a").map(|(_, place)| place), Some(QueueState::BackOff { until, is_error: false }));
        assert_eq!((queue.next_due(), queue.get("a").map(|(one, _)| one.failures)), (Some(until), Some(failures)));
    }
    queue.add(pod("b").pod(), None, now);
    assert_eq!(names(&mut queue, now), "b a");
}

#[tokio::test]
async fn error_backoff_is_completed() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add(pod("a").pod(), None, now);
    queue.pop(now);
    queue.retry("a", now);
    assert!(queue.pop(now).is_none());
    assert_eq!(queue.pop(now + SECOND).map(|waiting| waiting.attempts), Some(2));
}

#[tokio::test]
async fn events_and_flush_requeue_pods() {
    let (mut queue, now) = (queue(), Instant::now());
    for name in ["a", "b"] {
        queue.add(pod(name).pod(), None, now);
        queue.pop(now);
        queue.mark_unschedulable(name, vec![name_of(name)], now);
    }
    assert_eq!(queue.requeue_by_event(now, |waiting| waiting.rejected_by.contains(&"NodeName")).len(), 1);
    assert_eq!(queue.counts(), Counts { active: 0, backing_off: 1, parked: 1, gated: 0 });
    assert_eq!(queue.pop(now).map(|waiting| waiting.pod.name.to_string()).as_deref(), Some("a"));
    assert_eq!(queue.next_due(), Some(now + LONGEST_PARKED));
    assert!(queue.pop(now + LONGEST_PARKED - SECOND).is_none());
    assert_eq!(names(&mut queue, now + LONGEST_PARKED), "b");
}

fn name_of(name: &str) -> &'static str {
    if name == "a" { "NodeName" } else { "NodePorts" }
}

#[tokio::test]
async fn events_during_an_attempt_are_not_missed() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add(pod("a").pod(), None, now);
    queue.pop(now);
    queue.record_missed_event("a");
    queue.mark_unschedulable("a", vec!["NodePorts"], now);
    assert!(matches!(queue.get("a"), Some((_, QueueState::BackOff { is_error: false, .. }))));
}

#[tokio::test]
async fn gated_pods_are_not_active() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add(pod("a").pod(), Some("SchedulingGates"), now);
    assert!(queue.pop(now + LONGEST_PARKED * 2).is_none());
    assert_eq!(queue.counts().gated, 1);
    queue.gate("a", None);
    assert_eq!(names(&mut queue, now), "a");
}

#[tokio::test]
async fn the_longest_backoff_does_not_overflow() {
    let (mut queue, now) = (queue(), Instant::now());
    (queue.first_back_off, queue.longest_back_off) = (Duration::MAX, Duration::MAX);
    queue.add(pod("a").pod(), None, now);
    queue.pop(now).expect("a pod");
    queue.retry("a", now);
    assert!(queue.next_due().is_some_and(|due| due > now + SECOND * 86_400));
}
