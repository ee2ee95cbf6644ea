//! Names of kernel parameters, and which of them belong to a namespace of a pod.

/// Prefixes of the sysctls that belong to a namespace of the pod.
const OF_NETWORK: &str = "net.";
const OF_IPC: [&str; 3] = ["kernel.shm", "kernel.msg", "fs.mqueue."];
const LONGEST: usize = 253;

/// A pattern that cannot be allowed for pods.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("sysctl {0:?} must have at most {LONGEST} characters and be a sysctl name, or a prefix followed by *")]
    Malformed(String),
    #[error("the sysctls {0:?} are not known to be namespaced")]
    NotNamespacedPrefix(String),
    #[error("the sysctl {0:?} are not known to be namespaced")]
    NotNamespaced(String),
}

/// A name or a pattern of the configuration with dots as separators. Only namespaced sysctls can be allowed for pods.
pub(crate) fn pattern(text: &str) -> Result<String, PatternError> {
    if text.len() > LONGEST || !is_pattern(text) {
        return Err(PatternError::Malformed(text.to_string()));
    }
    let dotted = dotted(text);
    match dotted.strip_suffix('*') {
        Some(prefix) if !is_of_network(prefix) && !is_of_ipc(prefix) => Err(PatternError::NotNamespacedPrefix(dotted)),
        None if !is_of_network(&dotted) && !is_of_ipc(&dotted) => Err(PatternError::NotNamespaced(dotted)),
        _ => Ok(dotted),
    }
}

/// A name with slashes as separators may have dots in its components: then both are swapped.
pub(crate) fn dotted(name: &str) -> String {
    let first = name.find(['.', '/']);
    if first.is_none_or(|at| name[at..].starts_with('.')) {
        return name.to_string();
    }
    let swap = |letter: char| match letter {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// Components of lower-case letters, digits, - and _ between dots or slashes; the last may end in an asterisk, or be
/// one.
fn is_pattern(text: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_".contains(letter);
    let outer =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit());
    let is_part = |part: &str| part.chars().all(inner) && outer(part.chars().next()) && outer(part.chars().last());
    let Some(start) = text.strip_suffix('*') else { return text.split(['.', '/']).all(is_part) };
    let mut parts: Vec<&str> = start.split(['.', '/']).collect();
    let last = parts.pop().unwrap_or_default();
    let begins = last.is_empty() || last.chars().all(inner) && outer(last.chars().next());
    parts.iter().all(|part| is_part(part)) && begins
}

pub(crate) fn is_of_network(name: &str) -> bool {
    name.starts_with(OF_NETWORK)
}

pub(crate) fn is_of_ipc(name: &str) -> bool {
    name == "kernel.sem" || OF_IPC.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_only_namespaced_sysctls() {
        let cases = [
            ("kernel.msgmax", "kernel.msgmax"),
            ("kernel/sem", "kernel.sem"),
            ("net/ipv4/conf/eth0.100/forwarding", "net.ipv4.conf.eth0/100.forwarding"),
            ("net.ipv4.conf.eth0/100.*", "net.ipv4.conf.eth0/100.*"),
            ("kernel.msg*", "kernel.msg*"),
            ("net.*", "net.*"),
            ("kernel.*", "the sysctls \"kernel.*\" are not known to be namespaced"),
            ("kernel/sem*", "kernel.sem*"),
            ("vm/swappiness", "the sysctl \"vm.swappiness\" are not known to be namespaced"),
            ("kernel.semantics", "the sysctl \"kernel.semantics\" are not known to be namespaced"),
        ];
        for (text, want) in cases {
            assert_eq!(pattern(text).unwrap_or_else(|why| why.to_string()), want, "{text}");
        }
        for wrong in ["", "*.a", "net..a", "net.A", "net._a*", "*"] {
            assert!(pattern(wrong).is_err(), "{wrong}");
        }
    }
}
