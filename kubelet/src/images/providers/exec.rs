//! One call of a plugin: the request on its standard input, the response on its standard output.

use std::process::Stdio;
use std::time::Duration;

use api::{Tree, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::config::Provider;

const PATIENCE: Duration = Duration::from_secs(60);
/// The limit of a response.
const MOST: u64 = 1 << 20;

/// A plugin that has not responded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecError {
    #[error("timed out after {PATIENCE:?}")]
    Timeout,
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("invalid response: {0}")]
    Json(#[from] json::Error),
    #[error("{status}: {stderr}")]
    Failed { status: std::process::ExitStatus, stderr: String },
}

pub(crate) async fn run(provider: &Provider, request: &Tree) -> Result<Tree, ExecError> {
    let response = tokio::time::timeout(PATIENCE, run_plugin(provider, json::encode(request, None))).await;
    Ok(json::decode(&response.map_err(|_| ExecError::Timeout)??)?)
}

async fn run_plugin(provider: &Provider, request: Vec<u8>) -> Result<Vec<u8>, ExecError> {
    let mut child = Command::new(&provider.program)
        .args(&provider.args)
        .envs(provider.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A plugin that does not read its request may respond all the same.
            let _ = stdin.write_all(&request).await;
        }
    };
    let (mut answer, mut words) = (Vec::new(), Vec::new());
    let read = async {
        match stdout {
            Some(stdout) => stdout.take(MOST).read_to_end(&mut answer).await.map(drop),
            None => Ok(()),
        }
    };
    let heed = async {
        if let Some(stderr) = stderr {
            let _ = stderr.take(MOST).read_to_end(&mut words).await;
        }
    };
    let ((), read, ()) = tokio::join!(write, read, heed);
    read?;
    let status = child.wait().await?;
    if !status.success() {
        let stderr = String::from_utf8_lossy(&words).trim().to_string();
        return Err(ExecError::Failed { status, stderr });
    }
    Ok(answer)
}
