//! The exit status of a command, as the error stream reports it.

use serde_json::{Value, json};

/// The request type, which only affects error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Exec,
    Attach,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandResult {
    Success,
    /// The command ended with a nonzero code. The message is the runtime's.
    ExitCode {
        code: i32,
        message: String,
    },
    /// The command could not be run or completed.
    Failed(String),
    /// Like `Failed`, with a message that needs no prefix.
    Internal(String),
}

impl CommandResult {
    /// The content of the error stream; before version 4 plain text, and empty on success.
    pub fn report(&self, verb: Verb, version: u8) -> Vec<u8> {
        let status = self.status(verb);
        if version >= 4 {
            return status.to_string().into_bytes();
        }
        status["message"].as_str().unwrap_or_default().as_bytes().to_vec()
    }

    fn status(&self, verb: Verb) -> Value {
        match self {
            Self::Success => json!({"metadata": {}, "status": "Success"}),
            Self::ExitCode { code, message } => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("command terminated with non-zero exit code: {message}"),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Self::Failed(error) => internal(&match verb {
                Verb::Exec => format!("error executing command in container: {error}"),
                Verb::Attach => format!("error attaching to container: {error}"),
            }),
            Self::Internal(error) => internal(error),
        }
    }

    /// Parses the error stream.
    pub fn parse(report: &[u8], version: u8) -> Self {
        if version < 4 {
            return if report.is_empty() { Self::Success } else { Self::Failed(text(report)) };
        }
        let Ok(status) = serde_json::from_slice::<Value>(report) else {
            return Self::Failed(format!("error stream protocol error: {:?}", text(report)));
        };
        let message = status["message"].as_str().unwrap_or_default().to_string();
        match (status["status"].as_str(), status["reason"].as_str(), exit_code(&status)) {
            (Some("Success"), ..) => Self::Success,
            (_, Some("NonZeroExitCode"), Some(code)) => Self::ExitCode { code, message },
            _ => Self::Failed(message),
        }
    }
}

fn internal(error: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {error}"),
        "reason": "InternalError",
        "details": {"causes": [{"message": error}]},
        "code": 500,
    })
}

fn exit_code(status: &Value) -> Option<i32> {
    let causes = status["details"]["causes"].as_array()?;
    let cause = causes.iter().find(|cause| cause["reason"] == "ExitCode")?;
    cause["message"].as_str()?.parse().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_match_upstream() {
        let check = |ending: &CommandResult, verb, version, expected: &str| {
            let report = String::from_utf8(ending.report(verb, version)).unwrap();
            assert_eq!(report, expected);
        };
        let exit = CommandResult::ExitCode { code: 7, message: "exit status 7".into() };
        let failed = CommandResult::Failed("no such file".into());
        check(&CommandResult::Success, Verb::Exec, 4, r#"{"metadata":{},"status":"Success"}"#);
        check(&CommandResult::Success, Verb::Exec, 3, "");
        check(
            &exit,
            Verb::Exec,
            5,
            r#"{"details":{"causes":[{"message":"7","reason":"ExitCode"}]},"message":"command terminated with non-zero exit code: exit status 7","metadata":{},"reason":"NonZeroExitCode","status":"Failure"}"#,
        );
        check(&exit, Verb::Exec, 1, "command terminated with non-zero exit code: exit status 7");
        check(&failed, Verb::Exec, 2, "Internal error occurred: error executing command in container: no such file");
        check(&failed, Verb::Attach, 2, "Internal error occurred: error attaching to container: no such file");
        check(&CommandResult::Internal("gone".into()), Verb::Attach, 2, "Internal error occurred: gone");
    }

    #[test]
    fn reports_round_trip() {
        let check = |report: &[u8], version, ending| assert_eq!(CommandResult::parse(report, version), ending);
        let exit = CommandResult::ExitCode { code: 7, message: "x".into() };
        let read = CommandResult::ExitCode { code: 7, message: "command terminated with non-zero exit code: x".into() };
        check(&exit.report(Verb::Exec, 4), 4, read);
        check(&CommandResult::Success.report(Verb::Exec, 4), 4, CommandResult::Success);
        check(b"", 3, CommandResult::Success);
        check(b"broken", 1, CommandResult::Failed("broken".into()));
        check(b"not json", 4, CommandResult::Failed("error stream protocol error: \"not json\"".into()));
    }
}
