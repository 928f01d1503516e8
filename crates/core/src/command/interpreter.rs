//! Programs that run whatever they are given: to allow one is to allow everything that is inside the sandbox.

/// Shells, languages, editors with commands of their own, and programs whose work is to start another one.
const NAMES: &[&str] = &[
    // Shells.
    "ash",
    "bash",
    "busybox",
    "csh",
    "dash",
    "elvish",
    "fish",
    "ksh",
    "mksh",
    "nu",
    "pwsh",
    "rbash",
    "sh",
    "tcsh",
    "toybox",
    "xonsh",
    "yash",
    "zsh",
    // Languages.
    "awk",
    "bun",
    "bunx",
    "clisp",
    "deno",
    "dotnet",
    "elixir",
    "erl",
    "escript",
    "expect",
    "gawk",
    "ghci",
    "groovy",
    "guile",
    "ipython",
    "irb",
    "java",
    "jruby",
    "jshell",
    "julia",
    "lua",
    "luajit",
    "m4",
    "mawk",
    "nawk",
    "node",
    "nodejs",
    "npx",
    "ocaml",
    "octave",
    "osascript",
    "perl",
    "php",
    "pnpx",
    "pypy",
    "python",
    "r",
    "racket",
    "rscript",
    "ruby",
    "runghc",
    "runhaskell",
    "sbcl",
    "scala",
    "scheme",
    "sqlite",
    "swipl",
    "tclsh",
    "ts-node",
    "tsx",
    "wish",
    // Editors and pagers that run commands.
    "ed",
    "emacs",
    "ex",
    "gdb",
    "less",
    "lldb",
    "more",
    "nano",
    "nvim",
    "vi",
    "view",
    "vim",
    "vimdiff",
    // Starters of other programs.
    "at",
    "batch",
    "catchsegv",
    "chroot",
    "chrt",
    "cpulimit",
    "doas",
    "entr",
    "env",
    "fakeroot",
    "firejail",
    "flock",
    "ionice",
    "ld.so",
    "ltrace",
    "nice",
    "nohup",
    "nsenter",
    "numactl",
    "parallel",
    "perf",
    "pkexec",
    "rlwrap",
    "runuser",
    "screen",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "socat",
    "ssh",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tmux",
    "unbuffer",
    "unshare",
    "valgrind",
    "watch",
    "xargs",
    "xvfb-run",
];

/// Whether a program of this name runs whatever it is given. `python3.12` and `lua5.4` are what they are without their
/// version.
pub fn is_one(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let is_known = |name: &str| NAMES.contains(&name);
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    is_known(&name) || is_known(bare) || name.starts_with("ld-linux") || name.starts_with("ld-musl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_directories_hide_none() {
        for name in
            ["bash", "/bin/sh", "python3", "python3.12", "Python", "lua5.4", "pypy3", "tclsh8.6", "sqlite3"]
        {
            assert!(is_one(name), "{name}");
        }
        for name in ["git", "make", "cargo", "gcc-14", "ls", "7z", "", "3"] {
            assert!(!is_one(name), "{name}");
        }
        assert!(is_one("ld-linux-x86-64.so.2"));
    }
}
