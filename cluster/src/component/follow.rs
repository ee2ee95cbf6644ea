//! Reloads files when they change: the certificate of the port, its CA bundles, and the credentials for the API server.
//! A file that cannot be read changes nothing.

use std::path::PathBuf;

use tokio::sync::watch;

use crate::error::Result;
use crate::pki::credentials::settled;
use client::files::Files;

/// Files that are reloaded when they change.
#[derive(Default)]
pub struct FileFollower(Vec<FollowedFile>);

struct FollowedFile {
    what: &'static str,
    files: Vec<PathBuf>,
    /// The content of the files when they were last loaded.
    content: Vec<Option<Vec<u8>>>,
    take: Box<dyn Fn() -> Result<()> + Send + Sync>,
}

impl FollowedFile {
    fn read(&self) -> Vec<Option<Vec<u8>>> {
        self.files.iter().map(|file| std::fs::read(file).ok()).collect()
    }

    /// Reloads the files if their content has changed; a failure is retried at the next change.
    fn refresh(&mut self) {
        let content = self.read();
        if content == self.content {
            return;
        }
        match (self.take)() {
            Ok(()) => {
                tracing::info!(what = self.what, "file reloaded");
                self.content = content;
            }
            Err(error) => {
                tracing::warn!(
                    what = self.what,
                    error = error.describe(),
                    "failed to reload file, keeping the old one"
                );
            }
        }
    }
}

impl FileFollower {
    /// `take` reads the files again.
    pub fn add(
        &mut self,
        what: &'static str,
        files: Vec<PathBuf>,
        take: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) {
        let mut followed = FollowedFile { what, files, content: Vec::new(), take: Box::new(take) };
        followed.content = followed.read();
        self.0.push(followed);
    }

    /// Reloads files until it is stopped.
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let all: Vec<PathBuf> = self.0.iter().flat_map(|followed| followed.files.iter().cloned()).collect();
        let files = match Files::watch(&all) {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%error, "failed to watch certificate files; changes take effect at the next start");
                return;
            }
        };
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = settled(Some(&files)) => self.0.iter_mut().for_each(FollowedFile::refresh),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::error::Error;

    #[tokio::test]
    async fn reloads_changed_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, beside) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&path, "1").expect("a file");
        let taken = Arc::new(AtomicUsize::new(0));
        let (count, read) = (taken.clone(), path.clone());
        let mut follow = FileFollower::default();
        follow.add("a file", vec![path.clone()], move || {
            let text = std::fs::read_to_string(&read).map_err(Error::file(&read))?;
            if text == "bad" {
                return Err(Error::Ended("it is bad".to_string()));
            }
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(follow.run(stopped));
        let until = async |want: usize| {
            let reached = async {
                while taken.load(Ordering::SeqCst) != want {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), reached).await.expect("in time");
        };
        // The watch may not have started yet, and an unchanged file is not reloaded.
        std::fs::write(&path, "2").expect("a file");
        std::fs::write(&beside, "x").expect("a file");
        let again = async {
            while taken.load(Ordering::SeqCst) == 0 {
                std::fs::write(&beside, "x").expect("a file");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), again).await.expect("in time");
        std::fs::write(&path, "bad").expect("a file");
        std::fs::write(&beside, "y").expect("a file");
        std::fs::write(&path, "3").expect("a file");
        until(2).await;
        stop.send_replace(true);
        task.await.expect("it ends");
    }
}
