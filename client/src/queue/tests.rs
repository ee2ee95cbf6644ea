use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn key(text: &str) -> Key {
    Key::from(text)
}

fn take(core: &mut Core, now: Instant) -> Next {
    core.add_due(now);
    core.take(now)
}

#[tokio::test(start_paused = true)]
async fn keys_are_deduplicated() {
    let (mut core, now) = (Core::default(), Instant::now());
    let added: Vec<usize> = ["a", "b", "a"].map(|text| core.add(key(text), now)).into();
    assert_eq!(added, [1, 1, 0]);
    assert_eq!(core.take(now), Next::Key(key("a")));
    core.add(key("a"), now);
    assert_eq!(core.take(now), Next::Key(key("b")));
    assert_eq!(core.take(now), Next::Nothing, "a is being worked on");
    core.done(key("a"), WorkResult::Done, now);
    assert_eq!(core.take(now), Next::Key(key("a")), "it was added meanwhile");
    core.done(key("a"), WorkResult::Done, now);
    assert_eq!(core.take(now), Next::Nothing);
}

#[tokio::test(start_paused = true)]
async fn failed_keys_back_off() {
    let (mut core, mut now) = (Core::default(), Instant::now());
    core.add(key("a"), now);
    let mut pauses = Vec::new();
    for _ in 0..20 {
        assert_eq!(take(&mut core, now), Next::Key(key("a")));
        core.done(key("a"), WorkResult::Failed, now);
        let Next::At(time) = core.take(now) else { panic!("it comes back") };
        pauses.push((time - now).as_millis());
        now = time;
    }
    assert_eq!(pauses[..4], [5, 10, 20, 40]);
    assert_eq!(pauses[19], LONGEST_PAUSE.as_millis());
    assert_eq!(take(&mut core, now), Next::Key(key("a")));
    core.done(key("a"), WorkResult::Done, now);
    assert!(core.failures.is_empty() && core.due.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_keys_are_rate_limited() {
    let (mut core, now) = (Core::default(), Instant::now());
    for number in 0..300 {
        core.add(key(&number.to_string()), now);
    }
    while let Next::Key(key) = core.take(now) {
        core.done(key, WorkResult::Failed, now);
    }
    let at = |time: Duration| core.later.range(..=(now + time, u64::MAX)).count();
    assert_eq!(at(FIRST_PAUSE), 100, "the burst");
    assert_eq!(at(Duration::from_secs(1)), 110, "then ten in a second");
    assert_eq!(at(Duration::from_secs(20)), 300);
}

#[tokio::test(start_paused = true)]
async fn shorter_delay_counts() {
    let (mut core, now) = (Core::default(), Instant::now());
    let second = Duration::from_secs(1);
    core.add_at(key("a"), now + second * 5);
    core.add_at(key("a"), now + second);
    core.add_at(key("a"), now + second * 3);
    assert_eq!(take(&mut core, now), Next::At(now + second));
    assert_eq!(take(&mut core, now + second), Next::Key(key("a")));
    core.done(key("a"), WorkResult::RequeueAfter(second * 7), now + second);
    assert_eq!(take(&mut core, now + second * 2), Next::At(now + second * 8), "it asked to come back");
    assert_eq!(take(&mut core, now + second * 8), Next::Key(key("a")));
    core.done(key("a"), WorkResult::Done, now + second * 8);
    assert_eq!(take(&mut core, now + second * 99), Next::Nothing);
}

#[tokio::test(start_paused = true)]
async fn backoff_has_a_maximum() {
    let (first, longest) = (Duration::from_millis(5), Duration::from_secs(10));
    let queue = Queue::within(longest);
    queue.add(key("a"));
    let mut pauses = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        let taken = queue.next().await.expect("it is open");
        pauses.push(begun.elapsed());
        queue.done(taken, WorkResult::Failed);
    }
    assert!(pauses[1] >= first && pauses[1] < first * 2, "{pauses:?}");
    assert!(pauses[19] >= longest && pauses[19] < longest + first, "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn wakes_waiters() {
    let queue = Arc::new(Queue::default());
    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move {
            let first = queue.next().await;
            first.clone().into_iter().for_each(|key| queue.done(key, WorkResult::Done));
            (first, queue.next().await, queue.next().await)
        }
    });
    queue.add_after(key("b"), Duration::from_secs(60));
    queue.add(key("a"));
    tokio::time::sleep(Duration::from_secs(61)).await;
    queue.close();
    assert_eq!(waiter.await.expect("it ends"), (Some(key("a")), Some(key("b")), None));
}

/// Processes keys until the queue is closed; each key takes a second.
async fn work(queue: Arc<Queue>, now: Arc<AtomicUsize>, most: Arc<AtomicUsize>) -> usize {
    let mut count = 0;
    while let Some(key) = queue.next().await {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        now.fetch_sub(1, Ordering::SeqCst);
        queue.done(key, WorkResult::Done);
        count += 1;
    }
    count
}

#[tokio::test(start_paused = true)]
async fn uses_all_workers() {
    let queue = Arc::new(Queue::default());
    let (now, most) = (Arc::default(), Arc::<AtomicUsize>::default());
    let workers: Vec<_> =
        (0..4).map(|_| tokio::spawn(work(queue.clone(), Arc::clone(&now), Arc::clone(&most)))).collect();
    tokio::task::yield_now().await;
    (0..8).for_each(|number| queue.add(key(&number.to_string())));
    (0..4).for_each(|number| queue.add_after(key(&format!("later {number}")), Duration::from_secs(10)));
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!((most.load(Ordering::SeqCst), queue.core().ready.len()), (4, 0));
    most.store(0, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(most.load(Ordering::SeqCst), 4, "those that were delayed too");
    queue.close();
    let mut all = 0;
    for worker in workers {
        all += worker.await.expect("it ends");
    }
    assert_eq!(all, 12);
}

#[tokio::test(start_paused = true)]
async fn flooded_keys_do_not_block_others() {
    let queue = Arc::new(Queue::default());
    let worker = tokio::spawn(work(queue.clone(), Arc::default(), Arc::default()));
    // 10,000 changes in 10 seconds; a run takes one second.
    for number in 0..10_000 {
        queue.add(key("flood"));
        if number == 5_000 {
            queue.add(key("other"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        if number == 7_500 {
            let core = queue.core();
            assert!(!core.dirty.contains_key("other"), "it had its turn after the run that was under way");
        }
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    queue.close();
    let runs = worker.await.expect("it ends");
    assert!((9..=13).contains(&runs), "{runs} runs");
}

#[tokio::test(start_paused = true)]
async fn the_longest_pause_does_not_overflow() {
    let queue = Queue::default();
    for pause in [Duration::MAX, Duration::from_secs(i64::MAX as u64)] {
        queue.add(key("a"));
        assert_eq!(queue.next().await, Some(key("a")));
        queue.done(key("a"), WorkResult::RequeueAfter(pause));
        queue.add_after(key("b"), pause);
    }
    let waited = tokio::time::timeout(Duration::from_secs(10 * 365 * 86_400), queue.next()).await;
    assert!(waited.is_err(), "neither key is due in ten years");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_done_twice_is_queued_once() {
    let (mut core, now) = (Core::default(), Instant::now());
    core.add(key("a"), now);
    assert_eq!(core.take(now), Next::Key(key("a")));
    core.add(key("a"), now);
    core.done(key("a"), WorkResult::Done, now);
    core.done(key("a"), WorkResult::Done, now);
    assert_eq!(core.take(now), Next::Key(key("a")));
    assert_eq!(core.take(now), Next::Nothing);
}
