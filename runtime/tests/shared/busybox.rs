//! An image with Debian's static busybox.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

pub fn layer() -> Vec<u8> {
    let busybox = fs::read("/bin/busybox").or_else(|_| fs::read("/usr/bin/busybox"));
    let busybox = busybox.expect("Debian's busybox-static is needed");
    let mut tar = Tar::default();
    tar.entry("tmp/", b'5', 0o1777, "", &[]);
    for directory in ["bin/", "etc/", "usr/", "usr/bin/"] {
        tar.entry(directory, b'5', 0o755, "", &[]);
    }
    tar.entry("bin/busybox", b'0', 0o755, "", &busybox);
    let list = Command::new("busybox").arg("--list").output().expect("busybox is there");
    for applet in String::from_utf8(list.stdout).expect("text").lines().filter(|a| *a != "busybox") {
        tar.entry(&format!("bin/{applet}"), b'2', 0o777, "busybox", &[]);
    }
    tar.entry("etc/passwd", b'0', 0o644, "", b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/var/www:/bin/sh\n");
    tar.entry("etc/group", b'0', 0o644, "", b"root:x:0:\nweb:x:34:\nlogs:x:50:web\n");
    tar.finish()
}

/// A minimal tar writer.
#[derive(Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn entry(&mut self, name: &str, kind: u8, mode: u32, link: &str, data: &[u8]) {
        let mut head = [0u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        let fields: BTreeMap<usize, String> = [
            (100, format!("{mode:07o}\0")),
            (108, "0000000\0".into()),
            (116, "0000000\0".into()),
            (124, format!("{:011o}\0", data.len())),
            (136, "00000000000\0".into()),
            (148, "        ".into()),
            (257, "ustar\x0000".into()),
        ]
        .into();
        for (at, text) in fields {
            head[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        head[156] = kind;
        head[157..157 + link.len()].copy_from_slice(link.as_bytes());
        let sum: u32 = head.iter().map(|b| u32::from(*b)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(head);
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}
