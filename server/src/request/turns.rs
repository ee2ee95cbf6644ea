//! Turns of those who crowd a level. One that has its turn is looked at only after everything that has come in
//! meanwhile, and as many have one at a time as there are cores: somebody else never waits for a whole crowd.
//! A turn ends where the work begins, which is done in one go; nobody keeps one while a client or a disk is slow.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

#[derive(Clone)]
pub struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Turns {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Turns(Arc::new(Semaphore::new(cores)))
    }
}

impl Turns {
    /// Waits for a turn; whoever waits next has theirs as soon as this is over.
    pub async fn next(&self) {
        // Nobody closes it.
        let _turn = self.0.acquire().await;
        tokio::task::yield_now().await;
    }

    /// The same, for those who are polled.
    pub fn boxed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let turns = self.clone();
        Box::pin(async move { turns.next().await })
    }
}

#[cfg(test)]
mod tests {
    use stdx::sync::Mutex;

    use super::*;

    /// What ran, in its order: a crowd of ten, and somebody who comes while its first has its turn.
    #[tokio::test]
    async fn somebody_else_passes_a_waiting_crowd() {
        let turns = Turns(Arc::new(Semaphore::new(1)));
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
    async fn one_that_goes_away_does_not_keep_its_turn() {
        let turns = Turns(Arc::new(Semaphore::new(1)));
        let gone = turns.clone();
        let task = tokio::spawn(async move { gone.next().await });
        let waits = turns.boxed();
        task.abort();
        tokio::time::timeout(std::time::Duration::from_secs(5), waits).await.expect("a turn");
    }
}
