//! A sidecar under test: the real program, killed and started again in the same place.
//!
//! Invariant: every life of it has a log of its own, with the faults that happened meanwhile, and
//! how it ended.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
};

use crate::{payload::holds_canary, plan::Kind, settings::Settings};

/// Long enough for a loaded machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_mins(3);
/// Where things wait for the store and the collector, in the data directory.
const WAITING: [&str; 4] = [
    "outbox/objects",
    "outbox/index",
    "outbox/traces",
    "quarantine",
];
const LISTENING: &str = "\"listening\"";
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where a sidecar runs, and what with.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) data_dir: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) store: String,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Process group.
    pub(crate) group: i32,
    /// Of a control group: it enters by writing its id into this.
    pub(crate) door: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Sidecar {
    pub(crate) place: Place,
    pub(crate) settings: Settings,
    /// Also set, to make its clock one that can be set.
    pub(crate) clock: Vec<(&'static str, String)>,
    child: Option<Child>,
    pub(crate) lives: Vec<Life>,
}

/// From a start to an end.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) log: PathBuf,
    /// What happened meanwhile.
    pub(crate) faults: BTreeSet<Kind>,
    pub(crate) end: Option<End>,
    /// Until it listened.
    pub(crate) start_took: Option<Duration>,
    pub(crate) peak_bytes: u64,
    /// Lines of its metrics that give a secret away.
    pub(crate) leaks: Vec<String>,
}

/// How a life ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Killed,
    /// With SIGTERM.
    Terminated(ExitStatus),
    /// Before it listened.
    DidNotStart(ExitStatus),
    /// For no reason.
    ByItself(ExitStatus),
    /// It had to be killed long after SIGTERM.
    Hung,
}

impl Sidecar {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            settings: Settings::default(),
            clock: Vec::new(),
            child: None,
            lives: Vec::new(),
        }
    }

    /// Starts it and waits until it listens. Returns whether it does; if not, it has ended.
    pub(crate) async fn start(&mut self, faults: BTreeSet<Kind>) -> anyhow::Result<bool> {
        let begun = Instant::now();
        self.spawn(faults)?;
        let log = self.life()?.log.clone();
        loop {
            if let Some(status) = self.exit_status()? {
                self.ended(End::DidNotStart(status))?;
                return Ok(false);
            }
            if has_said(&log, LISTENING)? {
                self.life()?.start_took = Some(begun.elapsed());
                return Ok(true);
            }
            if begun.elapsed() > PATIENCE {
                bail!("{} does not listen; see {}", self.place.name, log.display());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Starts it and does not wait.
    pub(crate) fn spawn(&mut self, faults: BTreeSet<Kind>) -> anyhow::Result<()> {
        let Place {
            name,
            program,
            socket,
            data_dir,
            logs,
            store,
            variables,
            group,
            door,
        } = &self.place;
        let log = logs.join(format!("{name}-{:04}.log", self.lives.len()));
        let file = File::create(&log)?;
        let mut command = match door {
            None => Command::new(program),
            Some(door) => {
                let mut command = Command::new("/bin/sh");
                let enter = "echo $$ > \"$1\" || exit 1; shift; exec \"$@\"";
                command.args(["-c", enter, "sh"]).arg(door).arg(program);
                command
            }
        };
        let child = command
            .env_clear()
            .envs(variables.iter().cloned())
            .envs(self.clock.iter().cloned())
            .arg("--socket-path")
            .arg(socket)
            .arg("--data-dir")
            .arg(data_dir)
            .arg("--store")
            .arg(store)
            .args(["--metrics-address=127.0.0.1:0", "--viewer-address=none"])
            .args(self.settings.flags())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(*group)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start spanplane")?;
        self.child = Some(child);
        self.lives.push(Life {
            log,
            faults,
            end: None,
            start_took: None,
            peak_bytes: 0,
            leaks: Vec::new(),
        });
        Ok(())
    }

    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        if self.notice_death()? {
            return Ok(());
        }
        self.measure()?;
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        self.ended(End::Killed)
    }

    /// SIGTERM, and waits until it has ended.
    pub(crate) async fn terminate(&mut self) -> anyhow::Result<()> {
        if self.notice_death()? {
            return Ok(());
        }
        self.measure()?;
        self.signal(Signal::TERM)?;
        let patience = self.settings.shutdown_timeout + PATIENCE;
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        if let Ok(status) = tokio::time::timeout(patience, child.wait()).await {
            return self.ended(End::Terminated(status?));
        }
        child.kill().await?;
        self.ended(End::Hung)
    }

    pub(crate) async fn pause(&mut self, lasts: Duration) -> anyhow::Result<()> {
        if self.notice_death()? {
            return Ok(());
        }
        self.signal(Signal::STOP)?;
        tokio::time::sleep(lasts).await;
        self.signal(Signal::CONT)
    }

    /// Notes that something happens that may explain what it logs.
    pub(crate) fn suffers(&mut self, kind: Kind) {
        if self.child.is_some()
            && let Some(life) = self.lives.last_mut()
        {
            life.faults.insert(kind);
        }
    }

    /// Notices that it ended by itself; returns whether it is not running.
    pub(crate) fn notice_death(&mut self) -> anyhow::Result<bool> {
        if let Some(status) = self.exit_status()? {
            self.ended(End::ByItself(status))?;
        }
        Ok(self.child.is_none())
    }

    /// What is left in its outbox, or in quarantine: none of the faults is a reason for that.
    pub(crate) fn undelivered(&self) -> anyhow::Result<Vec<PathBuf>> {
        let data_dir = &self.place.data_dir;
        let mut folders: Vec<_> = WAITING.iter().map(|name| data_dir.join(name)).collect();
        let mut left = Vec::new();
        while let Some(folder) = folders.pop() {
            if !folder.is_dir() {
                continue;
            }
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else {
                    left.push(entry.path());
                }
            }
        }
        Ok(left)
    }

    /// Has it send what is in its quarantine once more, as somebody would who reads its log; returns
    /// how many messages that is.
    pub(crate) async fn send_again(&self) -> anyhow::Result<u32> {
        let Place {
            program, data_dir, ..
        } = &self.place;
        let quarantine = data_dir.join("quarantine");
        let messages = messages_in(&quarantine)? + messages_in(&quarantine.join("retry"))?;
        if messages > 0 {
            let mut command = Command::new(program);
            command
                .args(["quarantine", "retry", "--data-dir"])
                .arg(data_dir);
            let output = command.output().await?;
            let told = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "quarantine retry: {told}");
        }
        Ok(messages)
    }

    /// Waits until the messages that are to be sent again have left its quarantine.
    pub(crate) async fn wait_until_sent_again(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let retry = self.place.data_dir.join("quarantine/retry");
        while messages_in(&retry)? > 0 {
            let name = self.place.name;
            ensure!(
                !self.notice_death()?,
                "{name} died while it sent messages again"
            );
            ensure!(
                begun.elapsed() < PATIENCE,
                "messages stay in the quarantine of {name}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// The most memory that it had so far.
    pub(crate) fn measure(&mut self) -> anyhow::Result<()> {
        let Some(pid) = self.child.as_ref().and_then(Child::id) else {
            return Ok(());
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok());
        self.life()?.peak_bytes = kib.unwrap_or_default() * 1024;
        Ok(())
    }

    /// Looks for secrets in its metrics.
    pub(crate) async fn search_metrics(&mut self) -> anyhow::Result<()> {
        if self.notice_death()? {
            return Ok(());
        }
        let life = self.life()?;
        let address = metrics_address(&life.log)?;
        let address = address.context("the log does not name the address of /metrics")?;
        let mut stream = TcpStream::connect(address).await?;
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).await?;
        let is_answer = metrics.starts_with("HTTP/1.1 200") && metrics.contains("spanplane_");
        ensure!(is_answer, "/metrics answers {metrics:?}");
        let leaks = metrics.lines().filter(|line| holds_canary(line.as_bytes()));
        life.leaks.extend(leaks.map(ToOwned::to_owned));
        Ok(())
    }

    fn exit_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        let status = child.try_wait()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.child.as_ref().and_then(Child::id);
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        kill_process(pid.context("not running")?, signal)?;
        Ok(())
    }

    fn ended(&mut self, end: End) -> anyhow::Result<()> {
        self.life()?.end = Some(end);
        Ok(())
    }

    fn life(&mut self) -> anyhow::Result<&mut Life> {
        self.lives.last_mut().context("never started")
    }
}

/// Where it says that it serves metrics.
fn metrics_address(log: &Path) -> anyhow::Result<Option<String>> {
    let log = fs::read_to_string(log)?;
    let line = log.lines().find(|line| line.contains(LISTENING));
    let line: Option<Value> = line.map(serde_json::from_str).transpose()?;
    let address = line.and_then(|line| Some(line.get("metrics")?.as_str()?.to_owned()));
    Ok(address)
}

fn has_said(log: &Path, words: &str) -> anyhow::Result<bool> {
    Ok(String::from_utf8_lossy(&fs::read(log)?).contains(words))
}

fn messages_in(folder: &Path) -> anyhow::Result<u32> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?.flatten(),
    };
    let messages = entries.filter(|entry| is_message(&entry.path()));
    Ok(u32::try_from(messages.count())?)
}

/// The other files there say why.
fn is_message(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "message")
}
