//! The filter, run by an interpreter of its few instructions: each call gets the answer meant for it.

use super::*;

/// Runs the program over one call.
fn run(architecture: u32, call: c_long, arguments: [u64; 6]) -> u32 {
    let program = program();
    let mut data = Vec::new();
    data.extend(number(call).to_le_bytes());
    data.extend(architecture.to_le_bytes());
    data.extend(0_u64.to_le_bytes());
    arguments.iter().for_each(|argument| data.extend(argument.to_le_bytes()));
    let (mut place, mut value) = (0, 0_u32);
    loop {
        let step = program[place];
        place += 1;
        let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
        match step.code {
            LOAD => {
                let at = step.k as usize;
                value = u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
            }
            AND => value &= step.k,
            EQUAL => place += jump(value == step.k),
            GREATER => place += jump(value > step.k),
            ANY_BIT => place += jump(value & step.k != 0),
            RETURN => return step.k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn answer(call: c_long, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    run(ARCHITECTURE, call, all)
}

#[test]
fn ordinary_calls_pass() {
    for call in [
        libc::SYS_read,
        libc::SYS_openat,
        libc::SYS_execve,
        libc::SYS_mmap,
        libc::SYS_futex,
        libc::SYS_statx,
        libc::SYS_prctl,
        libc::SYS_seccomp,
        libc::SYS_landlock_restrict_self,
        libc::SYS_memfd_create,
    ] {
        assert_eq!(answer(call, &[]), ALLOW, "{call}");
    }
}

#[test]
fn forbidden_calls_are_refused_and_unknown_ones_are_not_there() {
    for call in FORBIDDEN {
        assert_eq!(answer(*call, &[]), refuse(libc::EPERM), "{call}");
    }
    for call in UNKNOWN.iter().copied().chain([467, 500, 0x4000_0001]) {
        assert_eq!(answer(call, &[]), refuse(libc::ENOSYS), "{call}");
    }
    assert_eq!(answer(libc::SYS_name_to_handle_at, &[]), refuse(libc::EOPNOTSUPP));
}

#[test]
fn another_architecture_ends_the_process() {
    assert_eq!(run(0x4000_0003, libc::SYS_read, [0; 6]), KILL);
}

#[test]
fn namespaces_are_refused_by_flag_and_threads_are_not() {
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_FILES) as u64;
    assert_eq!(answer(libc::SYS_clone, &[thread]), ALLOW);
    assert_eq!(answer(libc::SYS_clone, &[libc::SIGCHLD as u64]), ALLOW);
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ] {
        assert_eq!(answer(libc::SYS_clone, &[flag as u64]), refuse(libc::EPERM), "{flag:#x}");
        assert_eq!(answer(libc::SYS_unshare, &[flag as u64]), refuse(libc::EPERM), "{flag:#x}");
    }
    assert_eq!(answer(libc::SYS_unshare, &[u64::from(NEW_TIME)]), refuse(libc::EPERM));
    assert_eq!(answer(libc::SYS_unshare, &[libc::CLONE_FILES as u64]), ALLOW);
}

#[test]
fn sockets_of_three_families_and_one_question_to_the_kernel() {
    let socket = |family: i32, kind: i32, protocol: u64| {
        answer(libc::SYS_socket, &[family as u64, kind as u64, protocol])
    };
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        assert_eq!(socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0), ALLOW);
        assert_eq!(socket(family, libc::SOCK_DGRAM, 0), ALLOW);
        assert_eq!(socket(family, libc::SOCK_RAW, 0), refuse(libc::EPERM));
    }
    assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, 0), ALLOW);
    assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, 12), refuse(libc::EAFNOSUPPORT));
    for family in [libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH] {
        assert_eq!(socket(family, libc::SOCK_DGRAM, 0), refuse(libc::EAFNOSUPPORT), "{family}");
    }
}

#[test]
fn devices_and_terminal_orders_are_refused() {
    let make = |mode: u32| answer(libc::SYS_mknodat, &[0, 0, u64::from(mode)]);
    assert_eq!(make(libc::S_IFIFO | 0o644), ALLOW);
    assert_eq!(make(libc::S_IFCHR | 0o644), refuse(libc::EPERM));
    assert_eq!(make(libc::S_IFBLK | 0o644), refuse(libc::EPERM));
    assert_eq!(answer(libc::SYS_ioctl, &[0, libc::TIOCSTI]), refuse(libc::EPERM));
    // The kernel looks at the lower half only; so does the filter.
    assert_eq!(answer(libc::SYS_ioctl, &[0, libc::TIOCSTI | 1 << 40]), refuse(libc::EPERM));
    assert_eq!(answer(libc::SYS_ioctl, &[0, libc::TIOCGWINSZ]), ALLOW);
    assert_eq!(answer(libc::SYS_personality, &[0xffff_ffff]), ALLOW);
    assert_eq!(answer(libc::SYS_personality, &[8]), refuse(libc::EPERM));
}
