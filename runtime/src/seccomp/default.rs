//! The RuntimeDefault profile: the calls of ordinary programs. A capability adds the calls that it is needed for.

use super::profile::{Action, Argument, Comparison, Profile, Rule};
use crate::capabilities;

const ALLOWED: &str = "\
    accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_adjtime \
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 \
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd \
    eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod \
    fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat \
    fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list \
    get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername \
    getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname \
    getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1 \
    inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set \
    kcmp kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen \
    listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack \
    membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap modify_ldt \
    mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget \
    msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause \
    pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 \
    preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev \
    pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr \
    removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask \
    rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max \
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval \
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget \
    semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid \
    setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid \
    setsockopt setuid setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 \
    socketpair splice stat statfs statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill \
    time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime \
    timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 \
    waitid write writev";

/// System calls that are added with a capability.
const BY_CAPABILITY: [(&str, &str); 14] = [
    ("BPF", "bpf"),
    ("DAC_READ_SEARCH", "open_by_handle_at"),
    ("PERFMON", "perf_event_open"),
    (
        "SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount \
         open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount2 unshare",
    ),
    ("SYS_BOOT", "reboot"),
    ("SYS_CHROOT", "chroot"),
    ("SYS_MODULE", "delete_module finit_module init_module query_module"),
    ("SYS_NICE", "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    ("SYS_PACCT", "acct"),
    ("SYS_PTRACE", "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace"),
    ("SYS_RAWIO", "ioperm iopl"),
    ("SYS_TIME", "adjtimex clock_settime settimeofday"),
    ("SYS_TTY_CONFIG", "vhangup"),
    ("SYSLOG", "syslog"),
];

/// The kernel ignores the upper half of an argument that is an `int`. So must a filter, since otherwise the upper half
/// could hide a forbidden value.
const INT: u64 = 0xffff_ffff;

const NEW_NAMESPACES: u64 = 0x7e02_0000;

pub(crate) fn default_profile(bounding: u64) -> Profile {
    let mut rules = vec![allow(ALLOWED, vec![])];
    // Linux, Linux with the address layout of 32 bits, and the query of the current value.
    for value in [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff] {
        rules.push(allow("personality", vec![argument(value, Comparison::Masked(INT))]));
    }
    rules.push(Rule {
        names: vec!["socket".into()],
        action: Action::Errno(libc::EPERM as u16),
        arguments: vec![argument(libc::AF_VSOCK as u64, Comparison::Masked(INT))],
    });
    rules.push(allow("socket", vec![]));
    for (capability, names) in BY_CAPABILITY {
        if capabilities::bit(capability).is_some_and(|bit| bounding & bit != 0) {
            rules.push(allow(names, vec![]));
        }
    }
    if capabilities::bit("SYS_ADMIN").is_some_and(|bit| bounding & bit == 0) {
        rules.push(allow("clone", vec![argument(0, Comparison::Masked(NEW_NAMESPACES))]));
        // Its flags are in memory, which a filter cannot read. With ENOSYS, C libraries fall back to clone.
        rules.push(Rule {
            names: vec!["clone3".into()],
            action: Action::Errno(libc::ENOSYS as u16),
            arguments: vec![],
        });
    }
    Profile { default: Action::Errno(libc::EPERM as u16), rules }
}

fn allow(names: &str, arguments: Vec<Argument>) -> Rule {
    Rule { names: names.split(' ').map(str::to_string).collect(), action: Action::Allow, arguments }
}

fn argument(value: u64, comparison: Comparison) -> Argument {
    Argument { index: 0, value, comparison }
}
