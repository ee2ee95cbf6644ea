// A disk on which every sync takes as long as a test wants. Programs in Go call the kernel without a library, so that
// nothing can be loaded into them: the kernel passes their syncs to a process that lets them wait (seccomp).

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `slow-disk FILE PROGRAM ARGUMENTS…`: the file has the milliseconds.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int fail(const char *what) { perror(what); return 1; }

static int receive(int socket) {
    char byte, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) return -1;
    int file;
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
}

static int send_file(int socket, int file) {
    char byte = 0, space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET; header->cmsg_type = SCM_RIGHTS; header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
    return sendmsg(socket, &message, 0) == 1 ? 0 : -1;
}

/* One sync after the other, like a disk. */
static int delay(int listener, volatile int64_t *milliseconds) {
    for (;;) {
        struct seccomp_notif call = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) return 0;
        int64_t left = *milliseconds;
        struct timespec pause = {left / 1000, left % 1000 * 1000000};
        nanosleep(&pause, 0);
        struct seccomp_notif_resp response = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
    }
}

int main(int count, char **arguments) {
    int sockets[2], file = open(arguments[1], O_RDONLY | O_CLOEXEC);
    int64_t *milliseconds = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (count < 3 || milliseconds == MAP_FAILED) return fail(arguments[1]);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets)) return fail("socketpair");
    pid_t child = fork();
    if (child < 0) return fail("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int listener = receive(sockets[1]);
        return listener < 0 ? fail("recvmsg") : delay(listener, milliseconds);
    }
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fsync, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fdatasync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return fail("prctl");
    int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0) return fail("seccomp");
    if (send_file(sockets[0], listener)) return fail("sendmsg");
    close(listener);
    execv(arguments[2], arguments + 2);
    return fail(arguments[2]);
}
"#;

/// The program, and the files with the delays of each disk.
pub struct SlowDisks {
    dir: tempfile::TempDir,
}

impl SlowDisks {
    /// Compiles the program: a C compiler is there, since the build needs one.
    pub fn build() -> SlowDisks {
        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("slow-disk.c");
        std::fs::write(&source, SOURCE).expect("a file");
        let mut command = Command::new("cc");
        command.args(["-O1", "-Wall", "-o"]).args([&dir.path().join("slow-disk"), &source]);
        let output = command.output().expect("a C compiler is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        SlowDisks { dir }
    }

    pub fn program(&self) -> PathBuf {
        self.dir.path().join("slow-disk")
    }

    pub fn file(&self, disk: u32) -> PathBuf {
        let file = self.dir.path().join(format!("delay-{disk}"));
        if !file.exists() {
            write(&file, Duration::ZERO);
        }
        file
    }

    /// Every sync of a disk takes this time from now on.
    pub fn delay(&self, disk: u32, time: Duration) {
        write(&self.file(disk), time);
    }
}

fn write(file: &Path, time: Duration) {
    let milliseconds = i64::try_from(time.as_millis()).expect("a short time");
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(file).expect("a file");
    file.write_all_at(&milliseconds.to_ne_bytes(), 0).expect("written");
}
