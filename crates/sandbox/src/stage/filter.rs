//! The filter of system calls: what builds, tests and computations never need is refused, with the answer that makes
//! well-written programs go on without it.
//!
//! It refuses by name, and by number everything younger than the list: a call that a later kernel adds is unknown here
//! and answered as if the kernel did not have it. Calls that are always allowed cost nothing at run time, because the
//! kernel remembers them by number.

use libc::{c_long, sock_filter};

/// Refused as if for lack of rights.
const FORBIDDEN: &[c_long] = &[
    // Mounts and roots, by the old and the new interface.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Namespaces of others.
    libc::SYS_setns,
    // Other processes' memory, descriptors and registers.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Keys, which no namespace separates.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Large parts of the kernel with a long record of holes.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_vhangup,
    // Files by handle go around every mount.
    libc::SYS_open_by_handle_at,
    // The machine: modules, clocks, swap, quotas, names, its end.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
];

/// Answered as if the kernel did not have them, so that libraries take their other way.
const UNKNOWN: &[c_long] = &[
    // Its flags stand in memory, where no filter sees them; libraries fall back to `clone`.
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // statmount and listmount, which tell of mounts.
    457,
    458,
];

/// The last call whose meaning was known when this list was written: `removexattrat`. Past it come calls that make
/// mounts (`open_tree_attr`) and whatever is added yet.
const LAST_KNOWN: u32 = 466;

/// Every flag that makes a namespace, in `clone` and `unshare`.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
/// Only `unshare` takes it; in `clone` these bits are the signal at the end.
const NEW_TIME: u32 = 0x80;
/// Terminal orders: type into another's terminal, its lines of the console, line disciplines.
const FORBIDDEN_ORDERS: [u32; 4] = [0x5412, 0x541c, 0x541d, 0x5423];
/// Personalities that only ask, restore the usual one, or switch address randomisation off.
const PERSONALITIES: [u32; 3] = [0, u32::MAX, 0x0004_0000];
const MODE_KIND: u32 = 0o170_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const fn refuse(errno: i32) -> u32 {
    0x0005_0000 | errno.cast_unsigned()
}

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const EQUAL: u16 = 0x15;
const GREATER: u16 = 0x25;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE_FIELD: u32 = 4;

/// Where the lower half of an argument stands; both supported architectures are little-endian.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// The program, ready for the kernel.
pub(crate) fn program() -> Vec<sock_filter> {
    let mut filter = Filter(Vec::with_capacity(256));
    filter.load(ARCHITECTURE_FIELD);
    // Calls of another architecture have other numbers; nothing below would mean anything for them.
    filter.unless(EQUAL, ARCHITECTURE, KILL);
    filter.load(NUMBER);
    // Takes the x32 numbers along, which start far above.
    filter.when(GREATER, LAST_KNOWN, refuse(libc::ENOSYS));
    filter.for_call(libc::SYS_ioctl, |filter| {
        filter.load(argument(1));
        for order in FORBIDDEN_ORDERS {
            filter.when(EQUAL, order, refuse(libc::EPERM));
        }
    });
    filter.for_call(libc::SYS_clone, |filter| {
        filter.load(argument(0));
        filter.when(ANY_BIT, NEW_NAMESPACES, refuse(libc::EPERM));
    });
    filter.for_call(libc::SYS_unshare, |filter| {
        filter.load(argument(0));
        filter.when(ANY_BIT, NEW_NAMESPACES | NEW_TIME, refuse(libc::EPERM));
    });
    filter.for_call(libc::SYS_socket, socket);
    filter.for_call(libc::SYS_socketpair, |filter| {
        filter.load(argument(0));
        filter.unless(EQUAL, family(libc::AF_UNIX), refuse(libc::EAFNOSUPPORT));
    });
    filter.for_call(libc::SYS_personality, |filter| {
        filter.load(argument(0));
        for personality in PERSONALITIES {
            filter.when(EQUAL, personality, ALLOW);
        }
        filter.give(refuse(libc::EPERM));
    });
    filter.for_call(libc::SYS_mknodat, |filter| devices(filter, 2));
    #[cfg(target_arch = "x86_64")]
    filter.for_call(libc::SYS_mknod, |filter| devices(filter, 1));
    // Answered so that callers do without handles, as on file systems that have none.
    filter.when(EQUAL, number(libc::SYS_name_to_handle_at), refuse(libc::EOPNOTSUPP));
    for call in FORBIDDEN {
        filter.when(EQUAL, number(*call), refuse(libc::EPERM));
    }
    for call in UNKNOWN {
        filter.when(EQUAL, number(*call), refuse(libc::ENOSYS));
    }
    filter.give(ALLOW);
    filter.0
}

/// Unix, IPv4 and IPv6 without raw packets; and the one kind of netlink by which libraries ask for interfaces.
fn socket(filter: &mut Filter) {
    filter.load(argument(0));
    filter.for_value(family(libc::AF_NETLINK), |filter| {
        filter.load(argument(2));
        filter.unless(EQUAL, 0, refuse(libc::EAFNOSUPPORT));
    });
    filter.load(argument(1));
    filter.give_and(0xf);
    for kind in [libc::SOCK_RAW, 10, libc::SOCK_RDM] {
        filter.when(EQUAL, kind.cast_unsigned(), refuse(libc::EPERM));
    }
    filter.load(argument(0));
    for known in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        filter.when(EQUAL, family(known), ALLOW);
    }
    filter.give(refuse(libc::EAFNOSUPPORT));
}

fn devices(filter: &mut Filter, mode: u32) {
    filter.load(argument(mode));
    filter.give_and(MODE_KIND);
    filter.when(EQUAL, CHARACTER_DEVICE, refuse(libc::EPERM));
    filter.when(EQUAL, BLOCK_DEVICE, refuse(libc::EPERM));
}

const fn family(number: i32) -> u32 {
    number.cast_unsigned()
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

struct Filter(Vec<sock_filter>);

impl Filter {
    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        self.0.push(sock_filter { code, jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.push(LOAD, 0, 0, offset);
    }

    fn give_and(&mut self, mask: u32) {
        self.push(AND, 0, 0, mask);
    }

    fn give(&mut self, action: u32) {
        self.push(RETURN, 0, 0, action);
    }

    /// The action when the comparison holds; otherwise on to the next.
    fn when(&mut self, comparison: u16, value: u32, action: u32) {
        self.push(comparison, 0, 1, value);
        self.give(action);
    }

    fn unless(&mut self, comparison: u16, value: u32, action: u32) {
        self.push(comparison, 1, 0, value);
        self.give(action);
    }

    /// Rules about one call; it is allowed when none of them fires.
    fn for_call(&mut self, call: c_long, rules: impl FnOnce(&mut Self)) {
        self.for_value(number(call), rules);
    }

    fn for_value(&mut self, value: u32, rules: impl FnOnce(&mut Self)) {
        let jump = self.0.len();
        self.push(EQUAL, 0, 0, value);
        rules(self);
        self.give(ALLOW);
        let length = self.0.len() - jump - 1;
        // Rules about one call are a dozen instructions; the jump has room for 255.
        self.0[jump].jf = u8::try_from(length).unwrap_or(u8::MAX);
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
