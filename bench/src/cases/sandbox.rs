//! Programs in sandboxes, against bubblewrap with the same directories and against no sandbox at all.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use aegis_sandbox::{
    Access, Backend, DEFAULT_PATH, Exit, Floor, Launch, Limits, Mount, Native, NativeSettings, Running,
};
use anyhow::{Context, bail};
use serde_json::json;
use tokio::{io::AsyncReadExt, runtime::Runtime, task::JoinSet};

use crate::{
    load::{Client, pause},
    node::Site,
    process,
    rounds::Rounds,
    table::{Figure, Goal, Row, per_second, time},
    wire,
    workplace::Workplace,
};

pub(super) const NAME: &str = "sandbox";
const AT_ONCE: usize = 64;
/// Long enough that the start of the interpreter is a small part of it.
const SUMS: &str = "sum(i * i % 7 for i in range(4_000_000))";

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let runtime = Runtime::new()?;
    let guard = runtime.enter();
    let settings = NativeSettings { executable: place.aegis_path().to_owned(), ..NativeSettings::default() };
    let backend: Arc<dyn Backend> = Arc::new(Native::new(settings, Floor::default()));
    drop(guard);
    let volume = place.path().join(NAME);
    fs::create_dir(&volume)?;
    let bench = Bench { place, runtime, backend, volume };
    if process::output(Command::new("bwrap").arg("--version")).is_err() {
        bail!("bwrap is not here: install bubblewrap, the yardstick of this case");
    }
    let mut rows = bench.starts()?;
    rows.extend(bench.work()?);
    rows.extend(bench.many()?);
    Ok(rows)
}

struct Bench<'a> {
    place: &'a Workplace,
    runtime: Runtime,
    backend: Arc<dyn Backend>,
    volume: PathBuf,
}

impl Bench<'_> {
    /// From nothing to the end of a program that does nothing.
    fn starts(&self) -> anyhow::Result<Vec<Row>> {
        let count = self.place.scaled(100, 10);
        let site = Site::new(self.place, "sandbox-node")?;
        let node = site.start(self.place)?;
        let token = fs::read_to_string(site.data().join("operator.token"))?;
        let request = wire::rest_call(node.address, token.trim(), "cmd.run", &json!({"command": "true"}));
        let mut client = Client::open(node.address)?;
        let repeated = |once: &mut dyn FnMut() -> anyhow::Result<()>| -> anyhow::Result<f64> {
            let begun = Instant::now();
            (0..count).try_for_each(|_| once())?;
            Ok(begun.elapsed().as_secs_f64() / count as f64)
        };
        let seconds = Rounds::take(
            self.place.rounds(),
            vec![
                Box::new(|| repeated(&mut || self.inside(&["true"]))),
                Box::new(|| repeated(&mut || run(bwrap(&self.volume).arg("true")))),
                Box::new(|| repeated(&mut || run(&mut Command::new("true")))),
                Box::new(|| repeated(&mut || client.call(&request).map(drop))),
            ],
        )?;
        node.server.stop()?;
        site.remove()?;
        let row = |what: &str, ours, yardstick, goal| Row {
            case: NAME,
            what: format!("{what} (lower is better)"),
            ours: time(seconds.median(ours)),
            yardstick: time(seconds.median(yardstick)),
            figure: Figure::Ratio(seconds.ratio(ours, yardstick)),
            goal,
        };
        Ok(vec![
            row("`true` in a sandbox, against bwrap --unshare-all", 0, 1, Goal::AtMost(1.25)),
            row("`true` in a sandbox, against a bare spawn", 0, 2, Goal::Information),
            row("governed cmd.run of `true` over HTTP, against bwrap", 3, 1, Goal::Information),
        ])
    }

    /// Work that takes a while, inside and outside.
    fn work(&self) -> anyhow::Result<Vec<Row>> {
        let files = self.place.scaled(20_000, 2000);
        let tree = self.volume.join("tree");
        large_repository(&tree, files)?;
        let inside = |command: &[&str]| timed(|| self.inside(command));
        let git = ["git", "-c", "safe.directory=*", "-C"];
        let seconds = Rounds::take(
            self.place.rounds(),
            vec![
                Box::new(|| inside(&["python3", "-c", SUMS])),
                Box::new(|| timed(|| run(outside("python3").args(["-c", SUMS])))),
                Box::new(|| inside(&[&git[..], &["/workspace/tree", "status", "--short"]].concat())),
                Box::new(|| {
                    timed(|| run(outside(git[0]).args(&git[1..]).arg(&tree).args(["status", "--short"])))
                }),
            ],
        )?;
        let row = |what: String, ours, yardstick| Row {
            case: NAME,
            what: format!("{what}, inside against outside (lower is better)"),
            ours: time(seconds.median(ours)),
            yardstick: time(seconds.median(yardstick)),
            figure: Figure::Ratio(seconds.ratio(ours, yardstick)),
            goal: Goal::AtMost(1.05),
        };
        Ok(vec![
            row("arithmetic in Python".into(), 0, 1),
            row(format!("git status over {files} files"), 2, 3),
        ])
    }

    /// Many at once, and what those cost that only wait.
    fn many(&self) -> anyhow::Result<Vec<Row>> {
        let count = usize::try_from(self.place.scaled(512, 128))?;
        let rates = Rounds::take(
            self.place.rounds().min(5),
            vec![
                Box::new(|| self.runtime.block_on(self.all_inside(count))),
                Box::new(|| all_bwrap(&self.volume, count)),
            ],
        )?;
        let (ours, theirs) = self.idle()?;
        Ok(vec![
            Row {
                case: NAME,
                what: format!("`true`, {AT_ONCE} at once, against {AT_ONCE} of bwrap"),
                ours: per_second(rates.median(0), "runs"),
                yardstick: per_second(rates.median(1), "runs"),
                figure: Figure::Ratio(rates.ratio(0, 1)),
                goal: Goal::AtLeast(0.8),
            },
            Row {
                case: NAME,
                what: format!("memory of one of {AT_ONCE} idle sandboxes (its share)"),
                ours: format!("{:.0} KiB", ours * 1024.0),
                yardstick: format!("{:.0} KiB", theirs * 1024.0),
                figure: Figure::Mebibytes(ours),
                goal: Goal::Information,
            },
        ])
    }

    fn launch(&self, command: &[&str]) -> Launch {
        Launch {
            args: command[1..].iter().map(|&argument| argument.to_owned()).collect(),
            cwd: "/workspace".into(),
            mounts: vec![Mount {
                host: self.volume.clone(),
                inside: "/workspace".into(),
                access: Access::ReadWrite,
            }],
            // As much as outside.
            limits: Limits { cpu: 64.0, processes: 512, ..Limits::default() },
            ..Launch::new(command[0])
        }
    }

    fn inside(&self, command: &[&str]) -> anyhow::Result<()> {
        let launch = self.launch(command);
        self.runtime.block_on(finish(&*self.backend, launch))
    }

    async fn all_inside(&self, count: usize) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let mut running = JoinSet::new();
        for _ in 0..count {
            if running.len() == AT_ONCE {
                running.join_next().await.context("none runs")???;
            }
            let (backend, launch) = (Arc::clone(&self.backend), self.launch(&["true"]));
            running.spawn(async move { finish(&*backend, launch).await });
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }

    /// Mebibytes of one idle sandbox, ours and bubblewrap's: everything that is there because of it, shared pages
    /// divided among those who share them.
    fn idle(&self) -> anyhow::Result<(f64, f64)> {
        let ours = self.runtime.block_on(async {
            let mut running: Vec<Running> = Vec::new();
            for _ in 0..AT_ONCE {
                running.push(self.backend.launch(self.launch(&["sleep", "600"])).await?);
            }
            let sizes = running.iter().map(|one| tree_mebibytes(one.pid())).sum::<anyhow::Result<f64>>();
            for one in &mut running {
                one.kill();
                one.wait().await;
            }
            sizes
        })?;
        let mut children = Vec::new();
        for _ in 0..AT_ONCE {
            children.push(bwrap(&self.volume).args(["sleep", "600"]).spawn()?);
        }
        pause(Duration::from_secs(1))?;
        let theirs = children.iter().map(|child| tree_mebibytes(child.id())).sum::<anyhow::Result<f64>>();
        for mut child in children {
            child.kill()?;
            child.wait()?;
        }
        Ok((ours / AT_ONCE as f64, theirs? / AT_ONCE as f64))
    }
}

async fn finish(backend: &dyn Backend, launch: Launch) -> anyhow::Result<()> {
    let mut running = backend.launch(launch).await?;
    let mut said = Vec::new();
    if let Some(mut output) = running.stdout.take() {
        output.read_to_end(&mut said).await?;
    }
    match running.wait().await {
        Exit::Code(0) => Ok(()),
        other => bail!("the program ended with {other:?}"),
    }
}

fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// With the sandbox's PATH, so that both sides run the same program.
fn outside(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", DEFAULT_PATH);
    command
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    process::output(command).map(drop)
}

/// Bubblewrap with what our sandboxes see.
fn bwrap(volume: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]);
    for name in ["bin", "sbin", "lib", "lib64"] {
        command.args(["--symlink".to_owned(), format!("usr/{name}"), format!("/{name}")]);
    }
    command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind"]).arg(volume);
    command.args(["/workspace", "--chdir", "/workspace"]).stdout(Stdio::null()).stdin(Stdio::null());
    command
}

fn all_bwrap(volume: &Path, count: usize) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut running = std::collections::VecDeque::new();
    for _ in 0..count {
        if running.len() == AT_ONCE {
            ended(running.pop_front())?;
        }
        running.push_back(bwrap(volume).arg("true").spawn()?);
    }
    while !running.is_empty() {
        ended(running.pop_front())?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn ended(child: Option<std::process::Child>) -> anyhow::Result<()> {
    let status = child.context("none runs")?.wait()?;
    if !status.success() {
        bail!("bwrap ended with {status}");
    }
    Ok(())
}

/// The share of memory of a process and everything below it.
fn tree_mebibytes(pid: u32) -> anyhow::Result<f64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
    let own: f64 = line.trim().trim_end_matches(" kB").parse()?;
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let below: f64 = children
        .split_whitespace()
        .map(|child| tree_mebibytes(child.parse()?))
        .sum::<anyhow::Result<f64>>()?;
    Ok(own / 1024.0 + below)
}

fn large_repository(tree: &Path, files: u64) -> anyhow::Result<()> {
    for number in 0..files {
        let directory = tree.join(format!("part-{:03}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&directory)?;
        }
        fs::write(directory.join(format!("file-{number}.txt")), format!("This is file number {number}.\n"))?;
    }
    let git = |arguments: &[&str]| {
        run(Command::new("git").args(["-c", "safe.directory=*", "-C"]).arg(tree).args(arguments))
    };
    git(&["init", "--quiet"])?;
    git(&["add", "."])?;
    git(&[
        "-c",
        "user.name=bench",
        "-c",
        "user.email=bench@localhost",
        "commit",
        "--quiet",
        "-m",
        "Everything",
    ])
}
