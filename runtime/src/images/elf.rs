//! The parts of ELF that are needed to copy a program with its libraries: the dynamic linker, and a library's soname.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const INTERPRETER: u32 = 3;
const DYNAMIC: u32 = 2;
const LOAD: u32 = 1;
const SONAME: u64 = 14;
const STRINGS: u64 = 5;
const MAX_HEADERS: u16 = 256;
const MAX_DYNAMIC: u64 = 1 << 16;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Elf {
    /// The dynamic linker; None for a static program.
    pub interpreter: Option<String>,
    /// The soname of a library.
    pub soname: Option<String>,
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

pub(super) fn read(path: &Path) -> io::Result<Elf> {
    let file = File::open(path)?;
    let segments = segments(&file)?;
    let find = |kind| segments.iter().find(|segment| segment.kind == kind);
    let interpreter = find(INTERPRETER).map(|segment| text(&file, segment.offset)).transpose()?;
    let soname = match find(DYNAMIC) {
        Some(dynamic) => soname(&file, dynamic, &segments)?,
        None => None,
    };
    Ok(Elf { interpreter, soname })
}

/// The program headers of a 64-bit file with this machine's byte order.
fn segments(file: &File) -> io::Result<Vec<Segment>> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    if header[..5] != *b"\x7fELF\x02" {
        return Err(bad("not a 64-bit ELF file"));
    }
    let (start, size, count) = (long(&header, 32), short(&header, 54), short(&header, 56));
    if size < 56 || count > MAX_HEADERS {
        return Err(bad("invalid program headers"));
    }
    let mut segments = Vec::new();
    for at in 0..u64::from(count) {
        let mut one = [0; 56];
        let offset = start.checked_add(at * u64::from(size)).ok_or_else(|| bad("invalid header offset"))?;
        file.read_exact_at(&mut one, offset)?;
        let kind = u32::from_ne_bytes([one[0], one[1], one[2], one[3]]);
        segments.push(Segment { kind, offset: long(&one, 8), address: long(&one, 16), size: long(&one, 32) });
    }
    Ok(segments)
}

fn soname(file: &File, dynamic: &Segment, segments: &[Segment]) -> io::Result<Option<String>> {
    let mut table = vec![0; usize::try_from(dynamic.size.min(MAX_DYNAMIC)).unwrap_or(0)];
    file.read_exact_at(&mut table, dynamic.offset)?;
    let value = |wanted: u64| table.chunks_exact(16).find(|entry| long(entry, 0) == wanted).map(|entry| long(entry, 8));
    let (Some(name), Some(strings)) = (value(SONAME), value(STRINGS)) else { return Ok(None) };
    let holds = |segment: &&Segment| {
        segment.kind == LOAD && strings >= segment.address && strings - segment.address < segment.size
    };
    let segment = segments.iter().find(holds).ok_or_else(|| bad("invalid string table"))?;
    let offset = (strings - segment.address).checked_add(segment.offset).and_then(|offset| offset.checked_add(name));
    text(file, offset.ok_or_else(|| bad("invalid soname offset"))?).map(Some)
}

/// A short string with a terminating zero byte.
fn text(file: &File, offset: u64) -> io::Result<String> {
    let mut bytes = [0; 4096];
    let read = file.read_at(&mut bytes, offset)?;
    let text = bytes[..read].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8(text.to_vec()).map_err(|_| bad("a name is not UTF-8"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(value)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn bad(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The libraries in /proc/PID/maps: files that are mapped as executable.
pub(super) fn mapped(maps: &str) -> Vec<String> {
    let mut paths: Vec<String> = maps
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(6, char::is_whitespace);
            let executable = fields.nth(1)?.contains('x');
            let path = fields.nth(3)?.trim();
            // A file that was replaced in the meantime is used in its new version.
            let path = path.strip_suffix(" (deleted)").unwrap_or(path);
            (executable && path.starts_with('/')).then(|| path.to_owned())
        })
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_memory_maps() {
        let maps = "\
00400000-0040b000 r-xp 00000000 fe:00 123 /usr/bin/tiphys\n\
7f00-7f01 r--p 00000000 fe:00 9 /usr/lib/x86_64-linux-gnu/libc.so.6\n\
7f01-7f02 r-xp 00001000 fe:00 9                          /usr/lib/x86_64-linux-gnu/libc.so.6\n\
7f03-7f04 r-xp 00001000 fe:00 9 /lib/a b.so (deleted)\n\
7f05-7f06 rw-p 00000000 00:00 0 \n\
7ffe-7fff r-xp 00000000 00:00 0 [vdso]\n";
        assert_eq!(mapped(maps), ["/lib/a b.so", "/usr/bin/tiphys", "/usr/lib/x86_64-linux-gnu/libc.so.6"]);
    }

    #[test]
    fn reads_this_program() {
        let own = read(Path::new("/proc/self/exe")).unwrap();
        let interpreter = own.interpreter.expect("a test is not linked statically");
        assert!(Path::new(&interpreter).exists() && own.soname.is_none());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libraries = mapped(&maps);
        let libc = libraries.iter().find(|path| path.contains("libc")).unwrap();
        assert!(read(Path::new(libc)).unwrap().soname.unwrap().starts_with("libc"));
    }

    #[test]
    fn refuses_files_that_are_not_elf() {
        assert!(read(Path::new("/proc/self/status")).is_err());
        assert!(read(Path::new("/etc/passwd")).is_err());
    }
}
