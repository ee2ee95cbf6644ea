//! The settings of `up`, `server` and `agent`, and the variables that select a cluster for every command. Each is a flag, an environment variable and a key of the configuration
//! file, in this order of precedence. Variables and keys become flags, so that clap alone knows what is valid.

mod commands;
mod describe;
mod file;

use std::path::{Path, PathBuf};

use api::yaml::Position;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

pub(super) use commands::{ConfigArguments, run};

use crate::error::{Error, Result};
use crate::machine::instance::Directories;

/// The commands with settings.
pub(super) const COMMANDS: [&str; 3] = ["up", "server", "agent"];
/// The flags that select a cluster, which are variables for every command that has them.
const SELECTORS: [&str; 2] = ["name", "data-dir"];
/// Commands with a directory that is also that of a cluster with a name.
const NAMED_BY_VARIABLE: [&str; 2] = ["store", "check"];
/// The flag that names the file.
const CONFIG: &str = "config";
/// Flags that are about one call of the command.
const NOT_SETTINGS: [&str; 4] = [CONFIG, "help", "version", "detach"];

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Variable(String),
    File { path: PathBuf, position: Position },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Variable(name) => write!(f, "${name}"),
            Source::File { path, position } => write!(f, "{}:{}:{}", path.display(), position.line, position.column),
        }
    }
}

/// A setting that is not a flag of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    /// The long name of the flag.
    key: String,
    /// As words of a command line.
    words: Vec<String>,
    source: Source,
}

/// The settings of one call.
#[derive(Debug, Default)]
pub(super) struct Settings {
    settings: Vec<Setting>,
    /// How many words are before the settings, if not the program and its command.
    words_before: Option<usize>,
}

/// Reads the settings that belong to the arguments.
pub(super) fn collect(
    root: &Command,
    arguments: &[String],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Settings> {
    let name = arguments.get(1).map(String::as_str).unwrap_or_default();
    // The flags of a simulated host are those that `up` has chosen for it.
    if variable(hosts::init::HOST_VARIABLE).is_some() {
        return Ok(Settings::default());
    }
    let Some(command) = built(root, name) else { return Ok(Settings::default()) };
    // What is wrong with the arguments is reported when they are parsed with all settings.
    let parsed = root.clone().ignore_errors(true).try_get_matches_from(arguments);
    let Ok(Some(given)) = parsed.map(|matches| matches.subcommand_matches(name).cloned()) else {
        return Ok(Settings::default());
    };
    if !COMMANDS.contains(&name) || given.subcommand_name().is_some() {
        return select(&command, &given, arguments, &variable);
    }
    let variables = of_variables(flags(&command), &variable)?;
    let path = given.get_one::<PathBuf>(CONFIG).cloned();
    let path = path.or_else(|| variable(&variable_name(CONFIG)).map(PathBuf::from));
    let of_file = path.map(|path| file::read(&path, &command)).transpose()?.unwrap_or_default();
    let mut settings: Vec<Setting> = Vec::new();
    for setting in variables.into_iter().chain(of_file) {
        let is_set = settings.iter().any(|other| other.key == setting.key);
        if !is_set && !is_given(&command, &given, &setting.key) {
            settings.push(setting);
        }
    }
    Ok(Settings { settings, words_before: None })
}

/// The cluster that variables select for a command, unless its flags select one.
fn select(
    command: &Command,
    given: &ArgMatches,
    arguments: &[String],
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Settings> {
    let (mut levels, mut words_before) = (vec![(command, given)], 2);
    while let Some((name, matches)) = levels.last().and_then(|(_, matches)| matches.subcommand()) {
        let Some(command) = levels.last().and_then(|(command, _)| command.find_subcommand(name)) else { break };
        levels.push((command, matches));
    }
    let has_selector = |command: &Command| flag(command, "data-dir").is_some();
    let Some(depth) = levels.iter().position(|(command, _)| has_selector(command)) else {
        return Ok(Settings::default());
    };
    if levels.iter().any(|(command, matches)| SELECTORS.iter().any(|key| is_given(command, matches, key))) {
        return Ok(Settings::default());
    }
    for (command, _) in &levels[1..=depth] {
        let rest = arguments.iter().skip(words_before);
        words_before += 1 + rest.take_while(|word| *word != command.get_name()).count();
    }
    let selectors = SELECTORS.iter().filter_map(|key| flag(levels[depth].0, key));
    let mut settings = of_variables(selectors, variable)?;
    if settings.is_empty() && NAMED_BY_VARIABLE.contains(&command.get_name()) {
        settings.extend(directory_of_name(variable)?);
    }
    Ok(Settings { settings, words_before: Some(words_before) })
}

/// The directory of the cluster that a variable names, for a command without `--name`.
fn directory_of_name(variable: &impl Fn(&str) -> Option<String>) -> Result<Option<Setting>> {
    let source = variable_name("name");
    let Some(name) = variable(&source).filter(|name| !name.is_empty()) else { return Ok(None) };
    let directory = Directories::of_user().data_dir(&name)?;
    let words = vec![format!("--data-dir={}", directory.display())];
    Ok(Some(Setting { key: "data-dir".to_string(), words, source: Source::Variable(source) }))
}

/// A command with all of its flags.
fn built(root: &Command, name: &str) -> Option<Command> {
    let mut root = root.clone();
    root.build();
    root.find_subcommand(name).cloned()
}

/// Whether a flag, or one that excludes it, is on the command line.
fn is_given(command: &Command, given: &ArgMatches, key: &str) -> bool {
    let is_flag = |arg: &Arg| {
        let id = arg.get_id().as_str();
        given.try_contains_id(id).is_ok() && given.value_source(id) == Some(ValueSource::CommandLine)
    };
    flag(command, key).is_some_and(|arg| {
        is_flag(arg)
            || command.get_arguments().filter(|other| is_flag(other)).any(|other| {
                let excludes = |a: &Arg, b: &Arg| {
                    command.get_arg_conflicts_with(a).iter().any(|conflict| conflict.get_id() == b.get_id())
                };
                excludes(arg, other) || excludes(other, arg)
            })
    })
}

/// The flags that can be settings.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        arg.get_long().is_some_and(|long| !NOT_SETTINGS.contains(&long)) && !arg.is_hide_set() && !arg.is_positional()
    })
}

/// A flag by its name or another name of it.
fn flag<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    flags(command)
        .find(|arg| arg.get_long() == Some(key) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&key)))
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// `--log-level` is `TIPHYS_LOG_LEVEL`.
fn variable_name(key: &str) -> String {
    format!("TIPHYS_{}", key.replace('-', "_").to_ascii_uppercase())
}

fn of_variables<'a>(
    flags: impl Iterator<Item = &'a Arg>,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Vec<Setting>> {
    let (mut settings, mut errors) = (Vec::new(), Vec::new());
    for arg in flags {
        let Some(key) = arg.get_long() else { continue };
        let name = variable_name(key);
        let Some(value) = variable(&name).filter(|value| !value.is_empty()) else { continue };
        let words = match (is_switch(arg), value.as_str()) {
            (false, _) => vec![format!("--{key}={value}")],
            (true, "true" | "1") => vec![format!("--{key}")],
            (true, "false" | "0") => Vec::new(),
            (true, _) => {
                errors.push(format!("${name}: {value:?} is neither true nor false"));
                continue;
            }
        };
        settings.push(Setting { key: key.to_string(), words, source: Source::Variable(name) });
    }
    if errors.is_empty() { Ok(settings) } else { Err(Error::Flags(errors)) }
}

impl Settings {
    /// The arguments with the settings as further flags.
    pub(super) fn applied(&self, arguments: &[String]) -> Vec<String> {
        let (start, rest) = arguments.split_at(arguments.len().min(self.words_before.unwrap_or(2)));
        let words = self.settings.iter().flat_map(|setting| &setting.words);
        start.iter().chain(words).chain(rest).cloned().collect()
    }

    /// The error of a setting with its position; None if the error is one of the command line.
    pub(super) fn located(&self, error: &clap::Error) -> Option<Error> {
        let names = match error.get(ContextKind::InvalidArg)? {
            ContextValue::String(name) => vec![name.clone()],
            ContextValue::Strings(names) => names.clone(),
            _ => return None,
        };
        // `--port <PORT>`
        let key = |name: &String| name.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default().to_string();
        let keys: Vec<String> = names.iter().map(key).collect();
        let setting = self.settings.iter().find(|setting| keys.contains(&setting.key))?;
        let text = error.to_string();
        let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Some(Error::Flags(vec![format!("{}: {}: {why}", setting.source, setting.key)]))
    }

    /// The source of a setting.
    fn source(&self, key: &str) -> Option<&Source> {
        self.settings.iter().find(|setting| setting.key == key).map(|setting| &setting.source)
    }
}

/// The name of a file in errors.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    /// The arguments that clap gets.
    fn check(line: &str, variables: &[(&str, &str)], file: &str, want: Result<&str, &str>) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("c.yaml");
        std::fs::write(&path, file).expect("a file");
        let variable = |name: &str| {
            let known = variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
            known.or_else(|| (name == "TIPHYS_CONFIG" && !file.is_empty()).then(|| path.display().to_string()))
        };
        let arguments = words(line);
        let result = collect(&Cli::command(), &arguments, variable).and_then(|settings| {
            let applied = settings.applied(&arguments);
            match Cli::command().try_get_matches_from(&applied) {
                Ok(_) => Ok(applied.join(" ")),
                Err(error) => Err(settings.located(&error).unwrap_or(Error::Ended(error.to_string()))),
            }
        });
        match (result, want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{line}"),
            (Err(got), Err(want)) => {
                let got = got.describe().replace(&format!("{}/", dir.path().display()), "");
                assert_eq!(got, want, "{line}");
            }
            (got, want) => panic!("{line}: {got:?} instead of {want:?}"),
        }
    }

    #[test]
    fn flags_override_variables_and_those_the_file() {
        let file = "port: 1\nlog-level: info\nfake-nodes: 2\n";
        let variables = [("TIPHYS_PORT", "2"), ("TIPHYS_LOG_LEVEL", "debug")];
        check("tiphys up", &[], file, Ok("tiphys up --port=1 --log-level=info --fake-nodes=2"));
        check("tiphys up", &variables, file, Ok("tiphys up --port=2 --log-level=debug --fake-nodes=2"));
        let line = "tiphys up --port 3 --log-level=warn";
        check(line, &variables, file, Ok("tiphys up --fake-nodes=2 --port 3 --log-level=warn"));
    }

    #[test]
    fn switches_and_lists_become_flags() {
        let file = "disable-agent: true\nkeep-pods: false\ntls-san: [a, b]\nkube-apiserver-arg:\n- v=2\n";
        check("tiphys up", &[], file, Ok("tiphys up --disable-agent --tls-san=a --tls-san=b --apiserver-arg=v=2"));
        check("tiphys up", &[("TIPHYS_KEEP_PODS", "true")], "", Ok("tiphys up --keep-pods"));
        check("tiphys up --name a", &[], "data-dir: /b\n", Ok("tiphys up --name a"));
    }

    #[test]
    fn errors_name_the_place() {
        let bad = |file: &str, want: &str| check("tiphys up", &[], file, Err(want));
        bad("port: 1\nprot: 2\n", "c.yaml:2:1: prot: unknown key; is port meant?");
        bad("zzzz: 2\n", "c.yaml:1:1: zzzz: unknown key; `tiphys config explain up` lists all");
        bad(
            "\n  port: many\n",
            "c.yaml:2:3: port: invalid value 'many' for '--port <PORT>': invalid digit found in string",
        );
        bad("port: [1, 2]\n", "c.yaml:1:1: port: it takes one value, not a list");
        bad("port:\n", "c.yaml:1:1: port: it has no value");
        bad("disable-agent: maybe\n", "c.yaml:1:1: disable-agent: \"maybe\" is neither true nor false");
        bad("port: {a: b}\n", "c.yaml:1:1: port: it takes a value, not a mapping");
        bad("port: 1\nport: 2\n", "c.yaml:2:1: port: it is set twice");
        bad(
            "kind: KubeletConfiguration\n",
            "c.yaml: it is a KubeletConfiguration, not a file of settings: --kubelet-config names a KubeletConfiguration",
        );
        bad("- port\n", "c.yaml: it is not a mapping of settings");
        bad("port: [\n", "c.yaml:1:1: yaml: line 1: did not find expected ',' or ']'");
        let want = "$TIPHYS_PORT: port: invalid value 'x' for '--port <PORT>': invalid digit found in string";
        check("tiphys up", &[("TIPHYS_PORT", "x")], "", Err(want));
        check("tiphys up", &[("TIPHYS_KEEP_PODS", "x")], "", Err("$TIPHYS_KEEP_PODS: \"x\" is neither true nor false"));
    }

    #[test]
    fn other_commands_have_no_settings() {
        check("tiphys version", &[("TIPHYS_PORT", "2")], "", Ok("tiphys version"));
        let of_host = [("TIPHYS_SIMULATED_HOST", "1"), ("TIPHYS_NODE_NAME", "a")];
        check("tiphys agent --server https://a", &of_host, "", Ok("tiphys agent --server https://a"));
        check("tiphys agent reset --force", &[("TIPHYS_TOKEN", "a")], "", Ok("tiphys agent reset --force"));
    }

    #[test]
    fn variables_select_the_cluster_of_every_command() {
        let check = |line: &str, want: Result<&str, &str>| {
            let variables = [("TIPHYS_NAME", "dev"), ("TIPHYS_LOG_LEVEL", "info")];
            check(line, &variables, "", want);
        };
        for command in ["down", "status", "logs dns", "reset --force", "certs rotate --all", "node list"] {
            let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
            let want = format!("tiphys {name} --name=dev {rest}");
            check(&format!("tiphys {command}"), Ok(want.trim_end()));
        }
        check("tiphys down --name a", Ok("tiphys down --name a"));
        check("tiphys down --data-dir /a", Ok("tiphys down --data-dir /a"));
        check("tiphys node list --name a", Ok("tiphys node list --name a"));
        check("tiphys list", Ok("tiphys list"));
        let directory = Directories::of_user().data_dir("dev").expect("a name");
        let want = format!("tiphys store verify --data-dir={} a", directory.display());
        check("tiphys store verify a", Ok(&want));
        check("tiphys kube-apiserver --v=2", Ok("tiphys kube-apiserver --v=2"));
    }

    #[test]
    fn variables_select_the_directory_of_every_command() {
        let check = |line: &str, want: &str| check(line, &[("TIPHYS_DATA_DIR", "/d")], "", Ok(want));
        check("tiphys reset --force", "tiphys reset --data-dir=/d --force");
        check("tiphys agent reset --force", "tiphys agent --data-dir=/d reset --force");
        check("tiphys token create --print-join-command", "tiphys token create --data-dir=/d --print-join-command");
        check("tiphys check", "tiphys check --data-dir=/d");
        check("tiphys store status", "tiphys store status --data-dir=/d");
        check("tiphys store status --etcd-servers http://a", "tiphys store status --etcd-servers http://a");
        check("tiphys down --name a", "tiphys down --name a");
        let both = [("TIPHYS_NAME", "dev"), ("TIPHYS_DATA_DIR", "/d")];
        let why = "$TIPHYS_NAME: name: the argument '--name <NAME>' cannot be used with '--data-dir <DIR>'";
        super::tests::check("tiphys down", &both, "", Err(why));
    }
}
