/* One attempt to get out, by name: prints `ok` or the name of the error. Each runs in a child of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <grp.h>

#ifndef SYS_fspick
#define SYS_fspick 433
#endif

static long raw(long number, long a, long b, long c, long d) { return syscall(number, a, b, c, d, 0, 0); }

static long udp(const char *address, int port, int connect_only, int kind) {
    int s = socket(AF_INET, kind, 0);
    if (s < 0) return -1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    if (connect_only) return connect(s, (struct sockaddr *)&to, sizeof to);
    return sendto(s, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
}

static long abstract(const char *name) {
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path + 1, name, sizeof to.sun_path - 2);
    return connect(s, (struct sockaddr *)&to, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static long all_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    memset(data, 0xff, sizeof data);
    return syscall(SYS_capset, &header, data);
}

static long terminal(unsigned long order) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    if (master < 0) return -1;
    int unlock = 0, number = 0;
    ioctl(master, TIOCSPTLCK, &unlock);
    ioctl(master, TIOCGPTN, &number);
    char name[64];
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    setsid();
    int slave = open(name, O_RDWR);
    if (slave < 0) return -1;
    ioctl(slave, TIOCSCTTY, 0);
    char buffer[256] = "x";
    return ioctl(slave, order, buffer);
}

static long opened(const char *path, int flags) { return open(path, flags); }

static long handle(void) {
    struct { struct file_handle head; char space[128]; } h;
    int mount;
    h.head.handle_bytes = 128;
    return name_to_handle_at(AT_FDCWD, "/usr", &h.head, &mount, 0);
}

static long by_handle(void) {
    struct { struct file_handle head; char space[128]; } h = {.head = {.handle_bytes = 8, .handle_type = 1}};
    return open_by_handle_at(AT_FDCWD, &h.head, O_RDONLY);
}

static long attempt(const char *what, const char *with) {
    struct timeval tv = {1000000000, 0};
    struct timespec ts = {1000000000, 0};
    char buffer[4096] = {0};
    struct iovec here = {buffer, 8}, there = {buffer, 8};
#define IS(name) (strcmp(what, name) == 0)
    if (IS("mount-tmpfs")) return mount("none", "/tmp", "tmpfs", 0, 0);
    if (IS("mount-proc")) return mount("proc", "/tmp", "proc", 0, 0);
    if (IS("mount-cgroup")) return mount("cgroup", "/tmp", "cgroup", 0, "memory");
    if (IS("mount-debugfs")) return mount("none", "/tmp", "debugfs", 0, 0);
    if (IS("remount")) return mount(0, "/", 0, MS_REMOUNT | MS_BIND, 0);
    if (IS("umount-proc")) return umount2("/proc", MNT_DETACH);
    if (IS("pivot-root")) return raw(SYS_pivot_root, (long)"/tmp", (long)"/tmp", 0, 0);
    if (IS("chroot")) return chroot("/tmp");
    if (IS("fsopen")) return raw(SYS_fsopen, (long)"tmpfs", 0, 0, 0);
    if (IS("open-tree")) return raw(SYS_open_tree, AT_FDCWD, (long)"/", 1, 0);
    if (IS("move-mount")) return raw(SYS_move_mount, -1, (long)"", -1, (long)"");
    if (IS("mount-setattr")) return raw(442, AT_FDCWD, (long)"/", 0, (long)buffer);
    if (IS("fspick")) return raw(SYS_fspick, AT_FDCWD, (long)"/", 0, 0);
    if (IS("open-tree-attr")) return raw(467, AT_FDCWD, (long)"/", 0, 0);
    if (IS("unshare-user")) return unshare(CLONE_NEWUSER);
    if (IS("unshare-mount")) return unshare(CLONE_NEWNS);
    if (IS("unshare-net")) return unshare(CLONE_NEWNET);
    if (IS("unshare-time")) return unshare(0x80);
    if (IS("clone-user")) { long p = raw(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0); if (p == 0) _exit(0); return p; }
    if (IS("clone3")) return raw(435, 0, 0, 0, 0);
    if (IS("setns")) return setns(open("/proc/self/ns/user", O_RDONLY), 0);
    if (IS("ptrace-me")) return ptrace(PTRACE_TRACEME, 0, 0, 0);
    if (IS("ptrace-init")) return ptrace(PTRACE_SEIZE, 1, 0, 0);
    if (IS("read-parent")) return process_vm_readv(getppid(), &here, 1, &there, 1, 0);
    if (IS("write-parent")) return process_vm_writev(getppid(), &here, 1, &there, 1, 0);
    if (IS("pidfd-getfd")) return raw(438, raw(434, getppid(), 0, 0, 0), 0, 0, 0);
    if (IS("add-key")) return syscall(SYS_add_key, "user", "aegis-test", "x", 1, -2);
    if (IS("request-key")) return syscall(SYS_request_key, "user", "aegis-test", 0, 0);
    if (IS("keyctl")) return syscall(SYS_keyctl, 0, -3, 1);
    if (IS("bpf")) return raw(SYS_bpf, 0, (long)buffer, 72, 0);
    if (IS("perf")) return raw(SYS_perf_event_open, (long)buffer, 0, -1, -1);
    if (IS("userfaultfd")) return raw(SYS_userfaultfd, 1, 0, 0, 0);
    if (IS("io-uring")) return raw(425, 1, (long)buffer, 0, 0);
    if (IS("fanotify")) return raw(SYS_fanotify_init, 0x200, 0, 0, 0);
    if (IS("kexec")) return raw(SYS_kexec_load, 0, 0, 0, 0);
    if (IS("init-module")) return raw(SYS_init_module, (long)buffer, 0, (long)"", 0);
    if (IS("delete-module")) return raw(SYS_delete_module, (long)"none", 0, 0, 0);
    if (IS("swapon")) return raw(SYS_swapon, (long)"/tmp", 0, 0, 0);
    if (IS("reboot")) return raw(SYS_reboot, 0xfee1dead, 672274793, 0, 0);
    if (IS("settimeofday")) return settimeofday(&tv, 0);
    if (IS("clock-settime")) return clock_settime(CLOCK_REALTIME, &ts);
    if (IS("adjtimex")) { struct timex t = {.modes = ADJ_TICK, .tick = 1}; return adjtimex(&t); }
    if (IS("sethostname")) return sethostname("x", 1);
    if (IS("acct")) return raw(SYS_acct, 0, 0, 0, 0);
    if (IS("quotactl")) return raw(SYS_quotactl, 0, 0, 0, 0);
    if (IS("syslog")) return raw(SYS_syslog, 3, (long)buffer, sizeof buffer, 0);
    if (IS("name-to-handle")) return handle();
    if (IS("open-by-handle")) return by_handle();
#ifdef __x86_64__
    if (IS("iopl")) return raw(SYS_iopl, 3, 0, 0, 0);
    if (IS("modify-ldt")) return raw(SYS_modify_ldt, 0, (long)buffer, 16, 0);
    if (IS("x32")) return raw(0x40000000L | SYS_getpid, 0, 0, 0, 0);
    if (IS("int80")) { long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r; }
#endif
    if (IS("personality")) return syscall(SYS_personality, 8);
    if (IS("make-device")) return mknod(with, S_IFCHR | 0666, makedev(1, 1));
    if (IS("make-disk")) return mknod(with, S_IFBLK | 0666, makedev(254, 0));
    if (IS("make-fifo")) return mknod(with, S_IFIFO | 0666, 0);
    if (IS("socket-raw")) return socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    if (IS("socket-packet")) return socket(AF_PACKET, SOCK_DGRAM, 0);
    if (IS("socket-audit")) return socket(AF_NETLINK, SOCK_RAW, 9);
    if (IS("socket-uevent")) return socket(AF_NETLINK, SOCK_RAW, 15);
    if (IS("socket-route")) return socket(AF_NETLINK, SOCK_RAW, 0);
    if (IS("socket-vsock")) return socket(AF_VSOCK, SOCK_STREAM, 0);
    if (IS("socket-alg")) return socket(AF_ALG, SOCK_SEQPACKET, 0);
    if (IS("type-into-terminal")) return terminal(TIOCSTI);
    if (IS("size-of-terminal")) return terminal(TIOCGWINSZ);
    if (IS("line-discipline")) return terminal(TIOCSETD);
    if (IS("setuid-root")) return setuid(0);
    if (IS("setgid-root")) return setgid(0);
    if (IS("setgroups")) { gid_t g = 0; return setgroups(1, &g); }
    if (IS("capset")) return all_capabilities();
    if (IS("ambient")) return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0);
    if (IS("new-privileges")) return prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0);
    if (IS("more-processes")) { struct rlimit l = {1 << 20, 1 << 20}; return setrlimit(RLIMIT_NPROC, &l); }
    if (IS("core-dumps")) { struct rlimit l = {1 << 20, 1 << 20}; return setrlimit(RLIMIT_CORE, &l); }
    if (IS("kill-init")) return kill(1, SIGKILL);
    if (IS("stop-init")) return kill(1, SIGSTOP);
    if (IS("kill-outside")) return kill(atoi(with), 0);
    if (IS("shared-memory")) return shmat(atoi(with), 0, SHM_RDONLY) == (void *)-1 ? -1 : 0;
    if (IS("abstract-socket")) return abstract(with);
    if (IS("connect")) return udp("127.0.0.1", atoi(with), 1, SOCK_STREAM);
    if (IS("metadata")) return udp("169.254.169.254", 80, 1, SOCK_STREAM);
    if (IS("dns")) return udp("192.0.2.53", 53, 0, SOCK_DGRAM);
    if (IS("read")) return opened(with, O_RDONLY);
    if (IS("write")) return opened(with, O_WRONLY);
    if (IS("create")) return opened(with, O_WRONLY | O_CREAT);
    if (IS("content")) { int f = open(with, O_RDONLY); return f < 0 ? -1 : (errno = EIO, read(f, buffer, 1) == 0 ? -1 : 0); }
    fprintf(stderr, "no such attempt: %s\n", what);
    exit(2);
}

int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        char *with = strchr(names[i], '=');
        if (with) *with++ = 0;
        printf("%s%s%s ", names[i], with ? "=" : "", with ? with : "");
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            long result = attempt(names[i], with ? with : "");
            puts(result >= 0 ? "ok" : strerrorname_np(errno));
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) printf("signal-%d\n", WTERMSIG(status));
        else if (WEXITSTATUS(status)) printf("error-%d\n", WEXITSTATUS(status));
        fflush(stdout);
    }
    return 0;
}
