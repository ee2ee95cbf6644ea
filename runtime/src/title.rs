//! The process title that `ps` shows for a process that is forked without exec: its name and its command line.

use std::sync::OnceLock;

use crate::sys;

/// The zygote is started with this many extra bytes of arguments, over which its forks write their titles.
pub(crate) const RESERVED_BYTES: usize = 384;

/// The addresses of this process's arguments. The zygote finds them once. Its forks have them at the same addresses, and
/// must not allocate memory to find them again, since every page they write is private memory of every pod.
static ARGUMENTS: OnceLock<Option<(usize, usize)>> = OnceLock::new();

/// Sets the process name to `KIND`, and the command line to `KIND OF`.
pub(crate) fn set(kind: &str, of: &str) {
    sys::set_name(kind);
    // Without a readable /proc the process keeps its parent's title.
    let range = ARGUMENTS.get_or_init(|| arguments(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default()));
    if let Some((start, end)) = *range {
        let separator: &[u8] = if of.is_empty() { b"" } else { b" " };
        sys::overwrite_arguments(start, end, &[kind.as_bytes(), separator, of.as_bytes()]);
    }
}

/// The addresses of the command line: fields 48 and 49 of `/proc/PID/stat`. The second field is the process name in
/// parentheses, which may contain any character.
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
    fn parses_the_addresses_of_the_arguments() {
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
