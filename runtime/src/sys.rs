//! System calls that have no safe wrapper in rustix, each restricted to what the runtime needs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use libc::{c_int, c_long, c_ulong};

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The process that returned from `fork`.
pub enum Fork {
    Child,
    Parent(i32),
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Forks into new namespaces (`flags`).
///
/// The caller must have no other thread: the child continues with a copy of the caller's memory, including locks.
pub fn fork(flags: c_int) -> io::Result<Fork> {
    fork_in(flags, None)
}

/// As `fork`, with a child that starts in this cgroup v2.
pub fn fork_in(flags: c_int, cgroup: Option<BorrowedFd>) -> io::Result<Fork> {
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    let mut args = CloneArgs { flags: flags as u64, exit_signal: libc::SIGCHLD as u64, ..CloneArgs::default() };
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: the arguments live through the call; without CLONE_VM the child has its own copy of everything.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &args, size_of::<CloneArgs>()) })?;
    Ok(if pid == 0 { Fork::Child } else { Fork::Parent(pid as i32) })
}

/// Exits without destructors and exit handlers, as a forked process must.
pub fn exit(code: i32) -> ! {
    // SAFETY: it does not return.
    unsafe { libc::_exit(code) }
}

/// Joins the namespaces of a descriptor.
pub fn setns(fd: BorrowedFd, flags: c_int) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::setns(fd.as_raw_fd(), flags) }.into()).map(drop)
}

pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: plain integers; no flag that would split this process's memory or files is passed.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

pub(crate) fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> io::Result<c_int> {
    // SAFETY: only used for options whose arguments are integers.
    check(unsafe { libc::prctl(option, a, b, c, d) }.into()).map(|r| r as c_int)
}

pub(crate) fn set_dumpable(dumpable: bool) -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, dumpable.into(), 0, 0, 0).map(drop)
}

/// Sets the process name that `ps` shows, truncated to 15 bytes.
pub(crate) fn set_name(name: &str) {
    let mut bytes = [0u8; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    // SAFETY: the kernel reads 16 bytes that end in zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr(), 0, 0, 0) };
}

/// Writes the parts of a title over the arguments that this process was started with, truncated to their space.
///
/// If the last byte of the arguments is not zero, the kernel shows the memory from `start` up to the first zero byte,
/// which is how programs set their titles.
pub(crate) fn overwrite_arguments(start: usize, end: usize, title: &[&[u8]]) {
    let room = end.saturating_sub(start);
    if room < 2 {
        return;
    }
    let place = std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the kernel keeps the arguments in this range of the stack, which is writable and lives as long as the
    // process; nothing in this program reads them any more, and no other thread runs in a fork of the zygote.
    unsafe {
        std::ptr::write_bytes(place, 0, room);
        let mut used = 0;
        for part in title {
            let length = part.len().min(room - 2 - used);
            std::ptr::copy_nonoverlapping(part.as_ptr(), place.add(used), length);
            used += length;
        }
        place.add(room - 1).write(b'.');
    }
}

#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Attributes of a mount to change.
#[derive(Default)]
pub(crate) struct Attributes<'a> {
    pub set: u64,
    pub clear: u64,
    pub propagation: u64,
    pub userns: Option<BorrowedFd<'a>>,
    pub recursive: bool,
}

pub(crate) fn mount_setattr(mount: BorrowedFd, attributes: &Attributes) -> io::Result<()> {
    let mut args =
        MountAttr { set: attributes.set, clear: attributes.clear, propagation: attributes.propagation, userns: 0 };
    if let Some(fd) = attributes.userns {
        args.set |= libc::MOUNT_ATTR_IDMAP;
        args.userns = fd.as_raw_fd() as u64;
    }
    let recursive = if attributes.recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string and the arguments live through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &args,
            size_of::<MountAttr>(),
        )
    };
    check(result).map(drop)
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The three capability sets of a thread that one system call sets.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct CapSets {
    pub effective: u64,
    pub permitted: u64,
    pub inheritable: u64,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

pub(crate) fn capset(sets: CapSets) -> io::Result<()> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let half = |shift: u32| CapData {
        effective: (sets.effective >> shift) as u32,
        permitted: (sets.permitted >> shift) as u32,
        inheritable: (sets.inheritable >> shift) as u32,
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 reads one header and two data records.
    check(unsafe { libc::syscall(libc::SYS_capset, &header, data.as_ptr()) }).map(drop)
}

pub(crate) fn capget() -> io::Result<CapSets> {
    let header = CapHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 writes two data records.
    check(unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) })?;
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Ok(CapSets {
        effective: join(data[0].effective, data[1].effective),
        permitted: join(data[0].permitted, data[1].permitted),
        inheritable: join(data[0].inheritable, data[1].inheritable),
    })
}

/// The kernel interprets this ID as "unchanged": the process would keep its current ID.
const UNCHANGED: u32 = u32::MAX;

fn real_id(id: u32) -> io::Result<u32> {
    if id == UNCHANGED { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(id) }
}

pub(crate) fn setgroups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the pointer and the length are of one slice.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

pub(crate) fn setresgid(gid: u32) -> io::Result<()> {
    let gid = real_id(gid)?;
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) }).map(drop)
}

pub(crate) fn setresuid(uid: u32) -> io::Result<()> {
    let uid = real_id(uid)?;
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}

/// Loads a seccomp program: instructions of eight bytes each, as the kernel's `sock_filter`.
pub(crate) fn seccomp_load(program: &[u8], flags: u32) -> io::Result<()> {
    const SECCOMP_SET_MODE_FILTER: c_int = 1;
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const u8,
    }
    let length = u16::try_from(program.len() / 8).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let args = Program { length, filter: program.as_ptr() };
    // SAFETY: the kernel copies `length` instructions of eight bytes from the slice.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &args) }).map(drop)
}

/// Executes the program at a path. Not by a descriptor, since the interpreter of a script has to open it by its path.
pub fn execve(path: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end in null and outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Resets all signal dispositions and the signal mask, which a program must not inherit.
pub(crate) fn reset_signals() {
    // SAFETY: the default disposition of any signal is safe; the mask is a plain value.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Lets the kernel reap children. Their exit codes are lost.
pub(crate) fn ignore_children() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Blocks SIGCHLD, and returns a descriptor that is readable while one is pending.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before it is used; the descriptor is new and ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// A child that exited: its pid and its exit code, which is 128 plus the signal's number for a signal.
pub(crate) struct ExitedChild {
    pub pid: i32,
    pub code: i32,
}

/// Reaps one exited child, if there is one.
pub(crate) fn reap() -> Option<ExitedChild> {
    let mut status = 0;
    // SAFETY: the status is a valid pointer.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    Some(ExitedChild { pid, code: exit_code(status) })
}

fn exit_code(status: c_int) -> i32 {
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// Waits for one child and returns its exit code.
pub fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is a valid pointer.
    while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return -1;
        }
    }
    exit_code(status)
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::kill(pid, signal) }.into()).map(drop)
}

/// Sleeps until a signal terminates the process.
pub fn pause() {
    // SAFETY: no arguments.
    unsafe { libc::pause() };
}

/// Sleeps until a signal ends the process, without descriptors and without the memory of its heap.
pub fn pause_without_heap(heap: std::ops::Range<usize>) -> ! {
    close_from(0);
    let on_stack = 0u8;
    if !heap.contains(&(&raw const on_stack).addr()) {
        let start = std::ptr::with_exposed_provenance_mut(heap.start);
        // SAFETY: the process has one thread, which does nothing below but wait: nothing reads or frees what was
        // allocated. An empty range changes nothing.
        unsafe { libc::madvise(start, heap.len(), libc::MADV_DONTNEED) };
    }
    loop {
        pause();
    }
}

/// Sets close-on-exec on every descriptor from `first` on.
pub(crate) fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: plain integers; nothing is closed before the exec.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    check(result).map(drop)
}

/// Closes every descriptor from `first` on.
///
/// Only for a process that will not use any of its owned descriptors again, such as pause before it waits.
pub(crate) fn close_from(first: RawFd) {
    // SAFETY: plain integers; the caller never drops or uses a descriptor afterwards.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

pub(crate) fn set_controlling_terminal(fd: BorrowedFd) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSCTTY, 0) }.into()).map(drop)
}

/// Sets the loopback interface of this thread's network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: an ifreq of zeroes is valid; its name ends in zero; the calls read and write one ifreq.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &mut request).into())?;
        request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request).into()).map(drop)
    }
}

/// Creates a device node below an open directory.
pub(crate) fn mknodat(directory: BorrowedFd, name: &Path, mode: u32, major: u32, minor: u32) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let name = CString::new(name.as_os_str().as_bytes())?;
    // SAFETY: the name is a C string that outlives the call.
    let result = unsafe { libc::mknodat(directory.as_raw_fd(), name.as_ptr(), mode, libc::makedev(major, minor)) };
    check(result.into()).map(drop)
}

/// Duplicates a descriptor onto 0, 1 or 2.
pub(crate) fn dup_onto(fd: impl AsFd, number: RawFd) -> io::Result<()> {
    // SAFETY: standard streams belong to no owned descriptor of this process.
    check(unsafe { libc::dup2(fd.as_fd().as_raw_fd(), number) }.into()).map(drop)
}

/// The `bpf` system call. The attribute is one of the kernel's structs, as bytes.
pub(crate) fn bpf(command: c_int, attribute: &mut [u64]) -> io::Result<c_long> {
    // SAFETY: callers fill records whose pointers outlive the call.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), std::mem::size_of_val(attribute)) })
}
