//! The reference of all settings, from the flags of the commands.

use clap::{Arg, ArgAction, Command};

use super::{flags, is_switch, variable_name};

/// A setting as it is documented.
pub(super) struct Described {
    pub key: String,
    pub variable: String,
    pub value: String,
    pub default: String,
    pub help: String,
}

/// All settings of a command, by name.
pub(super) fn all(command: &Command) -> Vec<Described> {
    let mut all: Vec<Described> = flags(command).map(described).collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

fn described(arg: &Arg) -> Described {
    let key = arg.get_long().unwrap_or_default().to_string();
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    // Line breaks of the source are not those of the text.
    let help = arg.get_help().map(|help| help.to_string()).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (help, default_in_help) = match help.split_once(" [default: ") {
        Some((help, default)) => (help.to_string(), default.trim_end_matches(']').to_string()),
        None => (help, String::new()),
    };
    let default = match (is_switch(arg), defaults.collect::<Vec<_>>().join(",")) {
        (true, _) => "false".to_string(),
        (false, default) if default.is_empty() => default_in_help,
        (false, default) => default,
    };
    Described { variable: variable_name(&key), value: value(arg), key, default, help }
}

/// What a value looks like.
fn value(arg: &Arg) -> String {
    let possible: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().to_string()).collect();
    let one = match (is_switch(arg), possible.is_empty(), arg.get_value_names()) {
        (true, ..) => "true or false".to_string(),
        (false, false, _) => possible.join(", "),
        (false, true, names) => names.and_then(|names| names.first()).map_or("VALUE".to_string(), ToString::to_string),
    };
    match arg.get_action() {
        ArgAction::Append => format!("list of {one}"),
        _ => one,
    }
}

/// For a terminal.
pub(super) fn text(described: &Described) -> String {
    let Described { key, variable, value, default, help } = described;
    let default = if default.is_empty() { "-" } else { default };
    format!("{key}\n  {help}\n  value: {value}\n  default: {default}\n  variable: {variable}\n")
}

/// The rows of the reference in docs/.
pub(super) fn markdown(all: &[Described]) -> String {
    let escaped = |text: &str| text.replace('|', "\\|");
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{}`", escaped(text)) };
    let row = |one: &Described| {
        let Described { key, value, default, help, .. } = one;
        format!("| `{key}` | {} | {} | {} |\n", escaped(value), code(default), escaped(help))
    };
    let rows: String = all.iter().map(row).collect();
    format!("| key | value | default | what it sets |\n|---|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;
    use crate::cli::settings::{COMMANDS, built};

    #[test]
    fn every_setting_is_explained() {
        for name in COMMANDS {
            let command = built(&Cli::command(), name).expect("a command");
            let all = all(&command);
            assert!(all.len() > 10, "{name}");
            let silent: Vec<&str> = all.iter().filter(|one| one.help.is_empty()).map(|one| one.key.as_str()).collect();
            assert!(silent.is_empty(), "{name}: {silent:?}");
        }
    }

    #[test]
    fn defaults_come_from_the_flag_or_its_help() {
        let command = built(&Cli::command(), "up").expect("a command");
        let all = all(&command);
        let of = |key: &str| all.iter().find(|one| one.key == key).expect("a setting");
        assert_eq!((of("port").default.as_str(), of("port").variable.as_str()), ("6443", "TIPHYS_PORT"));
        assert_eq!(of("keep-pods").default, "false");
        assert_eq!(of("kubeconfig").default, "DATA_DIR/kubeconfig");
        assert_eq!(of("tls-san").value, "list of TLS_SANS");
        assert!(text(of("port")).contains("variable: TIPHYS_PORT"));
    }
}
