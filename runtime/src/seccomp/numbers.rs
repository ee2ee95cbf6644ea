//! System call numbers of the architecture that this is built for.

macro_rules! numbers {
    ($($name:ident: $number:ident),* $(,)?) => { &[$((stringify!($name), libc::$number as u32)),*] };
}

/// Newer system calls have the same number on every architecture. The libc crate lacks some of them.
const UNIFIED: &[(&str, u32)] = &[
    ("cachestat", 451),
    ("fchmodat2", 452),
    ("map_shadow_stack", 453),
    ("futex_wake", 454),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("statmount", 457),
    ("listmount", 458),
    ("lsm_get_self_attr", 459),
    ("lsm_set_self_attr", 460),
    ("lsm_list_modules", 461),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_getattr", 468),
    ("file_setattr", 469),
];

const COMMON: &[(&str, u32)] = numbers! {
    accept: SYS_accept, accept4: SYS_accept4, acct: SYS_acct, add_key: SYS_add_key, adjtimex: SYS_adjtimex,
    bind: SYS_bind, bpf: SYS_bpf, brk: SYS_brk, capget: SYS_capget, capset: SYS_capset, chdir: SYS_chdir,
    chroot: SYS_chroot, clock_adjtime: SYS_clock_adjtime, clock_getres: SYS_clock_getres,
    clock_gettime: SYS_clock_gettime, clock_nanosleep: SYS_clock_nanosleep, clock_settime: SYS_clock_settime,
    clone: SYS_clone, clone3: SYS_clone3, close: SYS_close, close_range: SYS_close_range, connect: SYS_connect,
    copy_file_range: SYS_copy_file_range, delete_module: SYS_delete_module, dup: SYS_dup, dup3: SYS_dup3,
    epoll_create1: SYS_epoll_create1, epoll_ctl: SYS_epoll_ctl, epoll_pwait: SYS_epoll_pwait,
    epoll_pwait2: SYS_epoll_pwait2, eventfd2: SYS_eventfd2, execve: SYS_execve, execveat: SYS_execveat,
    exit: SYS_exit, exit_group: SYS_exit_group, faccessat: SYS_faccessat, faccessat2: SYS_faccessat2,
    fadvise64: SYS_fadvise64, fallocate: SYS_fallocate, fanotify_init: SYS_fanotify_init,
    fanotify_mark: SYS_fanotify_mark, fchdir: SYS_fchdir, fchmod: SYS_fchmod, fchmodat: SYS_fchmodat,
    fchown: SYS_fchown, fchownat: SYS_fchownat, fcntl: SYS_fcntl, fdatasync: SYS_fdatasync, fgetxattr: SYS_fgetxattr,
    finit_module: SYS_finit_module, flistxattr: SYS_flistxattr, flock: SYS_flock, fremovexattr: SYS_fremovexattr,
    fsconfig: SYS_fsconfig, fsetxattr: SYS_fsetxattr, fsmount: SYS_fsmount, fsopen: SYS_fsopen, fspick: SYS_fspick,
    fstat: SYS_fstat, fstatfs: SYS_fstatfs, fsync: SYS_fsync, ftruncate: SYS_ftruncate, futex: SYS_futex,
    futex_waitv: SYS_futex_waitv, get_mempolicy: SYS_get_mempolicy, get_robust_list: SYS_get_robust_list,
    getcpu: SYS_getcpu, getcwd: SYS_getcwd, getdents64: SYS_getdents64, getegid: SYS_getegid, geteuid: SYS_geteuid,
    getgid: SYS_getgid, getgroups: SYS_getgroups, getitimer: SYS_getitimer, getpeername: SYS_getpeername,
    getpgid: SYS_getpgid, getpid: SYS_getpid, getppid: SYS_getppid, getpriority: SYS_getpriority,
    getrandom: SYS_getrandom, getresgid: SYS_getresgid, getresuid: SYS_getresuid, getrusage: SYS_getrusage,
    getsid: SYS_getsid, getsockname: SYS_getsockname, getsockopt: SYS_getsockopt, gettid: SYS_gettid,
    gettimeofday: SYS_gettimeofday, getuid: SYS_getuid, getxattr: SYS_getxattr, init_module: SYS_init_module,
    inotify_add_watch: SYS_inotify_add_watch, inotify_init1: SYS_inotify_init1,
    inotify_rm_watch: SYS_inotify_rm_watch, io_cancel: SYS_io_cancel, io_destroy: SYS_io_destroy,
    io_getevents: SYS_io_getevents, io_setup: SYS_io_setup, io_submit: SYS_io_submit,
    io_uring_enter: SYS_io_uring_enter, io_uring_register: SYS_io_uring_register, io_uring_setup: SYS_io_uring_setup,
    ioctl: SYS_ioctl, ioprio_get: SYS_ioprio_get, ioprio_set: SYS_ioprio_set, kcmp: SYS_kcmp,
    kexec_file_load: SYS_kexec_file_load, kexec_load: SYS_kexec_load, keyctl: SYS_keyctl, kill: SYS_kill,
    landlock_add_rule: SYS_landlock_add_rule, landlock_create_ruleset: SYS_landlock_create_ruleset,
    landlock_restrict_self: SYS_landlock_restrict_self, lgetxattr: SYS_lgetxattr, linkat: SYS_linkat,
    listen: SYS_listen, listxattr: SYS_listxattr, llistxattr: SYS_llistxattr, lookup_dcookie: SYS_lookup_dcookie,
    lremovexattr: SYS_lremovexattr, lseek: SYS_lseek, lsetxattr: SYS_lsetxattr, madvise: SYS_madvise,
    mbind: SYS_mbind, membarrier: SYS_membarrier, memfd_create: SYS_memfd_create, memfd_secret: SYS_memfd_secret,
    migrate_pages: SYS_migrate_pages, mincore: SYS_mincore, mkdirat: SYS_mkdirat, mknodat: SYS_mknodat,
    mlock: SYS_mlock, mlock2: SYS_mlock2, mlockall: SYS_mlockall, mmap: SYS_mmap, mount: SYS_mount,
    mount_setattr: SYS_mount_setattr, move_mount: SYS_move_mount, move_pages: SYS_move_pages, mprotect: SYS_mprotect,
    mq_getsetattr: SYS_mq_getsetattr, mq_notify: SYS_mq_notify, mq_open: SYS_mq_open,
    mq_timedreceive: SYS_mq_timedreceive, mq_timedsend: SYS_mq_timedsend, mq_unlink: SYS_mq_unlink,
    mremap: SYS_mremap, mseal: SYS_mseal, msgctl: SYS_msgctl, msgget: SYS_msgget, msgrcv: SYS_msgrcv,
    msgsnd: SYS_msgsnd, msync: SYS_msync, munlock: SYS_munlock, munlockall: SYS_munlockall, munmap: SYS_munmap,
    name_to_handle_at: SYS_name_to_handle_at, nanosleep: SYS_nanosleep, newfstatat: SYS_newfstatat,
    nfsservctl: SYS_nfsservctl, open_by_handle_at: SYS_open_by_handle_at, open_tree: SYS_open_tree,
    openat: SYS_openat, openat2: SYS_openat2, perf_event_open: SYS_perf_event_open, personality: SYS_personality,
    pidfd_getfd: SYS_pidfd_getfd, pidfd_open: SYS_pidfd_open, pidfd_send_signal: SYS_pidfd_send_signal,
    pipe2: SYS_pipe2, pivot_root: SYS_pivot_root, pkey_alloc: SYS_pkey_alloc, pkey_free: SYS_pkey_free,
    pkey_mprotect: SYS_pkey_mprotect, ppoll: SYS_ppoll, prctl: SYS_prctl, pread64: SYS_pread64, preadv: SYS_preadv,
    preadv2: SYS_preadv2, prlimit64: SYS_prlimit64, process_madvise: SYS_process_madvise,
    process_mrelease: SYS_process_mrelease, process_vm_readv: SYS_process_vm_readv,
    process_vm_writev: SYS_process_vm_writev, pselect6: SYS_pselect6, ptrace: SYS_ptrace, pwrite64: SYS_pwrite64,
    pwritev: SYS_pwritev, pwritev2: SYS_pwritev2, quotactl: SYS_quotactl, quotactl_fd: SYS_quotactl_fd,
    read: SYS_read, readahead: SYS_readahead, readlinkat: SYS_readlinkat, readv: SYS_readv, reboot: SYS_reboot,
    recvfrom: SYS_recvfrom, recvmmsg: SYS_recvmmsg, recvmsg: SYS_recvmsg, remap_file_pages: SYS_remap_file_pages,
    removexattr: SYS_removexattr, renameat2: SYS_renameat2, request_key: SYS_request_key,
    restart_syscall: SYS_restart_syscall, rseq: SYS_rseq, rt_sigaction: SYS_rt_sigaction,
    rt_sigpending: SYS_rt_sigpending, rt_sigprocmask: SYS_rt_sigprocmask, rt_sigqueueinfo: SYS_rt_sigqueueinfo,
    rt_sigreturn: SYS_rt_sigreturn, rt_sigsuspend: SYS_rt_sigsuspend, rt_sigtimedwait: SYS_rt_sigtimedwait,
    rt_tgsigqueueinfo: SYS_rt_tgsigqueueinfo, sched_get_priority_max: SYS_sched_get_priority_max,
    sched_get_priority_min: SYS_sched_get_priority_min, sched_getaffinity: SYS_sched_getaffinity,
    sched_getattr: SYS_sched_getattr, sched_getparam: SYS_sched_getparam, sched_getscheduler: SYS_sched_getscheduler,
    sched_rr_get_interval: SYS_sched_rr_get_interval, sched_setaffinity: SYS_sched_setaffinity,
    sched_setattr: SYS_sched_setattr, sched_setparam: SYS_sched_setparam, sched_setscheduler: SYS_sched_setscheduler,
    sched_yield: SYS_sched_yield, seccomp: SYS_seccomp, semctl: SYS_semctl, semget: SYS_semget, semop: SYS_semop,
    semtimedop: SYS_semtimedop, sendfile: SYS_sendfile, sendmmsg: SYS_sendmmsg, sendmsg: SYS_sendmsg,
    sendto: SYS_sendto, set_mempolicy: SYS_set_mempolicy, set_mempolicy_home_node: SYS_set_mempolicy_home_node,
    set_robust_list: SYS_set_robust_list, set_tid_address: SYS_set_tid_address, setdomainname: SYS_setdomainname,
    setfsgid: SYS_setfsgid, setfsuid: SYS_setfsuid, setgid: SYS_setgid, setgroups: SYS_setgroups,
    sethostname: SYS_sethostname, setitimer: SYS_setitimer, setns: SYS_setns, setpgid: SYS_setpgid,
    setpriority: SYS_setpriority, setregid: SYS_setregid, setresgid: SYS_setresgid, setresuid: SYS_setresuid,
    setreuid: SYS_setreuid, setsid: SYS_setsid, setsockopt: SYS_setsockopt, settimeofday: SYS_settimeofday,
    setuid: SYS_setuid, setxattr: SYS_setxattr, shmat: SYS_shmat, shmctl: SYS_shmctl, shmdt: SYS_shmdt,
    shmget: SYS_shmget, shutdown: SYS_shutdown, sigaltstack: SYS_sigaltstack, signalfd4: SYS_signalfd4,
    socket: SYS_socket, socketpair: SYS_socketpair, splice: SYS_splice, statfs: SYS_statfs, statx: SYS_statx,
    swapoff: SYS_swapoff, swapon: SYS_swapon, symlinkat: SYS_symlinkat, sync: SYS_sync, syncfs: SYS_syncfs,
    sysinfo: SYS_sysinfo, syslog: SYS_syslog, tee: SYS_tee, tgkill: SYS_tgkill, timer_create: SYS_timer_create,
    timer_delete: SYS_timer_delete, timer_getoverrun: SYS_timer_getoverrun, timer_gettime: SYS_timer_gettime,
    timer_settime: SYS_timer_settime, timerfd_create: SYS_timerfd_create, timerfd_gettime: SYS_timerfd_gettime,
    timerfd_settime: SYS_timerfd_settime, times: SYS_times, tkill: SYS_tkill, truncate: SYS_truncate,
    umask: SYS_umask, umount2: SYS_umount2, uname: SYS_uname, unlinkat: SYS_unlinkat, unshare: SYS_unshare,
    userfaultfd: SYS_userfaultfd, utimensat: SYS_utimensat, vhangup: SYS_vhangup, vmsplice: SYS_vmsplice,
    wait4: SYS_wait4, waitid: SYS_waitid, write: SYS_write, writev: SYS_writev,
};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE_SPECIFIC: &[(&str, u32)] = numbers! {
    _sysctl: SYS__sysctl, access: SYS_access, afs_syscall: SYS_afs_syscall, alarm: SYS_alarm,
    arch_prctl: SYS_arch_prctl, chmod: SYS_chmod, chown: SYS_chown, creat: SYS_creat, dup2: SYS_dup2,
    epoll_create: SYS_epoll_create, epoll_ctl_old: SYS_epoll_ctl_old, epoll_wait: SYS_epoll_wait,
    epoll_wait_old: SYS_epoll_wait_old, eventfd: SYS_eventfd, fchmodat2: SYS_fchmodat2, fork: SYS_fork,
    futimesat: SYS_futimesat, get_thread_area: SYS_get_thread_area, getdents: SYS_getdents, getpgrp: SYS_getpgrp,
    getpmsg: SYS_getpmsg, getrlimit: SYS_getrlimit, inotify_init: SYS_inotify_init, ioperm: SYS_ioperm,
    iopl: SYS_iopl, lchown: SYS_lchown, link: SYS_link, lstat: SYS_lstat, mkdir: SYS_mkdir, mknod: SYS_mknod,
    modify_ldt: SYS_modify_ldt, open: SYS_open, pause: SYS_pause, pipe: SYS_pipe, poll: SYS_poll,
    putpmsg: SYS_putpmsg, readlink: SYS_readlink, rename: SYS_rename, renameat: SYS_renameat, rmdir: SYS_rmdir,
    security: SYS_security, select: SYS_select, set_thread_area: SYS_set_thread_area, setrlimit: SYS_setrlimit,
    signalfd: SYS_signalfd, stat: SYS_stat, symlink: SYS_symlink, sync_file_range: SYS_sync_file_range,
    sysfs: SYS_sysfs, time: SYS_time, tuxcall: SYS_tuxcall, unlink: SYS_unlink, uselib: SYS_uselib, ustat: SYS_ustat,
    utime: SYS_utime, utimes: SYS_utimes, vfork: SYS_vfork, vserver: SYS_vserver,
};

#[cfg(target_arch = "aarch64")]
const ARCHITECTURE_SPECIFIC: &[(&str, u32)] = numbers! {};

/// None for a system call that this architecture does not have.
pub(super) fn number(name: &str) -> Option<u32> {
    let tables = [COMMON, ARCHITECTURE_SPECIFIC, UNIFIED];
    tables.iter().flat_map(|t| t.iter()).find(|(n, _)| *n == name).map(|(_, number)| *number)
}

/// The kernel's identifier of the architecture in a filter.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const ARCHITECTURE: u32 = 0xc000_00b7;

/// System calls of the x32 ABI have this bit set. Without a check they would be taken for others.
#[cfg(target_arch = "x86_64")]
pub(super) const X32_BIT: Option<u32> = Some(0x4000_0000);
#[cfg(target_arch = "aarch64")]
pub const X32_BIT: Option<u32> = None;
