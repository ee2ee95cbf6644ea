//! What it is told to do.

use std::path::PathBuf;

pub const HELP: &str = "\
Tells who it is: the demo program of Tiphys

Usage: hello [OPTIONS]
       hello sleep SECONDS
       hello exit CODE

Options:
  --port PORT       the port of HTTP; 0 for any [default: 8080]
  --no-http         no HTTP at all
  --files DIRECTORY    what /files/ serves [default: /]
  --tcp-echo PORT   send back what comes by TCP; can be repeated
  --udp-echo PORT   send back what comes by UDP; can be repeated
  --fail            /healthz answers that all is lost

HTTP:
  GET /             the pod's name, the request's headers, the environment
  GET /healthz      200, or 500 with --fail
  GET /files/PATH   a file, or a directory's names
  POST /exit?code=N ends the program
  any /echo         the request's body";

#[derive(Debug, PartialEq)]
pub enum Mode {
    Serve(Options),
    Sleep(f64),
    Exit(u8),
    Help,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
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

pub fn read(args: &[String]) -> Result<Mode, String> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["sleep", seconds] => sleep(seconds),
        ["exit", code] => code.parse().map(Mode::Exit).map_err(|_| format!("exit: {code:?} is no code from 0 to 255")),
        ["sleep" | "exit", ..] => Err(format!("{} wants one number", words[0])),
        _ if words.iter().any(|word| matches!(*word, "--help" | "-h")) => Ok(Mode::Help),
        _ => serve(&words),
    }
}

fn sleep(text: &str) -> Result<Mode, String> {
    // As sleep(1) has it.
    if text == "infinity" {
        return Ok(Mode::Sleep(f64::from(u32::MAX)));
    }
    let seconds: f64 =
        text.trim_end_matches('s').parse().map_err(|_| format!("sleep: {text:?} is no number of seconds"))?;
    match seconds.is_finite() && (0.0..=f64::from(u32::MAX)).contains(&seconds) {
        true => Ok(Mode::Sleep(seconds)),
        false => Err(format!("sleep: {text:?} is no number of seconds")),
    }
}

fn serve(words: &[&str]) -> Result<Mode, String> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (flag, inline) = word.split_once('=').map_or((*word, None), |(flag, value)| (flag, Some(value)));
        let mut value = || inline.or_else(|| words.next().copied()).ok_or(format!("{flag} wants a value"));
        let port = |text: &str| text.parse::<u16>().map_err(|_| format!("{flag}: {text:?} is no port"));
        match flag {
            "--port" => options.port = Some(port(value()?)?),
            "--files" => options.files = PathBuf::from(value()?),
            "--tcp-echo" => options.tcp_echo.push(port(value()?)?),
            "--udp-echo" => options.udp_echo.push(port(value()?)?),
            "--no-http" if inline.is_none() => options.port = None,
            "--fail" if inline.is_none() => options.fail = true,
            _ => return Err(format!("{word:?} is not known")),
        }
    }
    match options.port.is_none() && options.tcp_echo.is_empty() && options.udp_echo.is_empty() {
        true => Err("--no-http leaves nothing to do".to_owned()),
        false => Ok(Mode::Serve(options)),
    }
}
