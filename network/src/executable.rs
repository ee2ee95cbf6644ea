//! The plugins as executables: environment and standard input in, JSON and an exit code out.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cni::invoke::{Invoker, TIMEOUT};
use crate::plugins::{Call, Shared, find};
use crate::spec::command::{Target, Verb, version_of};
use crate::spec::error::{Error, code};
use crate::spec::names::{check_identifier, check_interface};
use crate::spec::version::Version;

/// The size limit of a configuration.
const INPUT_BYTES: u64 = 4 * 1024 * 1024;

/// The `main` of a plugin binary: `bridge`, `host-local` and so on.
pub fn main(name: &str) -> ExitCode {
    let variables = std::env::vars().filter(|(key, _)| key.starts_with("CNI_")).collect();
    let mut input = Vec::new();
    let read = std::io::stdin().take(INPUT_BYTES).read_to_end(&mut input);
    let outcome = read.map_err(Error::from).and_then(|_| run(name, &variables, &input));
    let (text, code) = match outcome {
        Ok(Value::Null) => return ExitCode::SUCCESS,
        Ok(value) => (value.to_string(), ExitCode::SUCCESS),
        Err(error) => (error.to_json(Version::NEWEST).to_string(), ExitCode::FAILURE),
    };
    // A closed standard output cannot be reported anywhere.
    let _ = std::io::stdout().write_all(text.as_bytes());
    code
}

/// Runs a plugin, and returns its output; null if it has none.
fn run(name: &str, variables: &BTreeMap<String, String>, input: &[u8]) -> Result<Value, Error> {
    let plugin = find(name).ok_or_else(|| Error::internal(format!("{name:?} is not a built-in plugin")))?;
    let variable = |key: &str| variables.get(key).map(String::as_str).unwrap_or_default();
    let command = variable("CNI_COMMAND");
    if command == "VERSION" {
        let all = Version::ALL.map(Version::as_str);
        return Ok(json!({ "cniVersion": Version::NEWEST.as_str(), "supportedVersions": all }));
    }
    let verb = Verb::ALL.into_iter().find(|verb| verb.as_str() == command);
    let verb = verb.ok_or_else(|| environment(format!("unknown CNI_COMMAND: {command}")))?;
    check_variables(verb, &variable)?;
    let decode = |error: serde_json::Error| Error::new(code::DECODE, format!("failed to load netconf: {error}"));
    let conf: Value = serde_json::from_slice(input).map_err(decode)?;
    let version = version_of(&conf)?;
    check_identifier("name", conf["name"].as_str().unwrap_or_default())
        .map_err(|error| Error::configuration(error.message))?;
    let bin_dirs: Vec<PathBuf> =
        variable("CNI_PATH").split(':').filter(|directory| !directory.is_empty()).map(PathBuf::from).collect();
    let invoker = Invoker { bin_dirs, builtin: true, timeout: TIMEOUT, shared: Shared::default() };
    let target = Target {
        container_id: variable("CNI_CONTAINERID"),
        netns: variable("CNI_NETNS"),
        ifname: variable("CNI_IFNAME"),
        args: variable("CNI_ARGS"),
    };
    let attachment = plugin.run(verb, &Call { conf: &conf, target, shared: &invoker.shared, delegate: &invoker })?;
    Ok(if verb == Verb::Add { attachment.to_json(version) } else { Value::Null })
}

fn environment(message: String) -> Error {
    Error::new(code::INVALID_ENVIRONMENT, message)
}

/// Checks the variables that the command needs.
fn check_variables<'a>(verb: Verb, variable: &impl Fn(&str) -> &'a str) -> Result<(), Error> {
    let attaches = matches!(verb, Verb::Add | Verb::Del | Verb::Check);
    let needed = [
        ("CNI_CONTAINERID", attaches),
        ("CNI_NETNS", matches!(verb, Verb::Add | Verb::Check)),
        ("CNI_IFNAME", attaches),
        ("CNI_PATH", true),
    ];
    let missing: Vec<_> =
        needed.iter().filter(|(key, needed)| *needed && variable(key).is_empty()).map(|(key, _)| *key).collect();
    if !missing.is_empty() {
        return Err(environment(format!("required env variables [{}] missing", missing.join(","))));
    }
    if !attaches {
        return Ok(());
    }
    check_identifier("CNI_CONTAINERID", variable("CNI_CONTAINERID"))?;
    check_interface("CNI_IFNAME", variable("CNI_IFNAME"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(variables: &[(&str, &str)], input: &str) -> Result<Value, Error> {
        let variables = variables.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        run("loopback", &variables, input.as_bytes())
    }

    #[test]
    fn versions() {
        let reply = call(&[("CNI_COMMAND", "VERSION")], "").unwrap();
        assert_eq!(reply["supportedVersions"], json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
    }

    #[test]
    fn reports_missing_variables() {
        let full = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "a"),
            ("CNI_NETNS", "/x"),
            ("CNI_IFNAME", "lo"),
            ("CNI_PATH", "/y"),
        ];
        let conf = r#"{"cniVersion":"1.0.0","name":"n","type":"loopback"}"#;
        for (variables, input, code, message) in [
            (&[("CNI_COMMAND", "FLY")][..], "", 4, "unknown CNI_COMMAND: FLY"),
            (&full[..1], conf, 4, "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing"),
            (&[("CNI_COMMAND", "STATUS")], conf, 4, "required env variables [CNI_PATH] missing"),
            (&full, "{", 6, "failed to load netconf: EOF while parsing an object at line 1 column 1"),
            (
                &full,
                r#"{"cniVersion":"0.1.0","name":"n"}"#,
                1,
                "cniVersion: \"0.1.0\" is not supported, only 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
            ),
            (&full, r#"{"cniVersion":"1.0.0"}"#, 7, "name: is missing"),
            (&full, conf, 999, "failed to open netns \"/x\": No such file or directory (os error 2)"),
        ] {
            let error = call(variables, input).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (code, message));
        }
    }
}
