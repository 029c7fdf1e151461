//! The program as people run it, to be killed and started again.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::{setup::until, support::Home};

/// A program that listens.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Starts it in a home, with spans going to this address.
    pub(crate) async fn start(home: &Home, collector: &str) -> Self {
        let log = home.path().join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_spanplane"))
            .env_clear()
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
            .arg("--socket-path")
            .arg(home.socket())
            .arg("--data-dir")
            .arg(home.data_dir())
            .args(["--metrics-address=none", "--shutdown-timeout=60s"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        until("it listens", || has_said(&log, "\"listening\"")).await;
        Self { child }
    }

    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops it once everything is where it belongs.
    pub(crate) async fn terminate(mut self) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        assert!(self.child.wait().await.unwrap().success());
    }
}

fn has_said(log: &Path, words: &str) -> bool {
    fs::read_to_string(log).unwrap().contains(words)
}
