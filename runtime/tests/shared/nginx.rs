//! An image with Debian's nginx.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::busybox::Tar;

const CONFIGURATION: &str = "\
daemon off;
pid /tmp/nginx.pid;
error_log stderr;
events {}
http {
    access_log /dev/stdout;
    server { listen 80; location / { return 200 'nginx in $hostname for $http_host\\n'; } }
}
";

/// Debian's nginx and its libraries, as unpacked by `./test --prepare`.
fn unpacked() -> PathBuf {
    let tools = std::env::var_os("TIPHYS_TEST_TOOLS").map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-tools"));
    let directory = tools.join("nginx");
    assert!(directory.join("usr/sbin/nginx").is_file(), "{} is not there: ./test --prepare", directory.display());
    directory
}

/// The layer of an image, with the program and its libraries only. It serves its host name and the requested one.
pub fn layer() -> Vec<u8> {
    let root = unpacked();
    let mut tar = Tar::default();
    for directory in ["etc/", "etc/nginx/", "var/", "var/log/", "var/log/nginx/", "var/lib/", "var/lib/nginx/"] {
        tar.entry(directory, b'5', 0o755, "", &[]);
    }
    tar.entry("etc/nginx/nginx.conf", b'0', 0o644, "", CONFIGURATION.as_bytes());
    tar.entry("etc/group", b'0', 0o644, "", b"root:x:0:\nnogroup:x:65534:\n");
    tar.entry("etc/passwd", b'0', 0o644, "", b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n");
    add(&mut tar, &root, Path::new("usr/sbin"));
    for directory in ["lib", "lib64", "usr/lib"] {
        add(&mut tar, &root, Path::new(directory));
    }
    tar.finish()
}

fn add(tar: &mut Tar, root: &Path, directory: &Path) {
    let Ok(entries) = fs::read_dir(root.join(directory)) else { return };
    for entry in entries.flatten() {
        let (name, kind) = (entry.file_name().into_string().expect("readable"), entry.file_type().expect("readable"));
        let path = directory.join(&name);
        let shown = path.to_str().expect("readable");
        if kind.is_dir() {
            if !["gconv", "engines-3", "ossl-modules"].contains(&name.as_str()) {
                add(tar, root, &path);
            }
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).expect("readable");
            tar.entry(shown, b'2', 0o777, target.to_str().expect("readable"), &[]);
        } else if name == "nginx" || name.contains(".so") {
            let mode = entry.metadata().expect("readable").permissions().mode() & 0o777;
            tar.entry(shown, b'0', mode, "", &fs::read(entry.path()).expect("readable"));
        }
    }
}
