//! Processes whose wall clock is wrong: a library in C, which they load first, adds seconds to it. The seconds are in a file
//! that the process has mapped, so that its clock can jump while it runs.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t *shift;
__attribute__((constructor)) static void open_shift(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
    if (file >= 0) close(file);
}
int clock_gettime(clockid_t id, struct timespec *out) {
    int result = syscall(SYS_clock_gettime, id, out);
    if (!result && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += *shift;
    return result;
}
int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return result;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The library and the files with the seconds.
pub struct ShiftedClocks {
    dir: tempfile::TempDir,
}

impl ShiftedClocks {
    /// Compiles the library: a C compiler is there, since the build needs one.
    pub fn build() -> ShiftedClocks {
        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("clock.c");
        std::fs::write(&source, SOURCE).expect("a file");
        let library = dir.path().join("clock.so");
        let output = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).output();
        let output = output.expect("a C compiler is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ShiftedClocks { dir }
    }

    fn file(&self, process: u32) -> PathBuf {
        self.dir.path().join(format!("shift-{process}"))
    }

    /// Gives a process a clock of its own, which is right at first.
    pub fn apply(&self, command: &mut Command, process: u32) {
        if !self.file(process).exists() {
            self.shift(process, 0);
        }
        command.env("LD_PRELOAD", self.dir.path().join("clock.so")).env("CLOCK_SHIFT", self.file(process));
    }

    /// Lets the clock of a process jump: it is that much ahead of the machine's from now on.
    pub fn shift(&self, process: u32, seconds: i64) {
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(self.file(process));
        file.expect("a file").write_all_at(&seconds.to_ne_bytes(), 0).expect("written");
    }
}

#[test]
fn clocks_of_processes_jump() {
    let clocks = ShiftedClocks::build();
    let year = |clocks: &ShiftedClocks, seconds: i64| {
        let mut date = Command::new("date");
        clocks.apply(&mut date, 1);
        clocks.shift(1, seconds);
        let output = date.args(["-u", "+%s"]).output().expect("date is there");
        String::from_utf8_lossy(&output.stdout).trim().parse::<i64>().expect("a number")
    };
    let now = year(&clocks, 0);
    assert!((3600..3700).contains(&(year(&clocks, 3600) - now)));
    assert!((3500..=3600).contains(&(now - year(&clocks, -3600))));
}
