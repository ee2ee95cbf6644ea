//! Terminal sizes: consecutive JSON objects on their own stream.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

/// The maximum size of an incomplete object.
const MAX: usize = 4 * 1024;

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

impl Size {
    /// The message of the resize channel.
    pub fn encode(self) -> Vec<u8> {
        format!("{{\"Width\":{},\"Height\":{}}}\n", self.width, self.height).into_bytes()
    }
}

/// The latest terminal size; intermediate ones are skipped.
pub struct Resize(watch::Receiver<Size>);

impl Resize {
    /// Reads sizes from a stream in its own task.
    pub(super) fn read(stream: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let (sender, receiver) = watch::channel(Size::default());
        tokio::spawn(follow(stream, sender));
        Self(receiver)
    }

    /// For a size that never changes.
    pub(super) fn never() -> Self {
        Self(watch::channel(Size::default()).1)
    }

    /// The next size; None when there are no more.
    pub async fn next(&mut self) -> Option<Size> {
        self.0.changed().await.ok()?;
        Some(*self.0.borrow_and_update())
    }
}

async fn follow(mut stream: impl AsyncRead + Unpin, sender: watch::Sender<Size>) {
    let mut buffer = Vec::new();
    loop {
        match stream.read_buf(&mut buffer).await {
            Ok(count) if count > 0 => {}
            _ => return,
        }
        let Some((newest, used)) = parse(&buffer) else { return };
        buffer.drain(..used);
        if let Some(size) = newest {
            sender.send_replace(size);
        }
        if buffer.len() > MAX || sender.is_closed() {
            return;
        }
    }
}

/// The last complete size and the number of parsed bytes; None if it is not JSON.
fn parse(buffer: &[u8]) -> Option<(Option<Size>, usize)> {
    let mut values = serde_json::Deserializer::from_slice(buffer).into_iter::<Value>();
    let mut newest = None;
    let mut used = 0;
    while let Some(value) = values.next() {
        match value {
            Ok(value) => newest = Some(size(&value)?),
            Err(error) if error.is_eof() => break,
            Err(_) => return None,
        }
        used = values.byte_offset();
    }
    Some((newest, used))
}

fn size(value: &Value) -> Option<Size> {
    let field = |name: &str| u16::try_from(value.get(name)?.as_u64()?).ok();
    Some(Size { width: field("Width")?, height: field("Height")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_latest_complete_size() {
        let check = |text: &str, expected: Option<(Option<(u16, u16)>, usize)>| {
            let parsed = parse(text.as_bytes());
            let parsed = parsed.map(|(size, used)| (size.map(|size| (size.width, size.height)), used));
            assert_eq!(parsed, expected, "{text}");
        };
        let one = r#"{"Width":80,"Height":24}"#;
        check(one, Some((Some((80, 24)), 24)));
        check(&format!("{one}\n{{\"Width\":100,\"Height\":30}}\n{{\"Wi"), Some((Some((100, 30)), 50)));
        check("{\"Width\":", Some((None, 0)));
        check("", Some((None, 0)));
        check("nonsense", None);
        check(r#"{"Width":70000,"Height":1}"#, None);
    }

    #[tokio::test]
    async fn receives_size_changes() {
        use tokio::io::AsyncWriteExt;
        let (mut far, near) = tokio::io::duplex(64);
        let mut resize = Resize::read(near);
        for size in [Size { width: 80, height: 24 }, Size { width: 132, height: 50 }] {
            far.write_all(&size.encode()).await.unwrap();
            assert_eq!(resize.next().await, Some(size));
        }
        drop(far);
        assert_eq!(resize.next().await, None);
    }
}
