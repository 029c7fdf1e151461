//! The servers that are measured, each a process of its own in a folder of its own.
//!
//! Invariant: a server's processor time is counted until it has ended, so that nothing that it
//! puts off is left out.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::{net::UnixStream, process::CommandExt as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{process, quota::Quota, roles};

/// Until a server listens, or has ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// Until what it does behind its answers is done.
const DRAIN_PATIENCE: Duration = Duration::from_mins(15);
/// How often it is asked whether it is; by then it knows of the last message.
const DRAIN_LOOK: Duration = Duration::from_secs(1);

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Spanplane,
    NoOp,
    /// A command, in which `{socket}` stands for the socket; and which of them it is.
    Other(usize, String),
}

impl Kind {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Spanplane => "spanplane".to_owned(),
            Self::NoOp => "no-op".to_owned(),
            Self::Other(number, command) => {
                let program = command.split_whitespace().next().unwrap_or_default();
                let program = program.rsplit('/').next().unwrap_or_default();
                format!("{program} ({number})")
            }
        }
    }

    fn command(&self, place: &Place, quota: Option<&Quota>) -> anyhow::Result<Command> {
        let socket = place.socket();
        let mut doors = place.doors.clone();
        doors.extend(quota.map(Quota::door));
        let mut command = match self {
            Self::Spanplane => {
                let mut command = begin(env!("CARGO_BIN_EXE_spanplane"), &doors);
                command.env_clear().env("PIPELINE_INSPECTOR_SOCKET", socket);
                command
            }
            Self::NoOp => {
                let mut command = begin(env::current_exe()?, &doors);
                command.arg(roles::NO_OP).arg(socket);
                command
            }
            Self::Other(_, other) => {
                let other = other.replace("{socket}", &socket.to_string_lossy());
                let mut command = begin("/bin/sh", &doors);
                command.arg("-c").arg(format!("exec {other}"));
                command
            }
        };
        // NOTE: for the others too, which may be other builds of spanplane.
        command
            .process_group(process::group()?)
            .env("SPANPLANE_METRICS_ADDRESS", "127.0.0.1:0")
            .env("SPANPLANE_VIEWER_ADDRESS", "none")
            .envs(place.variables.iter().cloned());
        Ok(command)
    }
}

/// A folder for a server, which may be started in it more than once.
#[derive(Debug)]
pub(crate) struct Place {
    folder: TempDir,
    /// What servers are told besides the defaults.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Of control groups that servers are in.
    pub(crate) doors: Vec<PathBuf>,
}

impl Place {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            folder: TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?,
            variables: Vec::new(),
            doors: Vec::new(),
        })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Where spanplane has its store if it is not told where.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("spanplane/store")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// How a server is started here.
    pub(crate) fn command(&self, kind: &Kind, quota: Option<&Quota>) -> anyhow::Result<Command> {
        kind.command(self, quota)
    }

    /// Starts a server; returns once it listens.
    pub(crate) fn start<'p>(
        &'p self,
        kind: &Kind,
        quota: Option<&Quota>,
    ) -> anyhow::Result<Running<'p>> {
        let mut command = self.command(kind, quota)?;
        let log = File::create(self.log())?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let started = Instant::now();
        let process = command
            .spawn()
            .with_context(|| format!("cannot start {}", kind.name()))?;
        let mut running = Running {
            place: self,
            process,
            is_ours: matches!(kind, Kind::Spanplane),
            listening_after: Duration::ZERO,
        };
        let socket = self.socket();
        running.wait(Duration::from_micros(200), "it does not listen", || {
            UnixStream::connect(&socket).is_ok()
        })?;
        running.listening_after = started.elapsed();
        Ok(running)
    }
}

/// A command; the process first goes into the control groups, if there are any.
fn begin(program: impl AsRef<OsStr>, doors: &[PathBuf]) -> Command {
    if doors.is_empty() {
        return Command::new(program);
    }
    let mut command = Command::new("/bin/sh");
    let enter =
        "while [ \"$1\" != -- ]; do echo $$ > \"$1\" || exit 1; shift; done; shift; exec \"$@\"";
    command.args(["-c", enter, "sh"]).args(doors);
    command.arg("--").arg(program);
    command
}

/// A server that listens.
#[derive(Debug)]
pub(crate) struct Running<'p> {
    place: &'p Place,
    process: Child,
    /// Its start to its first connection.
    pub(crate) listening_after: Duration,
    /// It says where it tells what it has left to do.
    is_ours: bool,
}

impl Running<'_> {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it has nothing left to do; returns how long that took, or nothing if it
    /// has not come to an end.
    pub(crate) fn drain(&self, is_store_away: bool) -> anyhow::Result<Option<Duration>> {
        let begun = Instant::now();
        let mut before = process::cpu(self.id())?;
        let metrics = if self.is_ours {
            Some(self.serves_metrics_at()?)
        } else {
            self.metrics_address()?
        };
        while begun.elapsed() < DRAIN_PATIENCE {
            thread::sleep(DRAIN_LOOK);
            let cpu = process::cpu(self.id())?;
            let is_done = match &metrics {
                Some(address) if !is_store_away => has_nothing_left(&get_metrics(address)?),
                // One tick may pass without anything being done.
                _ => cpu.saturating_sub(before) <= Duration::from_millis(10),
            };
            if is_done {
                return Ok(Some(begun.elapsed()));
            }
            before = cpu;
        }
        Ok(None)
    }

    /// Has it end; returns the processor time that it took in all.
    pub(crate) fn stop(mut self) -> anyhow::Result<Duration> {
        let id = Pid::from_raw(i32::try_from(self.id())?).context("no process")?;
        kill_process(id, Signal::TERM)?;
        let number = self.id();
        let ended = self.wait(Duration::from_millis(5), "it does not end", || {
            process::has_ended(number).unwrap_or(true)
        });
        if ended.is_err() {
            self.process.kill()?;
            thread::sleep(Duration::from_millis(100));
        }
        process::cpu(number)
    }

    fn wait(&mut self, look: Duration, what: &str, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !is_so() {
            if begun.elapsed() > PATIENCE || process::has_ended(self.id())? {
                bail!("{what}: {}", fs::read_to_string(self.place.log())?);
            }
            thread::sleep(look);
        }
        Ok(())
    }

    /// Waits until it has said where its metrics are: it listens before it says so.
    pub(crate) fn serves_metrics_at(&self) -> anyhow::Result<String> {
        self.serves_at("metrics")
    }

    /// Waits until it has said where it serves this.
    pub(crate) fn serves_at(&self, what: &str) -> anyhow::Result<String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(address) = self.address_of(what)? {
                return Ok(address);
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("it does not say where it serves {what}")
    }

    fn metrics_address(&self) -> anyhow::Result<Option<String>> {
        self.address_of("metrics")
    }

    /// From the line that says where everything is, if it wrote one.
    fn address_of(&self, what: &str) -> anyhow::Result<Option<String>> {
        let log = fs::read_to_string(self.place.log())?;
        let Some(line) = log.lines().find(|line| line.contains("\"listening\"")) else {
            return Ok(None);
        };
        let line: serde_json::Value = serde_json::from_str(line)?;
        let address = line.get(what).and_then(serde_json::Value::as_str);
        Ok(address.map(str::to_owned))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // It ended by itself, then.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// What is in the index's batch waits for its time: that is no work, and it is sent at the end.
fn has_nothing_left(metrics: &str) -> bool {
    let is_zero = |name: &str| {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value == Some("0")
    };
    is_zero("spanplane_spool_oldest_record_age_seconds ")
        && is_zero("spanplane_outbox_bytes{kind=\"objects\"} ")
        && is_zero("spanplane_outbox_bytes{kind=\"traces\"} ")
}

fn get_metrics(address: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
