//! Turns of requests from a flow that crowds its level. A request with a turn is served after all requests that have
//! arrived meanwhile, and the number of turns is the number of cores: other clients never wait for the whole flow. A
//! turn ends when the work begins, which runs to its end; no request holds a turn while a client or a disk is slow.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

#[derive(Clone)]
pub(crate) struct CpuPermits(Arc<Semaphore>);

impl Default for CpuPermits {
    fn default() -> CpuPermits {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        CpuPermits(Arc::new(Semaphore::new(cores)))
    }
}

impl CpuPermits {
    /// Waits for a turn; the next one begins as soon as this one ends.
    pub(crate) async fn next(&self) {
        // The semaphore is never closed.
        let _turn = self.0.acquire().await;
        tokio::task::yield_now().await;
    }

    /// The same, as a future to poll.
    pub(crate) fn boxed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let turns = self.clone();
        Box::pin(async move { turns.next().await })
    }
}

#[cfg(test)]
mod tests {
    use stdx::sync::Mutex;

    use super::*;

    /// The order of execution: a crowd of ten, and another request that arrives during the first turn.
    #[tokio::test]
    async fn another_flow_passes_a_waiting_crowd() {
        let turns = CpuPermits(Arc::new(Semaphore::new(1)));
        let ran = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for at in 0..10 {
            let (turns, ran) = (turns.clone(), ran.clone());
            tasks.push(tokio::spawn(async move {
                turns.next().await;
                if at == 0 {
                    let ran = ran.clone();
                    tokio::spawn(async move { ran.lock().push("other") });
                }
                ran.lock().push("crowd");
            }));
        }
        for task in tasks {
            task.await.expect("it ran");
        }
        let ran = ran.lock();
        let other = ran.iter().position(|who| *who == "other").expect("it ran");
        assert!(other <= 2, "{ran:?}");
        assert_eq!(ran.len(), 11);
    }

    #[tokio::test]
    async fn cancelled_request_releases_its_turn() {
        let turns = CpuPermits(Arc::new(Semaphore::new(1)));
        let gone = turns.clone();
        let task = tokio::spawn(async move { gone.next().await });
        let waits = turns.boxed();
        task.abort();
        tokio::time::timeout(std::time::Duration::from_secs(5), waits).await.expect("a turn");
    }
}
