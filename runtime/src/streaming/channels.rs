//! What a session sees of its client, however it is carried.

use bytes::Bytes;
use tokio::sync::mpsc;

/// What goes to the client.
#[derive(Debug, PartialEq, Eq)]
pub enum Out {
    Stdout(Bytes),
    Stderr(Bytes),
    /// How it ended; the last word.
    Status(Bytes),
    /// Of a forwarded port, by its place in the request.
    Port(usize, Bytes),
    PortError(usize, Bytes),
    PortEnd(usize),
}

/// What comes from the client.
#[derive(Debug, PartialEq, Eq)]
pub enum In {
    Stdin(Bytes),
    StdinEnd,
    Resize { width: u16, height: u16 },
    Port(usize, Bytes),
    PortEnd(usize),
}

/// Both ends are bounded: a side that does not read holds the other up.
pub struct Channels {
    pub from_client: mpsc::Receiver<In>,
    pub to_client: mpsc::Sender<Out>,
}

pub const DEPTH: usize = 16;

/// How a command ended, as Kubernetes' clients read it.
pub fn exit_status(code: i32) -> Bytes {
    let text = if code == 0 {
        r#"{"metadata":{},"status":"Success"}"#.to_string()
    } else {
        serde_json::json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        })
        .to_string()
    };
    Bytes::from(text)
}

/// Why a command could not be run to its end.
pub fn failure(reason: &str) -> Bytes {
    let value = serde_json::json!({
        "metadata": {},
        "status": "Failure",
        "message": reason,
        "reason": "InternalError",
        "details": {"causes": [{"message": reason}]},
        "code": 500,
    });
    Bytes::from(value.to_string())
}

/// A terminal's size, as clients send it: both spelled as Go has them.
pub fn resize(text: &[u8]) -> Option<In> {
    #[derive(serde::Deserialize)]
    struct Size {
        #[serde(alias = "Width")]
        width: u16,
        #[serde(alias = "Height")]
        height: u16,
    }
    let size: Size = serde_json::from_slice(text).ok()?;
    Some(In::Resize { width: size.width, height: size.height })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_sizes() {
        assert_eq!(exit_status(0), r#"{"metadata":{},"status":"Success"}"#);
        let text = String::from_utf8(exit_status(3).to_vec()).unwrap();
        assert!(text.contains(r#""causes":[{"message":"3","reason":"ExitCode"}]"#), "{text}");
        assert_eq!(resize(br#"{"Width":80,"Height":24}"#), Some(In::Resize { width: 80, height: 24 }));
        assert_eq!(resize(b"{}"), None);
    }
}
