//! Signals by the names that images and CRI use.

/// In the order of the CRI's enum.
const NAMES: [(&str, i32); 32] = [
    ("ABRT", libc::SIGABRT),
    ("ALRM", libc::SIGALRM),
    ("BUS", libc::SIGBUS),
    ("CHLD", libc::SIGCHLD),
    ("CLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("FPE", libc::SIGFPE),
    ("HUP", libc::SIGHUP),
    ("ILL", libc::SIGILL),
    ("INT", libc::SIGINT),
    ("IO", libc::SIGIO),
    ("IOT", libc::SIGABRT),
    ("KILL", libc::SIGKILL),
    ("PIPE", libc::SIGPIPE),
    ("POLL", libc::SIGPOLL),
    ("PROF", libc::SIGPROF),
    ("PWR", libc::SIGPWR),
    ("QUIT", libc::SIGQUIT),
    ("SEGV", libc::SIGSEGV),
    ("STKFLT", libc::SIGSTKFLT),
    ("STOP", libc::SIGSTOP),
    ("SYS", libc::SIGSYS),
    ("TERM", libc::SIGTERM),
    ("TRAP", libc::SIGTRAP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("VTALRM", libc::SIGVTALRM),
    ("WINCH", libc::SIGWINCH),
];
const MIN_REALTIME: i32 = 34;
const MAX_REALTIME: i32 = 64;

/// `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`, `RTMAX-1`, ...
pub(crate) fn by_name(name: &str) -> Option<i32> {
    let upper = name.trim().to_ascii_uppercase();
    if let Ok(number) = upper.parse::<i32>() {
        return (1..=MAX_REALTIME).contains(&number).then_some(number);
    }
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    match short {
        "XCPU" => return Some(libc::SIGXCPU),
        "XFSZ" => return Some(libc::SIGXFSZ),
        _ => {}
    }
    if let Some(rest) = short.strip_prefix("RTMIN") {
        return realtime(MIN_REALTIME, rest);
    }
    if let Some(rest) = short.strip_prefix("RTMAX") {
        return realtime(MAX_REALTIME, rest);
    }
    NAMES.iter().find(|(n, _)| *n == short).map(|(_, number)| *number)
}

fn realtime(base: i32, rest: &str) -> Option<i32> {
    let offset = if rest.is_empty() { 0 } else { rest.parse::<i32>().ok()? };
    Some(base + offset).filter(|n| (MIN_REALTIME..=MAX_REALTIME).contains(n))
}

/// Maps the CRI's enum, whose real-time signals follow the standard signals in order.
pub(crate) fn by_cri(signal: cri::Signal) -> Option<i32> {
    let value = signal as i32;
    match signal {
        cri::Signal::RuntimeDefault => None,
        _ if value >= cri::Signal::Sigrtmin as i32 => Some(MIN_REALTIME + value - cri::Signal::Sigrtmin as i32),
        cri::Signal::Sigxcpu => Some(libc::SIGXCPU),
        cri::Signal::Sigxfsz => Some(libc::SIGXFSZ),
        _ => NAMES.get(value as usize - 1).map(|(_, number)| *number),
    }
}

/// The stop signal of a container: the one it requests, its image's, or SIGTERM.
pub(crate) fn stop(requested: cri::Signal, image: &str) -> i32 {
    by_cri(requested).or_else(|| by_name(image)).unwrap_or(libc::SIGTERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (name, expected) in [
            ("SIGTERM", Some(15)),
            ("quit", Some(3)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("RTMIN", Some(34)),
            ("SIGNOTHING", None),
            ("99", None),
            ("", None),
        ] {
            assert_eq!(by_name(name), expected, "{name}");
        }
    }

    #[test]
    fn maps_the_signals_of_cri() {
        for (signal, expected) in [
            (cri::Signal::RuntimeDefault, None),
            (cri::Signal::Sigabrt, Some(libc::SIGABRT)),
            (cri::Signal::Sigterm, Some(15)),
            (cri::Signal::Sigwinch, Some(libc::SIGWINCH)),
            (cri::Signal::Sigxcpu, Some(libc::SIGXCPU)),
            (cri::Signal::Sigrtmin, Some(34)),
            (cri::Signal::Sigrtmaxminus14, Some(50)),
            (cri::Signal::Sigrtmax, Some(64)),
        ] {
            assert_eq!(by_cri(signal), expected, "{signal:?}");
        }
        assert_eq!(stop(cri::Signal::RuntimeDefault, "SIGQUIT"), 3);
        assert_eq!(stop(cri::Signal::Sigint, "SIGQUIT"), 2);
        assert_eq!(stop(cri::Signal::RuntimeDefault, ""), 15);
    }
}
