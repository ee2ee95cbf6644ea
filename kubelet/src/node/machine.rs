//! Reads facts of the machine from the kernel and a few files. An unreadable value is empty or zero.

use std::path::Path;

use super::status_input::Machine;

/// A directory that the files are below: `/`, or a test's.
pub(crate) fn read(root: &Path, pods: &Path) -> Machine {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let first = |paths: [&str; 2]| {
        let found = paths.map(text).into_iter().find(|text| !text.trim().is_empty());
        found.unwrap_or_default().trim().to_string()
    };
    let memory = text("proc/meminfo");
    let machine_id = first(["etc/machine-id", "var/lib/dbus/machine-id"]);
    let system_uuid = first(["sys/class/dmi/id/product_uuid", "etc/machine-id"]);
    Machine {
        machine_id,
        system_uuid: system_uuid.to_lowercase(),
        boot_id: text("proc/sys/kernel/random/boot_id").trim().to_string(),
        kernel_version: text("proc/sys/kernel/osrelease").trim().to_string(),
        os_image: os_image(&first(["etc/os-release", "usr/lib/os-release"])),
        architecture: architecture(std::env::consts::ARCH).to_string(),
        cores: cores(&text("sys/devices/system/cpu/online")),
        memory_bytes: kilobytes(&memory, "MemTotal"),
        swap_bytes: kilobytes(&memory, "SwapTotal"),
        huge_pages: huge_pages(&root.join("sys/kernel/mm/hugepages")),
        storage_bytes: storage(pods),
    }
}

/// Whether the machine uses swap: the list has a line after its header.
pub fn swaps(root: &Path) -> bool {
    std::fs::read_to_string(root.join("proc/swaps")).is_ok_and(|text| text.lines().skip(1).any(|line| !line.is_empty()))
}

fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn os_image(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    name.trim().trim_matches('"').to_string()
}

/// `0-3,8`; if the kernel does not report it, the CPUs that this process may use.
fn cores(online: &str) -> i64 {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(last.parse::<i64>().ok()? - first.parse::<i64>().ok()? + 1)
    };
    let sum: Option<i64> = online.trim().split(',').map(range).sum();
    let own = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as i64);
    sum.filter(|sum| *sum > 0).unwrap_or_else(own)
}

/// A line of `/proc/meminfo`, in bytes.
fn kilobytes(text: &str, name: &str) -> i64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok()).unwrap_or(0) * 1024
}

/// Directories like `hugepages-2048kB`.
fn huge_pages(dir: &Path) -> Vec<(i64, i64)> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let size = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let size = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<i64>().ok()?;
        let count = std::fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        Some((size * 1024, count))
    };
    let mut pages: Vec<(i64, i64)> = entries.flatten().filter_map(|entry| size(&entry)).collect();
    pages.sort_unstable();
    pages
}

fn storage(path: &Path) -> Option<i64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    i64::try_from(stat.f_blocks.checked_mul(stat.f_frsize)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_machine_from_its_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        write("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\nSwapTotal:      1024 kB\n");
        write("proc/sys/kernel/random/boot_id", "b-1\n");
        write("proc/sys/kernel/osrelease", "6.1.0\n");
        write("etc/machine-id", "m-1\n");
        write("usr/lib/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
        write("sys/devices/system/cpu/online", "0-3,8\n");
        write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "7\n");
        write("proc/swaps", "Filename Type Size Used Priority\n");
        let machine = read(dir.path(), dir.path());
        let want = Machine {
            machine_id: "m-1".to_string(),
            system_uuid: "m-1".to_string(),
            boot_id: "b-1".to_string(),
            kernel_version: "6.1.0".to_string(),
            os_image: "Debian GNU/Linux 12 (bookworm)".to_string(),
            architecture: architecture(std::env::consts::ARCH).to_string(),
            cores: 5,
            memory_bytes: 2 << 20,
            swap_bytes: 1 << 20,
            huge_pages: vec![(2 << 20, 7)],
            storage_bytes: machine.storage_bytes,
        };
        assert_eq!(machine, want);
        assert!(machine.storage_bytes.is_some_and(|bytes| bytes > 0));
        assert!(!swaps(dir.path()));
        write("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n");
        assert!(swaps(dir.path()));
    }

    #[test]
    fn reads_this_machine() {
        let machine = read(Path::new("/"), Path::new("/"));
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && !machine.boot_id.is_empty(), "{machine:?}");
    }
}
