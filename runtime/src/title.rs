//! What `ps` shows of a process that is forked and never execs: its short name, and its command line.

use std::sync::OnceLock;

use crate::sys;

/// The zygote is started with so many bytes of arguments more than it needs: its forks write their titles there.
pub const ROOM: usize = 384;

/// Where the arguments of this process are. The zygote looks once; its forks have them at the same addresses and must
/// not allocate for a look of their own, since each page they write is private memory of every pod.
static ARGUMENTS: OnceLock<Option<(usize, usize)>> = OnceLock::new();

/// Names this process `KIND` in its short name, and `KIND OF` in its command line.
pub fn set(kind: &str, of: &str) {
    sys::set_name(kind);
    // Without a readable /proc the process keeps its parent's title.
    let range = ARGUMENTS.get_or_init(|| arguments(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default()));
    if let Some((start, end)) = *range {
        let separator: &[u8] = if of.is_empty() { b"" } else { b" " };
        sys::overwrite_arguments(start, end, &[kind.as_bytes(), separator, of.as_bytes()]);
    }
}

/// Where the kernel finds the command line, by the fields 48 and 49 of `/proc/PID/stat`. The second field is the short
/// name in parentheses, which may hold anything.
fn arguments(stat: &str) -> Option<(usize, usize)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(45);
    let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (start > 0 && end > start).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_where_the_arguments_are() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) b) {}", fields.join(" "));
        assert_eq!(arguments(&stat), Some((48, 49)));
        assert_eq!(arguments("7 (a) S 1"), None);
        assert_eq!(arguments(""), None);
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let (start, end) = arguments(&own).unwrap();
        assert!(end - start >= std::env::args().next().unwrap().len());
    }
}
