//! A seccomp profile: an action for each system call. Files have the format of Docker and OCI.

use serde::Deserialize;

use crate::error::{Error, Result, refused};

/// The kernel's action for a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    Allow,
    Errno(u16),
    KillThread,
    KillProcess,
    Trap,
    Trace(u16),
    Log,
}

/// How an argument is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The argument masked with this value is equal.
    Masked(u64),
}

/// A condition on an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    pub index: u32,
    pub value: u64,
    pub comparison: Comparison,
}

/// A rule for some system calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub names: Vec<String>,
    pub action: Action,
    /// All conditions have to be met.
    pub arguments: Vec<Argument>,
}

/// A profile: an action for each rule, and one for all other system calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub default: Action,
    pub rules: Vec<Rule>,
}

/// Parses a profile file. Unsupported settings are refused: the filter must not be weaker than the profile.
pub(crate) fn parse(text: &str) -> Result<Profile> {
    let file: File = serde_json::from_str(text).map_err(|e| Error::Refused(format!("seccomp profile: {e}")))?;
    if let Some(path) = &file.listener_path {
        return refused(format!("seccomp profile: listenerPath {path:?} is not supported"));
    }
    let default = action(&file.default_action, file.default_errno_ret)?;
    let rules = file.syscalls.into_iter().map(rule).collect::<Result<_>>()?;
    Ok(Profile { default, rules })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    default_action: String,
    default_errno_ret: Option<u16>,
    listener_path: Option<String>,
    #[serde(default)]
    syscalls: Vec<FileRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileRule {
    #[serde(default)]
    names: Vec<String>,
    name: Option<String>,
    action: String,
    errno_ret: Option<u16>,
    #[serde(default)]
    args: Option<Vec<FileArgument>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileArgument {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

fn rule(file: FileRule) -> Result<Rule> {
    let names = file.names.into_iter().chain(file.name).collect();
    let arguments = file.args.unwrap_or_default().into_iter().map(argument).collect::<Result<_>>()?;
    Ok(Rule { names, action: action(&file.action, file.errno_ret)?, arguments })
}

fn action(name: &str, errno: Option<u16>) -> Result<Action> {
    let errno = errno.unwrap_or(libc::EPERM as u16);
    Ok(match name {
        "SCMP_ACT_ALLOW" => Action::Allow,
        "SCMP_ACT_ERRNO" => Action::Errno(errno),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Action::KillThread,
        "SCMP_ACT_KILL_PROCESS" => Action::KillProcess,
        "SCMP_ACT_TRAP" => Action::Trap,
        "SCMP_ACT_TRACE" => Action::Trace(errno),
        "SCMP_ACT_LOG" => Action::Log,
        other => return refused(format!("seccomp profile: unknown action {other:?}")),
    })
}

fn argument(file: FileArgument) -> Result<Argument> {
    if file.index > 5 {
        return refused(format!("seccomp profile: argument index {} is out of range (0 to 5)", file.index));
    }
    let (value, comparison) = match file.op.as_str() {
        "SCMP_CMP_EQ" => (file.value, Comparison::Equal),
        "SCMP_CMP_NE" => (file.value, Comparison::NotEqual),
        "SCMP_CMP_LT" => (file.value, Comparison::Less),
        "SCMP_CMP_LE" => (file.value, Comparison::LessOrEqual),
        "SCMP_CMP_GT" => (file.value, Comparison::Greater),
        "SCMP_CMP_GE" => (file.value, Comparison::GreaterOrEqual),
        "SCMP_CMP_MASKED_EQ" => (file.value_two, Comparison::Masked(file.value)),
        other => return refused(format!("seccomp profile: unknown comparison {other:?}")),
    };
    Ok(Argument { index: file.index, value, comparison })
}
