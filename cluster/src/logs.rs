//! Structured logs on standard error, as text or as JSON, and in a file of the data directory where there is one.
//! `RUST_LOG` narrows them further.

mod file;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub(crate) use file::{LogFile, files, path};

use crate::error::{Error, Result};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// The level of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

impl Level {
    /// Upstream's numbers.
    pub(crate) fn of_verbosity(verbosity: u8) -> Level {
        if verbosity < 4 { Level::Info } else { Level::Debug }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

pub(crate) fn init(format: Format, level: Level) {
    init_with(format, level, Output::default());
}

/// Logs to the files of a data directory too; only there if standard error is not a place for logs.
pub(crate) fn init_in(format: Format, level: Level, data_dir: &Path, also_stderr: bool) -> Result<()> {
    let file = LogFile::open(data_dir).map_err(Error::file(path(data_dir)))?;
    init_with(format, level, Output { file: Some(Arc::new(file)), is_quiet: !also_stderr });
    Ok(())
}

fn init_with(format: Format, level: Level, output: Output) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level.name()));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(output);
    // A second call, as in tests, changes nothing.
    let _ = match format {
        Format::Text => builder.with_ansi(false).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Where log lines go.
#[derive(Clone, Default)]
struct Output {
    file: Option<Arc<LogFile>>,
    /// Not to standard error.
    is_quiet: bool,
}

impl MakeWriter<'_> for Output {
    type Writer = Output;

    fn make_writer(&self) -> Output {
        self.clone()
    }
}

impl Write for Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(file) = &self.file {
            // A full disk must not stop the cluster.
            let _ = file.append(line);
        }
        if !self.is_quiet {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
