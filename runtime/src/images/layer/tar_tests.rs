use super::tar::*;

fn written(entries: &[(Entry, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (entry, data) in entries {
        writer.entry(entry).unwrap();
        std::io::Write::write_all(writer.data(), data).unwrap();
    }
    writer.finish().unwrap()
}

fn read_all(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        let (mut data, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            match reader.read_data(&mut buffer)? {
                0 => break,
                read => data.extend_from_slice(&buffer[..read]),
            }
        }
        all.push((entry, data));
    }
    Ok(all)
}

#[test]
fn entries_survive_a_round_trip() {
    let file = |path: &str, size| Entry { size, ..Entry::new(path, Kind::File, 0o4755) };
    let entries: Vec<(Entry, &[u8])> = vec![
        (Entry::new("bin/", Kind::Directory, 0o755), b""),
        (file("bin/sh", 5), b"hello"),
        (file("bin/empty", 0), b""),
        (file(&format!("long/{}/x", "a".repeat(200)), 512), &[7; 512]),
        (Entry { target: b"bin/sh".to_vec(), ..Entry::new("ash", Kind::Hardlink, 0o755) }, b""),
        (Entry { target: vec![b'b'; 300], ..Entry::new("link", Kind::Symlink, 0o777) }, b""),
        (Entry { major: 1, minor: 3, ..Entry::new("dev/null", Kind::CharDevice, 0o666) }, b""),
        (Entry { uid: 3_000_000_000, gid: 70_000, ..file("big", 1) }, b"x"),
        (Entry { xattrs: vec![(b"user.a".to_vec(), b"1\n2=3".to_vec())], ..file("x", 0) }, b""),
        (Entry { seconds: 1_700_000_000, ..Entry::new("pipe", Kind::Fifo, 0o600) }, b""),
    ];
    let read = read_all(&written(&entries)).unwrap();
    let expected: Vec<(Entry, Vec<u8>)> = entries.into_iter().map(|(entry, data)| (entry, data.to_vec())).collect();
    assert_eq!(read, expected);
}

#[test]
fn reports_damage() {
    let whole = written(&[(Entry { size: 600, ..Entry::new("a", Kind::File, 0o644) }, &[1; 600])]);
    let mut flipped = whole.clone();
    flipped[0] = b'b';
    let mut sparse = whole.clone();
    sparse[156] = b'S';
    fix_sum(&mut sparse);
    let mut bad_number = whole.clone();
    bad_number[124..128].copy_from_slice(b"9999");
    fix_sum(&mut bad_number);
    let cases: &[(&str, &[u8], &str)] = &[
        ("cut in a header", &whole[..100], "end of a header"),
        ("cut in a file", &whole[..700], "end of a file"),
        ("a changed byte", &flipped, "checksum"),
        ("sparse", &sparse, "sparse"),
        ("a number", &bad_number, "number"),
    ];
    for (name, bytes, why) in cases {
        let error = read_all(bytes).unwrap_err().to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    assert_eq!(read_all(&whole[..whole.len() - 1024]).unwrap().len(), 1, "the end may be missing");
    assert_eq!(read_all(&whole[..512 + 600]).unwrap().len(), 1, "and the padding");
}

fn fix_sum(bytes: &mut [u8]) {
    bytes[148..156].fill(b' ');
    let sum: u64 = bytes[..512].iter().map(|byte| u64::from(*byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn extended(records: &[u8]) -> Vec<u8> {
    let mut bytes = written(&[
        (Entry { size: records.len() as u64, ..Entry::new("pax", Kind::File, 0) }, records),
        (Entry::new("name", Kind::File, 0o644), b""),
    ]);
    bytes[156] = b'x';
    fix_sum(&mut bytes);
    bytes
}

#[test]
fn reads_extended_headers() {
    type Check = fn(&Entry) -> bool;
    let read: &[(&[u8], Check)] = &[
        (b"10 path=x\n", |entry| entry.path == b"x"),
        (b"14 uid=123456\n", |entry| entry.uid == 123_456),
        (b"14 mtime=12.5\n", |entry| (entry.seconds, entry.nanoseconds) == (12, 500_000_000)),
        (b"14 mtime=-1.5\n", |entry| (entry.seconds, entry.nanoseconds) == (-2, 500_000_000)),
        (b"26 SCHILY.xattr.user.a==b\n", |entry| entry.xattrs == [(b"user.a".to_vec(), b"=b".to_vec())]),
        (b"14 comment=hi\n10 path=y\n", |entry| entry.path == b"y"),
    ];
    for (records, expected) in read {
        let all = read_all(&extended(records)).unwrap();
        assert!(expected(&all[0].0), "{}: {:?}", String::from_utf8_lossy(records), all[0].0);
    }
    let refused: &[&[u8]] = &[
        b"5 path=x\n",
        b"99 path=x\n",
        b"0 \n",
        b"x path=x\n",
        b"10 path-x\n",
        b"7 uid=\n",
        b"23 GNU.sparse.major=12\n",
    ];
    for records in refused {
        assert!(read_all(&extended(records)).is_err(), "{}", String::from_utf8_lossy(records));
    }
}

#[test]
fn reads_archives_of_gnu_tar() {
    let outer = tempfile::tempdir().unwrap();
    let directory = tempfile::tempdir_in(outer.path()).unwrap();
    let deep = directory.path().join("d".repeat(90)).join("e".repeat(90));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("file"), b"content").unwrap();
    std::os::unix::fs::symlink("x".repeat(150), directory.path().join("link")).unwrap();
    for format in ["gnu", "pax", "ustar", "v7"] {
        let archive = directory.path().join(format!("../{format}.tar"));
        let tar = |args: &[&str]| {
            let mut command = std::process::Command::new("tar");
            command.args(args).arg(&archive).arg("-C").arg(directory.path());
            command
        };
        // The old formats cannot represent the long names, and tar omits them.
        tar(&["--format", format, "--quoting-style=literal", "-cf"]).arg(".").output().unwrap();
        let listed = tar(&["-tf"]).output().unwrap();
        let read = read_all(&std::fs::read(&archive).unwrap()).unwrap();
        let names: Vec<u8> = read.iter().flat_map(|(entry, _)| [&entry.path[..], b"\n"].concat()).collect();
        assert_eq!(String::from_utf8_lossy(&names), String::from_utf8_lossy(&listed.stdout), "{format}");
        assert!(read.len() > 1, "{format}");
        std::fs::remove_file(archive).unwrap();
    }
}
