//! The command line of the demo program.

use std::path::PathBuf;

pub(super) const HELP: &str = "\
Reports its pod over HTTP: the demo program of Tiphys

Usage: hello [OPTIONS]
       hello sleep SECONDS
       hello exit CODE

Options:
  --port PORT       HTTP port; 0 for any free port [default: 8080]
  --no-http         do not serve HTTP
  --files DIRECTORY the directory that /files/ serves [default: /]
  --tcp-echo PORT   echo TCP data; can be repeated
  --udp-echo PORT   echo UDP datagrams; can be repeated
  --fail            let /healthz fail

HTTP:
  GET /             the pod's name, the request's headers, the environment
  GET /healthz      200, or 500 with --fail
  GET /files/PATH   a file, or the names in a directory
  POST /exit?code=N exit with this code
  any /echo         the request's body";

#[derive(Debug, PartialEq)]
pub(super) enum Mode {
    Serve(Options),
    Sleep(f64),
    Exit(u8),
    Help,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    pub port: Option<u16>,
    pub files: PathBuf,
    pub tcp_echo: Vec<u16>,
    pub udp_echo: Vec<u16>,
    pub fail: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { port: Some(8080), files: PathBuf::from("/"), tcp_echo: Vec::new(), udp_echo: Vec::new(), fail: false }
    }
}

/// Why the command line is refused.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum UsageError {
    #[error("exit: {0:?} is not a code from 0 to 255")]
    ExitCode(String),
    #[error("sleep: {0:?} is not a number of seconds")]
    Seconds(String),
    #[error("{0} needs one number")]
    OneNumber(String),
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("{flag}: {value:?} is not a port")]
    Port { flag: String, value: String },
    #[error("unknown argument {0:?}")]
    Unknown(String),
    #[error("--no-http needs --tcp-echo or --udp-echo")]
    NothingToServe,
}

pub(super) fn read(args: &[String]) -> Result<Mode, UsageError> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["sleep", seconds] => sleep(seconds),
        ["exit", code] => code.parse().map(Mode::Exit).map_err(|_| UsageError::ExitCode((*code).to_owned())),
        ["sleep" | "exit", ..] => Err(UsageError::OneNumber(words[0].to_owned())),
        _ if words.iter().any(|word| matches!(*word, "--help" | "-h")) => Ok(Mode::Help),
        _ => serve(&words),
    }
}

fn sleep(text: &str) -> Result<Mode, UsageError> {
    // As in sleep(1).
    if text == "infinity" {
        return Ok(Mode::Sleep(f64::from(u32::MAX)));
    }
    let invalid = || UsageError::Seconds(text.to_owned());
    let seconds: f64 = text.trim_end_matches('s').parse().map_err(|_| invalid())?;
    match seconds.is_finite() && (0.0..=f64::from(u32::MAX)).contains(&seconds) {
        true => Ok(Mode::Sleep(seconds)),
        false => Err(invalid()),
    }
}

fn serve(words: &[&str]) -> Result<Mode, UsageError> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (flag, inline) = word.split_once('=').map_or((*word, None), |(flag, value)| (flag, Some(value)));
        let mut value = || inline.or_else(|| words.next().copied()).ok_or(UsageError::NoValue(flag.to_owned()));
        let not_a_port = |text: &str| UsageError::Port { flag: flag.to_owned(), value: text.to_owned() };
        let port = |text: &str| text.parse::<u16>().map_err(|_| not_a_port(text));
        match flag {
            "--port" => options.port = Some(port(value()?)?),
            "--files" => options.files = PathBuf::from(value()?),
            "--tcp-echo" => options.tcp_echo.push(port(value()?)?),
            "--udp-echo" => options.udp_echo.push(port(value()?)?),
            "--no-http" if inline.is_none() => options.port = None,
            "--fail" if inline.is_none() => options.fail = true,
            _ => return Err(UsageError::Unknown((*word).to_owned())),
        }
    }
    match options.port.is_none() && options.tcp_echo.is_empty() && options.udp_echo.is_empty() {
        true => Err(UsageError::NothingToServe),
        false => Ok(Mode::Serve(options)),
    }
}
