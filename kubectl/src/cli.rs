//! The command line: finds the command, parses its flags, runs it, and reports its error.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::command::Command;
use crate::commands::{PAST, ROOT};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::flags::{ParseError, Values, parse};
use crate::globals::GLOBALS;
use crate::{help, kuberc, plugins};
use stdx::suggest;

/// Runs a command line without the program's name; returns the exit code.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    main_of(&ROOT, arguments)
}

/// The same for the commands about the past, which are those of `tiphys` and not of kubectl.
pub fn main_of_past(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    main_of(&PAST, arguments)
}

fn main_of(root: &'static Command, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    match run(root, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (text, code) = error.report();
            eprint!("{text}");
            ExitCode::from(code)
        }
    }
}

fn run(root: &'static Command, arguments: Vec<String>) -> Result<()> {
    let (arguments, is_alias) = match std::ptr::eq(root, &ROOT) {
        true => kuberc::expand_alias(arguments).map_err(kuberc::failed)?,
        false => (arguments, false),
    };
    let (command, path, rest) = find(root, &arguments)?;
    let Some(function) = command.run else { return group_help(command, &path, &rest) };
    let mut groups: Vec<&[crate::flags::Flag]> = command.flags.to_vec();
    groups.push(GLOBALS);
    let parsed = match parse(&groups, &rest, !command.stops_at_arguments) {
        Ok(parsed) => parsed,
        Err(ParseError::Help) => {
            print!("{}", help::command(command, &path));
            return Ok(());
        }
        Err(error) => return Err(usage(&error, &groups, &path, command.flag_error_code)),
    };
    refuse_profiles(command, &parsed.values)?;
    parsed.values.deprecations().iter().for_each(|warning| eprintln!("{warning}"));
    let mut context = Context::new(path, parsed.arguments, parsed.dash, parsed.values);
    kuberc::apply(&mut context, is_alias).map_err(kuberc::failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(function(&context));
    let flushed = context.flush();
    // A task that still reads a terminal must not keep the process.
    runtime.shutdown_background();
    result?;
    flushed?;
    if context.flags.bool("warnings-as-errors") && context.warning_count() > 0 {
        let count = context.warning_count();
        let noun = if count == 1 { "warning" } else { "warnings" };
        return Err(Error::Message(format!("{count} {noun} received")));
    }
    Ok(())
}

/// Profiles of upstream are those of Go's runtime. A command can have another flag of that name.
fn refuse_profiles(command: &Command, flags: &Values) -> Result<()> {
    let has_own = command.flags.iter().flat_map(|group| group.iter()).any(|flag| flag.name == "profile");
    match flags.str("profile") {
        "none" | "" => Ok(()),
        _ if has_own => Ok(()),
        kind => Err(Error::Message(format!("--profile={kind} is not supported: there is no Go runtime to profile"))),
    }
}

fn usage(error: &ParseError, groups: &[&[crate::flags::Flag]], path: &str, code: u8) -> Error {
    // Commands with a code of their own report invalid flags as they report invalid arguments.
    let mut text = match code {
        1 => format!("{error}\nSee '{path} --help' for usage."),
        _ => format!("error: {error}\nSee '{path} -h' for help and examples"),
    };
    if let ParseError::Unknown(name) = error {
        let names = groups.iter().flat_map(|group| group.iter()).filter(|flag| !flag.is_hidden).map(|flag| flag.name);
        if let Some(nearest) = suggest::nearest(name, names) {
            text.push_str(&format!("\nhint: did you mean --{nearest}?"));
        }
    }
    if code == 1 { Error::Message(text) } else { Error::Command { message: text, code } }
}

/// The command that the arguments name, its path, and the arguments without the names. Global flags may come first.
fn find(root: &'static Command, arguments: &[String]) -> Result<(&'static Command, String, Vec<String>)> {
    let (mut command, mut path) = (root, root.name.to_string());
    let mut rest: Vec<String> = Vec::new();
    let mut left = arguments;
    while !command.children.is_empty() {
        let Some((argument, after)) = left.split_first() else { break };
        if argument == "--" {
            break;
        }
        if argument.starts_with('-') && argument.len() > 1 {
            let takes_next = takes_next(command, argument);
            let count = if takes_next { 2.min(left.len()) } else { 1 };
            rest.extend_from_slice(&left[..count]);
            left = &left[count..];
            continue;
        }
        let Some(child) = command.child(argument) else {
            if std::ptr::eq(command, &ROOT) {
                plugins::run(left, &rest)?;
                return Err(unknown(command, &path, argument));
            }
            break;
        };
        path = format!("{path} {}", child.name);
        command = child;
        left = after;
    }
    rest.extend_from_slice(left);
    Ok((command, path, rest))
}

/// Whether the value of a flag is the next argument.
fn takes_next(command: &Command, argument: &str) -> bool {
    if argument.contains('=') {
        return false;
    }
    let mut known = command.flags.iter().flat_map(|group| group.iter()).chain(GLOBALS);
    let flag = match argument.strip_prefix("--") {
        Some(name) => known.find(|flag| flag.name == name),
        None if argument.len() == 2 => known.find(|flag| argument[1..].starts_with(flag.short)),
        None => None,
    };
    flag.is_some_and(|flag| flag.bare.is_none())
}

fn unknown(command: &Command, path: &str, name: &str) -> Error {
    let similar: Vec<&str> =
        command.children.iter().map(|child| child.name).filter(|child| suggest::is_similar(name, child)).collect();
    let mut text = format!("unknown command \"{name}\" for \"{path}\"");
    if !similar.is_empty() {
        text.push_str("\n\nDid you mean this?\n");
        similar.iter().for_each(|name| text.push_str(&format!("\t{name}\n")));
    }
    Error::Message(text)
}

/// A group of commands without one of them: its help, or an error.
fn group_help(command: &'static Command, path: &str, rest: &[String]) -> Result<()> {
    let groups: &[&[crate::flags::Flag]] = &[GLOBALS];
    match parse(groups, rest, true) {
        Ok(parsed) => match parsed.arguments.first() {
            Some(name) if !command.only_helps && !std::ptr::eq(command, &ROOT) => {
                let text = format!(
                    "unknown command \"{}\"\nSee '{path} -h' for help and examples",
                    parsed.arguments.join(" ")
                );
                let _ = name;
                Err(Error::Message(text))
            }
            None if !command.only_helps && !std::ptr::eq(command, &ROOT) => {
                eprint!("{}", help::command(command, path));
                Err(Error::Exit(1))
            }
            _ => {
                print!("{}", help::command(command, path));
                Ok(())
            }
        },
        Err(ParseError::Help) => {
            print!("{}", help::command(command, path));
            Ok(())
        }
        Err(error) => Err(usage(&error, groups, path, command.flag_error_code)),
    }
}
