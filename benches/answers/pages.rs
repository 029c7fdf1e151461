//! Pages of `spanplane view`, as a browser gets them.
//!
//! Every page is asked of a viewer of its own: first with nothing of the store in the page cache,
//! then some times more. Its memory is all that this viewer ever took.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

use crate::{
    measure::Measured,
    questions::{NEWEST, USUAL},
    reconciles::LARGE,
};

/// By their names.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    let trace =
        |reconcile: crate::reconciles::Reconcile| format!("/trace/{}", reconcile.trace_id());
    vec![
        ("page: list", "/".to_owned()),
        ("page: list, changed", "/?changed=yes".to_owned()),
        (
            "page: list, one XR",
            format!("/?kind=Network&name={}", USUAL.name()),
        ),
        ("page: reconcile", trace(USUAL)),
        ("page: reconcile, newest", trace(NEWEST)),
        ("page: reconcile, 4 MB payload", trace(LARGE)),
        ("page: step", format!("{}/step/3", trace(USUAL))),
        (
            "page: step, 4 MB payload",
            format!("{}/step/3", trace(LARGE)),
        ),
        (
            "page: history",
            format!("/xr/Network.platform.example.org/default/{}", USUAL.name()),
        ),
    ]
}

/// A running `spanplane view`.
pub(crate) struct View {
    process: Child,
    address: String,
}

impl View {
    pub(crate) fn start(store: &str) -> anyhow::Result<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_spanplane"))
            .args(["view", "--store", store, "--address", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()?;
        let out = process.stdout.take().context("it has no output")?;
        let mut said = String::new();
        BufReader::new(out).read_line(&mut said)?;
        let address = said.trim().rsplit_once("http://");
        let address = address.with_context(|| format!("it says {said:?}"))?.1;
        let address = address.trim_end_matches('/').to_owned();
        Ok(Self { process, address })
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Measured> {
        let (processor, read_bytes) = (self.processor()?, self.read_bytes()?);
        let started_at = Instant::now();
        let mut stream = TcpStream::connect(&self.address)?;
        let host = &self.address;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let took = started_at.elapsed();
        ensure!(
            answer.starts_with(b"HTTP/1.1 200"),
            "{path}: {}",
            String::from_utf8_lossy(&answer)
        );
        Ok(Measured {
            took,
            processor: self.processor()?.saturating_sub(processor),
            peak_kib: self.peak_kib()?,
            read_bytes: self.read_bytes()? - read_bytes,
            found: format!("{} KiB of HTML", answer.len() / 1024),
        })
    }

    fn processor(&self) -> anyhow::Result<Duration> {
        let stat = self.proc("stat")?;
        let fields = stat.rsplit_once(')').context("odd stat")?.1;
        // NOTE: user and system time are fields 14 and 15 of `proc(5)`, in ticks of 10 ms.
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks = ticks.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(Duration::from_millis(10 * ticks))
    }

    fn peak_kib(&self) -> anyhow::Result<i64> {
        field(&self.proc("status")?, "VmHWM:")
    }

    fn read_bytes(&self) -> anyhow::Result<u64> {
        field(&self.proc("io")?, "rchar:")
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        Ok(fs::read_to_string(format!(
            "/proc/{}/{file}",
            self.process.id()
        ))?)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // It ended by itself, then.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn field<N: std::str::FromStr>(text: &str, name: &str) -> anyhow::Result<N>
where
    N::Err: std::error::Error + Send + Sync + 'static,
{
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number
        .with_context(|| format!("there is no {name}"))?
        .parse()?)
}
