//! The system calls that no safe crate offers. All unsafe code of the workspace stands here.
#![allow(unsafe_code, reason = "the kernel's calls for sandboxes have no safe wrapper elsewhere")]

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::Arc,
};

use tokio::io::{Interest, unix::AsyncFd};

/// Which side of a fork this is.
pub(crate) enum Fork {
    Child,
    Parent(i32),
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks, with new namespaces for the child. Only for processes of a single thread: the child goes on with a copy of
/// everything, and another thread's locks would be held for ever.
pub(crate) fn fork_into(namespaces: libc::c_int) -> io::Result<Fork> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack, clone behaves as fork: the child has its own copy of all memory.
    // Callers are single-threaded, so no lock of the allocator is held by anyone.
    let pid = checked(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok(if pid == 0 { Fork::Child } else { Fork::Parent(i32::try_from(pid).unwrap_or(i32::MAX)) })
}

/// Leaves the process at once, without running what the node registered to run at its end.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: _exit has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// Takes over a descriptor that the parent of this process put at that number.
///
/// # Errors
/// When nothing is open there.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks about the number.
    checked(unsafe { libc::fcntl(number, libc::F_GETFD) }.into())?;
    // SAFETY: the number is open, and the stage calls this once for each number it was given, before anything else
    // could own it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes every descriptor from that number on.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: callers are about to end or to execute, or own nothing at or above `first`, so no owner is left whose
    // descriptor is closed under it.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Marks every descriptor from that number on to be closed by the next execve.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: sets a flag of descriptors; nothing is closed now.
    checked(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// The same, one by one, for kernels that can't do it at once (before Linux 5.11) and filters that forbid it. Only before
/// there are threads: what they open meanwhile is missed.
pub(crate) fn close_each_on_exec_from(first: RawFd) -> io::Result<()> {
    let open = std::fs::read_dir("/proc/self/fd")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().parse().unwrap_or(RawFd::MAX)))
        .collect::<io::Result<Vec<RawFd>>>()?;
    for number in open.into_iter().filter(|number| *number >= first) {
        // SAFETY: asks for and sets a flag of a number; nothing is closed now.
        let marked = checked(unsafe { libc::fcntl(number, libc::F_GETFD) }.into()).and_then(|flags| {
            let flags = libc::c_int::try_from(flags).unwrap_or_default() | libc::FD_CLOEXEC;
            // SAFETY: as above.
            checked(unsafe { libc::fcntl(number, libc::F_SETFD, flags) }.into())
        });
        match marked {
            Ok(_) => {}
            // The one that listed them is closed by now.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes `number` a copy of a descriptor; what was there is closed.
pub(crate) fn place(descriptor: impl AsFd, number: RawFd) -> io::Result<()> {
    // SAFETY: only used for the standard streams, which no owner in the stage holds.
    checked(unsafe { libc::dup2(descriptor.as_fd().as_raw_fd(), number) }.into()).map(drop)
}

/// Moves this process into new namespaces.
pub(crate) fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: CLONE_FILES, the one flag that would change who owns descriptors, is never among the flags.
    checked(unsafe { libc::unshare(namespaces) }.into()).map(drop)
}

/// What to change about a mount.
#[derive(Debug, Default)]
pub(crate) struct MountChange<'a> {
    pub(crate) set: u64,
    pub(crate) private: bool,
    pub(crate) recursive: bool,
    /// Ids of files are translated through this user namespace.
    pub(crate) mapping: Option<&'a OwnedFd>,
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

pub(crate) const MOUNT_READ_ONLY: u64 = 0x1;
pub(crate) const MOUNT_NO_SUID: u64 = 0x2;
pub(crate) const MOUNT_NO_DEVICES: u64 = 0x4;
pub(crate) const MOUNT_NO_PROGRAMS: u64 = 0x8;
const MOUNT_MAPPED: u64 = 0x0010_0000;
const AT_RECURSIVE: libc::c_int = 0x8000;

/// Changes a mount that a descriptor stands for.
pub(crate) fn change_mount(mount: impl AsFd, change: &MountChange<'_>) -> io::Result<()> {
    let attributes = MountAttr {
        attr_set: change.set | if change.mapping.is_some() { MOUNT_MAPPED } else { 0 },
        attr_clr: 0,
        propagation: if change.private { libc::MS_PRIVATE } else { 0 },
        userns_fd: change.mapping.map_or(0, |mapping| u64::try_from(mapping.as_raw_fd()).unwrap_or(0)),
    };
    let flags = libc::AT_EMPTY_PATH | if change.recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the empty path and the structure live until the call returns, and the size is the structure's own.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// Puts a filter of system calls on this process and all it becomes. Needs no-new-privileges.
pub(crate) fn filter_calls(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    const SECCOMP_SET_MODE_FILTER: libc::c_long = 1;
    // SAFETY: the kernel copies `len` instructions out of the slice, which outlives the call, and writes nothing.
    checked(unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &raw const filter) })
        .map(drop)
}

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// The version of Landlock that this kernel speaks.
pub(crate) fn landlock_version() -> io::Result<u32> {
    const VERSION: libc::c_long = 1;
    // SAFETY: with the VERSION flag the kernel takes a null pointer and size 0, and only answers a number.
    let version = checked(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION)
    })?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// A new set of Landlock rules over these rights. `scoped` is left out for kernels that don't know it.
pub(crate) fn landlock_rules(rights: u64, scoped: Option<u64>) -> io::Result<OwnedFd> {
    let attributes =
        RulesetAttr { handled_access_fs: rights, handled_access_net: 0, scoped: scoped.unwrap_or(0) };
    // An older kernel takes the part of the structure it knows.
    let size = if scoped.is_some() { size_of::<RulesetAttr>() } else { size_of::<u64>() };
    // SAFETY: the structure outlives the call and is at least `size` bytes.
    let number =
        checked(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0) })?;
    let number = RawFd::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Grants rights below a place.
pub(crate) fn landlock_grant(rules: &OwnedFd, rights: u64, place: &OwnedFd) -> io::Result<()> {
    const PATH_BENEATH: libc::c_long = 1;
    let rule = PathBeneath { allowed_access: rights, parent_fd: place.as_raw_fd() };
    // SAFETY: the rule outlives the call and has the layout that its type promises the kernel.
    checked(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), PATH_BENEATH, &raw const rule, 0)
    })
    .map(drop)
}

/// Confines this process, and all it becomes, to the rules.
pub(crate) fn landlock_confine(rules: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes a descriptor and no memory.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) }).map(drop)
}

/// Takes every capability out of the bounding set, those of kernels to come included.
pub(crate) fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: takes a number; the kernel refuses those it does not know.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if result < 0 {
            let error = io::Error::last_os_error();
            // The first number the kernel does not know is past the last capability.
            return if error.raw_os_error() == Some(libc::EINVAL) && capability > 0 {
                Ok(())
            } else {
                Err(error)
            };
        }
    }
    Ok(())
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: an all-zero ifreq is a valid one: a name of no characters and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).unwrap_or(1);
    // SAFETY: SIOCSIFFLAGS reads the request, which outlives the call.
    checked(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }.into())
        .map(drop)
}

/// Blocks every signal and gives back a descriptor that tells of children's ends.
pub(crate) fn children_ends() -> io::Result<OwnedFd> {
    let mut set = all_signals();
    // SAFETY: the set was initialised; the old mask is not asked for.
    checked(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) }.into())?;
    // SAFETY: writes the set it is given.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: the set is initialised, and SIGCHLD is a signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
    // SAFETY: reads the set; -1 asks for a new descriptor.
    let number = checked(
        unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into(),
    )?;
    let number = RawFd::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn all_signals() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the whole set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: it was initialised by the line above.
    unsafe { set.assume_init() }
}

/// Puts every signal back to what a new program expects, and unblocks all.
pub(crate) fn default_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is a valid disposition; numbers that can't be changed are refused by the kernel.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut set = all_signals();
    // SAFETY: writes the set it is given.
    unsafe { libc::sigemptyset(&raw mut set) };
    // SAFETY: reads the initialised set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// Has ended children vanish without being waited for.
pub(crate) fn forget_children() {
    // SAFETY: SIG_IGN is a valid disposition for SIGCHLD.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Has ended children wait to be waited for, as is usual.
pub(crate) fn remember_children() {
    // SAFETY: SIG_DFL is a valid disposition for SIGCHLD.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Sends a signal to a process (or, negative, a group) of this pid namespace.
pub(crate) fn send_signal(target: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes two numbers.
    checked(unsafe { libc::kill(target, signal) }.into()).map(drop)
}

/// Asks a process for nothing but whether it may be reached: used by the look from inside.
pub(crate) fn try_call(number: libc::c_long, first: libc::c_long, second: libc::c_long) -> io::Result<()> {
    // SAFETY: the look from inside only passes calls and arguments that fail with a bad pointer or a bad number when
    // nothing else stops them.
    checked(unsafe { libc::syscall(number, first, second, 0, 0, 0) }).map(drop)
}

/// Becomes another program. Returns only when it can't.
pub(crate) fn execute(program: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both lists end with a null pointer, and every text in them outlives the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Has the runtime tell when a descriptor is readable; needs the runtime's reactor.
pub(crate) fn watch(descriptor: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the shared owner keeps this one descriptor open, and at the same number, for as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

#[cfg(test)]
mod tests {
    use rustix::io::{FdFlags, dup, fcntl_getfd};

    use super::*;

    #[test]
    fn descriptors_are_marked_one_by_one_as_well_as_at_once() {
        let directory = std::fs::File::open("/").unwrap();
        let ways: [fn() -> io::Result<()>; 2] = [|| close_on_exec_from(3), || close_each_on_exec_from(3)];
        for mark in ways {
            let inherited = dup(&directory).unwrap();
            assert_eq!(fcntl_getfd(&inherited).unwrap(), FdFlags::empty());
            mark().unwrap();
            assert_eq!(fcntl_getfd(&inherited).unwrap(), FdFlags::CLOEXEC);
        }
    }
}
