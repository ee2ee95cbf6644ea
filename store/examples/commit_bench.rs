//! Measures the embedded engine on this machine's disk: durable writes per second with 64 writers, the latency of a
//! single write, and loading 50,000 records of 4.6 KB compared with only reading and copying them. `cargo run
//! --release -p store --example commit_bench [DIR]`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use store::embedded::{self, EmbeddedStore};
use store::{Durability, Event, Op, Precondition, Revision, Sink, Store, Template, Write};

struct Nothing;

impl Sink for Nothing {
    fn publish(&self, _events: &[Event]) {}
    fn progress(&self, _revision: Revision) {}
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn put(key: String, size: usize) -> Write {
    let template = Template { bytes: vec![b'x'; size], hole: Some(10) };
    Write {
        key,
        op: Op::Put(template),
        expect: Precondition::Anything,
        durability: Durability::Durable,
        ttl: None,
        cause: Vec::new(),
    }
}

async fn write(store: Arc<EmbeddedStore>, writers: usize, each: usize, size: usize) -> Result<(), Failure> {
    let start = Instant::now();
    let before = store.bytes_written();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..each {
                    store.commit(vec![put(format!("/bench/{writer}/{number}"), size)]).await?;
                }
                Ok::<_, store::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let (count, seconds) = ((writers * each) as f64, start.elapsed().as_secs_f64());
    let bytes = (store.bytes_written() - before) as f64 / count;
    println!(
        "{writers:>3} writers, {size} bytes: {:>8.0} writes/s, {:.1} us each, {bytes:.0} bytes to disk a write",
        count / seconds,
        seconds / count * 1e6
    );
    Ok(())
}

fn load(dir: &Path) -> Result<(), Failure> {
    for _ in 0..3 {
        let start = Instant::now();
        let (records, bytes) = embedded::check_and_copy(dir)?;
        let bare = start.elapsed();
        let start = Instant::now();
        let store = embedded::open_dir(dir, Arc::new(Nothing))?;
        let loaded = start.elapsed();
        let (entries, _) = store.state();
        println!(
            "{records} records, {} MB: check and copy {bare:.1?}, load {loaded:.1?} ({:.2} x), {} entries",
            bytes >> 20,
            loaded.as_secs_f64() / bare.as_secs_f64(),
            entries.len()
        );
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let root = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = root.join(format!("commit-bench-{}", std::process::id()));
    let result = run(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    result
}

async fn run(dir: &Path) -> Result<(), Failure> {
    let store = Arc::new(embedded::open_dir(dir.join("writes"), Arc::new(Nothing))?);
    write(store.clone(), 1, 500, 1024).await?;
    write(store.clone(), 64, 4000, 1024).await?;
    write(store.clone(), 64, 1000, 4700).await?;
    store.close().await?;
    let store = Arc::new(embedded::open_dir(dir.join("load"), Arc::new(Nothing))?);
    write(store.clone(), 50, 1000, 4700).await?;
    store.close().await?;
    load(&dir.join("load"))
}
