//! `tiphys config`: prints, checks and explains settings.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};

use super::{COMMANDS, Settings, built, collect, describe, flags};
use crate::cli::{Cli, say};
use crate::error::{Error, Result};

/// The arguments of `tiphys config`.
#[derive(clap::Args)]
pub(in crate::cli) struct ConfigArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(clap::Subcommand)]
enum ConfigCommand {
    /// Prints the settings with which a command would run, each with where it comes from
    Print {
        /// The command and its flags, such as `up --port 7443`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "up")]
        arguments: Vec<String>,
    },
    /// Checks a configuration file
    Check {
        file: PathBuf,
        /// The command that reads it
        #[arg(long, default_value = "up", value_parser = COMMANDS)]
        command: String,
    },
    /// Explains the settings of a command, or one of them
    Explain {
        #[arg(default_value = "up", value_parser = COMMANDS)]
        command: String,
        /// The name of a setting
        key: Option<String>,
        /// As a table for a document
        #[arg(long)]
        markdown: bool,
    },
}

/// Settings whose values are secret.
const SECRETS: [&str; 2] = ["token", "certificate-key"];

pub(in crate::cli) fn run(arguments: &ConfigArguments) -> Result<()> {
    match &arguments.command {
        ConfigCommand::Print { arguments } => print(arguments),
        ConfigCommand::Check { file, command } => check(file, command),
        ConfigCommand::Explain { command, key, markdown } => explain(command, key.as_deref(), *markdown),
    }
}

fn print(arguments: &[String]) -> Result<()> {
    let (settings, matches) = parse(arguments, |name| std::env::var(name).ok())?;
    let (name, matches) = matches.subcommand().ok_or_else(|| unknown_command(arguments))?;
    let command = command(name)?;
    for line in lines(&command, matches, &settings) {
        say(&line);
    }
    Ok(())
}

fn check(file: &std::path::Path, command: &str) -> Result<()> {
    let arguments = [command.to_string(), format!("--config={}", file.display())];
    let (settings, _) = parse(&arguments, |_| None)?;
    say(&format!("{}: {} settings of `tiphys {command}`, all valid", file.display(), settings.settings.len()));
    Ok(())
}

fn explain(name: &str, key: Option<&str>, markdown: bool) -> Result<()> {
    let command = command(name)?;
    let mut all = describe::all(&command);
    if let Some(key) = key {
        all.retain(|described| described.key == key);
        if all.is_empty() {
            let nearest = stdx::suggest::nearest(key, flags(&command).filter_map(clap::Arg::get_long));
            let hint = nearest.map_or_else(String::new, |nearest| format!("; is {nearest} meant?"));
            return Err(Error::Flags(vec![format!("{key:?} is not a setting of `tiphys {name}`{hint}")]));
        }
    }
    if markdown {
        say(describe::markdown(&all).trim_end());
        return Ok(());
    }
    all.iter().for_each(|described| say(&describe::text(described)));
    Ok(())
}

fn command(name: &str) -> Result<Command> {
    built(&Cli::command(), name).ok_or_else(|| unknown_command(&[name.to_string()]))
}

fn unknown_command(arguments: &[String]) -> Error {
    let name = arguments.first().map(String::as_str).unwrap_or_default();
    Error::Flags(vec![format!("{name:?} has no settings: use one of {}", COMMANDS.join(", "))])
}

/// Parses a call with all of its settings.
fn parse(arguments: &[String], variable: impl Fn(&str) -> Option<String>) -> Result<(Settings, ArgMatches)> {
    if !arguments.first().is_some_and(|name| COMMANDS.contains(&name.as_str())) {
        return Err(unknown_command(arguments));
    }
    let arguments: Vec<String> = std::iter::once("tiphys".to_string()).chain(arguments.iter().cloned()).collect();
    let settings = collect(&Cli::command(), &arguments, variable)?;
    let matches = Cli::command().try_get_matches_from(settings.applied(&arguments)).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
        settings.located(&error).unwrap_or(Error::Flags(vec![first]))
    })?;
    Ok((settings, matches))
}

/// The settings as a configuration file, with their sources as comments.
fn lines(command: &Command, matches: &ArgMatches, settings: &Settings) -> Vec<String> {
    let mut lines = Vec::new();
    for arg in flags(command) {
        let (Some(key), id) = (arg.get_long(), arg.get_id().as_str()) else { continue };
        let raw = matches.try_get_raw(id).ok().flatten();
        let values: Vec<String> = raw.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect();
        let source = match (settings.source(key), matches.value_source(id)) {
            (Some(source), _) => source.to_string(),
            (None, Some(ValueSource::CommandLine)) => "flag".to_string(),
            (None, _) => "default".to_string(),
        };
        let value = match values.as_slice() {
            [] => continue,
            _ if SECRETS.contains(&key) && values.iter().any(|value| !value.is_empty()) => "\"(hidden)\"".to_string(),
            [value] if !matches!(arg.get_action(), clap::ArgAction::Append) => scalar(value),
            values => format!("[{}]", values.iter().map(|value| scalar(value)).collect::<Vec<_>>().join(", ")),
        };
        lines.push(format!("{key}: {value}  # {source}"));
    }
    lines.sort();
    lines
}

/// A value of YAML: plain where it is read back as the same text.
fn scalar(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/' | b'_' | b'-'))
        && !text.starts_with('-');
    match is_plain {
        true => text.to_string(),
        false => String::from_utf8_lossy(&api::json::encode(&text.into(), None)).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_settings_with_their_sources() {
        let variable = |name: &str| (name == "TIPHYS_LOG_LEVEL").then(|| "info".to_string());
        let arguments = ["up", "--port", "7443", "--tls-san=a,b"].map(str::to_string);
        let (settings, matches) = parse(&arguments, variable).expect("settings");
        let (name, matches) = matches.subcommand().expect("a command");
        let lines = lines(&command(name).expect("a command"), matches, &settings);
        for want in [
            "port: 7443  # flag",
            "log-level: info  # $TIPHYS_LOG_LEVEL",
            "tls-san: [a, b]  # flag",
            "disable-agent: false  # default",
        ] {
            assert!(lines.iter().any(|line| line == want), "{want}: {lines:#?}");
        }
        // What is printed is a configuration file.
        let text = lines.join("\n");
        assert!(api::yaml::decode(text.as_bytes()).expect("YAML").as_map().is_some());
    }

    #[test]
    fn secrets_are_not_printed() {
        let arguments = ["agent", "--token=abcdef.0123456789abcdef", "--server=https://a"].map(str::to_string);
        let (settings, matches) = parse(&arguments, |_| None).expect("settings");
        let (name, matches) = matches.subcommand().expect("a command");
        let lines = lines(&command(name).expect("a command"), matches, &settings);
        assert!(lines.iter().any(|line| line == "token: \"(hidden)\"  # flag"), "{lines:#?}");
        assert!(parse(&["kubelet".to_string()], |_| None).is_err());
    }
}
