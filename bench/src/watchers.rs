//! Many watches on one server, each on a connection of its own, which count the events they see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use crate::Result;
use crate::child::Server;
use crate::objects::Template;

pub(crate) struct Watchers {
    seen: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

/// Events that do not come within this time are lost.
const PATIENCE: Duration = Duration::from_secs(60);

impl Watchers {
    pub(crate) async fn open(server: &Server, path: &str, count: usize) -> Result<Watchers> {
        let seen = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::with_capacity(count);
        for _ in 0..count {
            let stream = server.connect().await?.stream(Template::get(path).bytes()).await?;
            tasks.push(tokio::spawn(read(stream, seen.clone())));
        }
        Ok(Watchers { seen, tasks })
    }

    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Waits until all have seen so many events together.
    pub(crate) async fn wait_for(&self, events: u64) -> Result<()> {
        let started = Instant::now();
        while self.seen() < events {
            if started.elapsed() > PATIENCE {
                return Err(format!("{} of {events} events came", self.seen()).into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn read(mut stream: TlsStream<TcpStream>, seen: Arc<AtomicU64>) {
    let mut buffer = vec![0; 32 << 10];
    let mut open = false;
    while let Ok(read) = stream.read(&mut buffer).await {
        if read == 0 {
            break;
        }
        let (events, ends_open) = count(&buffer[..read], open);
        open = ends_open;
        seen.fetch_add(events, Ordering::Relaxed);
    }
}

/// An event ends in a brace and a line end, which stand nowhere else: not in the JSON, whose line ends
/// are escaped, and not in the chunks' own lines, which end in a carriage return and a line end.
fn count(bytes: &[u8], open: bool) -> (u64, bool) {
    let first = u64::from(open && bytes.first() == Some(&b'\n'));
    let rest = memchr::memmem::find_iter(bytes, b"}\n").count() as u64;
    (first + rest, bytes.last() == Some(&b'}'))
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_events_across_reads() {
        let cases: [(&str, bool, u64, bool); 4] = [
            ("5\r\n{\"a\":{}}\n\r\n", false, 1, false),
            ("{}\n{}\n", false, 2, false),
            ("{\"a\":1}", false, 0, true),
            ("\n{}\n", true, 2, false),
        ];
        for (text, open, events, ends_open) in cases {
            assert_eq!(count(text.as_bytes(), open), (events, ends_open), "{text:?}");
        }
    }
}
