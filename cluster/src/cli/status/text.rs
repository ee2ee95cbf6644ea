//! The status for people.

use super::{Check, Status};
use crate::cli::table::aligned;

/// So many pods with problems are listed.
const MAX_PROBLEMS: usize = 10;

pub(super) fn text(status: &Status, colours: bool) -> String {
    let mut lines = vec![headline(status)];
    if let Some(process) = &status.process {
        lines.push(format!("  server       https://{}", process.address));
        lines.push(format!("  kubeconfig   {}", process.kubeconfig.display()));
    }
    lines.push(format!("  data         {}", status.data_dir));
    lines.push(format!("  store        {}{}", bytes(status.store_bytes), growth(status)));
    if let Some(first) = status.certificates.first() {
        let soon = if status.expiring().next().is_some() { mark(false, colours) } else { String::new() };
        lines.push(format!("  certificates {soon}the first ({}) expires in {} days", first.name, first.days_left));
    }
    if let Some(why) = &status.unreachable {
        lines.push(format!("  {}the API server does not respond: {why}", mark(false, colours)));
    }
    for (title, checks) in
        [("components", &status.components), ("nodes", &status.nodes), ("manifests", &status.manifests)]
    {
        if !checks.is_empty() {
            lines.push(title.to_string());
            lines.extend(checked(checks, colours));
        }
    }
    if status.process.is_some() && status.unreachable.is_none() {
        let pods = &status.pods;
        lines.push(format!("pods: {} of {} ready", pods.ready, pods.total));
        lines.extend(checked(pods.problems.get(..MAX_PROBLEMS).unwrap_or(&pods.problems), colours));
        if pods.problems.len() > MAX_PROBLEMS {
            lines.push(format!("  … and {} more", pods.problems.len() - MAX_PROBLEMS));
        }
    }
    lines.join("\n")
}

fn headline(status: &Status) -> String {
    match &status.process {
        Some(process) => format!(
            "cluster {} runs since {} (pid {}, tiphys {})",
            status.name,
            duration(status.now - process.started),
            process.pid,
            process.version
        ),
        None => format!("cluster {} is {}", status.name, status.state()),
    }
}

fn checked(checks: &[Check], colours: bool) -> Vec<String> {
    let cells = |check: &Check| vec![check.name.clone(), check.detail.clone()];
    let rows = aligned(checks.iter().map(cells));
    rows.iter().zip(checks).map(|(row, check)| format!("  {}{row}", mark(check.is_healthy, colours))).collect()
}

fn mark(is_healthy: bool, colours: bool) -> String {
    match (is_healthy, colours) {
        (true, true) => "\x1b[32m✓\x1b[0m ".to_string(),
        (true, false) => "✓ ".to_string(),
        (false, true) => "\x1b[31m✗\x1b[0m ".to_string(),
        (false, false) => "✗ ".to_string(),
    }
}

fn growth(status: &Status) -> String {
    match status.growth() {
        Some(0) | None => String::new(),
        Some(grown) if grown < 0 => format!(", {} less in an hour", bytes(-grown)),
        Some(grown) => format!(", {} more in an hour", bytes(grown)),
    }
}

fn bytes(count: i64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn duration(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::tests::running;

    #[test]
    fn shows_what_runs_and_what_is_wrong() {
        let want = "cluster dev runs since 2 h (pid 7, tiphys 0.1.0)\n  server       https://127.0.0.1:6443\n  \
                    kubeconfig   /data/kubeconfig\n  data         /data\n  store        3.0 MiB, 1.0 MiB more in an hour\n  \
                    certificates the first (apiserver) expires in 300 days\ncomponents\n  ✓ scheduler\nnodes\n  \
                    ✓ node   v1.37.0\npods: 3 of 3 ready";
        assert_eq!(text(&running(), false), want);
        let mut status = running();
        status.nodes[0] = Check { name: "node".into(), is_healthy: false, detail: "KubeletNotReady: stopped".into() };
        status.certificates[0].days_left = 2;
        let shown = text(&status, true);
        for part in ["\x1b[31m✗\x1b[0m node   KubeletNotReady: stopped", "\x1b[31m✗\x1b[0m the first (apiserver)"] {
            assert!(shown.contains(part), "{shown}");
        }
        let stopped = text(&Status { process: None, ..running() }, false);
        assert!(stopped.starts_with("cluster dev is stopped\n") && !stopped.contains("pods"), "{stopped}");
    }

    #[test]
    fn sizes_and_times_are_rounded() {
        assert_eq!([bytes(512), bytes(5 << 20), bytes(3 << 30)], ["0.5 KiB", "5.0 MiB", "3.0 GiB"]);
        assert_eq!([duration(5), duration(120), duration(7200), duration(259_200)], ["5 s", "2 min", "2 h", "3 days"]);
    }
}
