//! The program as people run it, in a folder of its own.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use spanplane::client::InspectorClient;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use super::PATIENCE;

/// A folder with a socket and a data directory.
#[derive(Debug)]
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.0.path().join("run/socket")
    }

    pub fn data_dir(&self) -> PathBuf {
        self.0.path().join("run/spanplane")
    }

    /// The program with only the socket set, as after an exchange of the image.
    pub fn command(&self) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_spanplane").as_ref())
    }

    /// The same of another file, which may start the program.
    pub fn command_of(&self, file: &Path) -> Command {
        let mut command = Command::new(file);
        command
            .env_clear()
            .env("PIPELINE_INSPECTOR_SOCKET", self.socket())
            .env("SPANPLANE_METRICS_ADDRESS", "127.0.0.1:0")
            .env("SPANPLANE_VIEWER_ADDRESS", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub async fn start(&self, flags: &[&str]) -> Running {
        Running::wait_for(self.command().args(flags).spawn().unwrap()).await
    }

    /// Runs the program to its end.
    pub async fn output(&self, flags: &[&str]) -> Output {
        self.command().args(flags).output().await.unwrap()
    }

    pub fn client(&self) -> InspectorClient {
        InspectorClient::new(self.socket(), PATIENCE)
    }
}

/// A program that listens.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    /// The line that says where everything goes.
    listening: Value,
    log: BufReader<tokio::process::ChildStderr>,
}

impl Running {
    pub async fn wait_for(mut child: Child) -> Self {
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(
                log.read_line(&mut line).await.unwrap(),
                0,
                "it ended: {text}"
            );
            if line.contains("\"listening\"") {
                return Self {
                    child,
                    listening: serde_json::from_str(&line).unwrap(),
                    log,
                };
            }
            text.push_str(&line);
        }
    }

    /// Where it serves this.
    pub fn listening(&self, what: &str) -> &str {
        self.listening[what].as_str().unwrap()
    }

    /// Asks it to end, and returns how it did, what it printed and what it logged.
    pub async fn terminate(self) -> (ExitStatus, String, String) {
        self.end_by(Signal::TERM).await
    }

    pub async fn end_by(mut self, signal: Signal) -> (ExitStatus, String, String) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let (mut printed, mut logged) = (String::new(), String::new());
        let mut stdout = self.child.stdout.take().unwrap();
        let (printing, logging) = tokio::join!(
            stdout.read_to_string(&mut printed),
            self.log.read_to_string(&mut logged)
        );
        printing.and(logging).unwrap();
        (self.child.wait().await.unwrap(), printed, logged)
    }

    /// A connection to where metrics and health are served.
    pub async fn connect(&self) -> TcpStream {
        let address = self.listening["metrics"].as_str().unwrap();
        TcpStream::connect(address).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> String {
        let mut stream = self.connect().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}
