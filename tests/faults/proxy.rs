//! A TCP proxy in front of a server, which breaks connections as it is told.
//!
//! Invariant: while it passes bytes on, it changes none. What it is told holds for connections
//! that are already open, too.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
    task::JoinSet,
};

/// Ports below those that outgoing connections use: while the proxy is down, nobody else may take
/// its port.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const PIECE_BYTES: usize = 16 << 10;
const MAX_HEAD_BYTES: usize = 64 << 10;

/// What the proxy does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Passage {
    Open,
    /// Nobody listens.
    Closed,
    /// Every piece takes this long.
    Slow(Duration),
    /// Every connection is reset after so many bytes from the client.
    Cutting(u64),
    /// Every HTTP request is answered with this status.
    Refusing(u16),
}

#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    passage: watch::Sender<Passage>,
    /// Ends with the proxy.
    _listening: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(behind: SocketAddr) -> anyhow::Result<Self> {
        let (listener, port) = bind_somewhere().await?;
        let passage = watch::Sender::new(Passage::Open);
        let mut listening = JoinSet::new();
        listening.spawn(listen(listener, port, behind, passage.subscribe()));
        Ok(Self {
            port,
            passage,
            _listening: listening,
        })
    }

    pub(crate) fn set(&self, passage: Passage) {
        self.passage.send_replace(passage);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// A port of 127.0.0.1 on which nobody listens, below those of outgoing connections.
pub(crate) async fn free_port() -> anyhow::Result<u16> {
    Ok(bind_somewhere().await?.1)
}

async fn bind_somewhere() -> anyhow::Result<(TcpListener, u16)> {
    for _ in 0..1000 {
        let port = fastrand::u16(PORTS);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
            return Ok((listener, port));
        }
    }
    anyhow::bail!("no port is free")
}

async fn listen(
    first: TcpListener,
    port: u16,
    behind: SocketAddr,
    mut passage: watch::Receiver<Passage>,
) {
    let mut listener = Some(first);
    let mut connections = JoinSet::new();
    loop {
        if *passage.borrow_and_update() == Passage::Closed {
            listener = None;
            connections.abort_all();
            if passage.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(open) = &listener else {
            match TcpListener::bind(("127.0.0.1", port)).await {
                Ok(bound) => listener = Some(bound),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
            continue;
        };
        tokio::select! {
            accepted = open.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(serve(client, behind, passage.clone()));
                }
            }
            changed = passage.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: TcpStream, behind: SocketAddr, passage: watch::Receiver<Passage>) {
    let first = *passage.borrow();
    let outcome = match first {
        Passage::Refusing(status) => refuse(&mut client, status, &passage).await,
        _ => pass(&mut client, behind, passage).await,
    };
    if outcome.is_err() {
        // A reset, as from a server that died.
        client.set_zero_linger().unwrap_or_default();
    }
}

async fn pass(
    client: &mut TcpStream,
    behind: SocketAddr,
    passage: watch::Receiver<Passage>,
) -> io::Result<()> {
    let mut server = TcpStream::connect(behind).await?;
    let passage = Arc::new(passage);
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        ended = pump(from_client, to_server, (*passage).clone(), true) => ended,
        ended = pump(from_server, to_client, (*passage).clone(), false) => ended,
    }
}

async fn pump(
    mut from: tcp::ReadHalf<'_>,
    mut to: tcp::WriteHalf<'_>,
    passage: watch::Receiver<Passage>,
    is_upload: bool,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut passed = 0;
    loop {
        let read = from.read(&mut piece).await?;
        let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        let now = *passage.borrow();
        match now {
            Passage::Slow(delay) => tokio::time::sleep(delay).await,
            Passage::Cutting(after) if is_upload => {
                let left = after.saturating_sub(passed);
                let left = usize::try_from(left).unwrap_or(usize::MAX);
                if left < bytes.len() {
                    to.write_all(bytes.get(..left).unwrap_or_default()).await?;
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                passed += bytes.len() as u64;
            }
            Passage::Open | Passage::Cutting(_) => {}
            Passage::Closed | Passage::Refusing(_) => {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        to.write_all(bytes).await?;
    }
}

/// Answers HTTP requests by itself, as an object store that does not work.
async fn refuse(
    client: &mut TcpStream,
    status: u16,
    passage: &watch::Receiver<Passage>,
) -> io::Result<()> {
    let code = match status {
        403 => "AccessDenied",
        503 => "SlowDown",
        _ => "InternalError",
    };
    let body =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code></Error>");
    while matches!(*passage.borrow(), Passage::Refusing(_)) {
        let Some(head) = read_head(client).await? else {
            return Ok(());
        };
        discard(client, content_length(&head)).await?;
        let body = if head.starts_with("HEAD") { "" } else { &body };
        let answer = format!(
            "HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        client.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// Up to the empty line; `None` if the client has nothing more to ask.
async fn read_head(client: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // Byte by byte, so that nothing of what follows is taken.
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Ok(None),
            Err(error) => return Err(error),
        }
        if head.len() > MAX_HEAD_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

fn content_length(head: &str) -> u64 {
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    length.unwrap_or_default()
}

async fn discard(client: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let mut body = client.take(bytes);
    let discarded = tokio::io::copy(&mut body, &mut tokio::io::sink()).await?;
    if discarded < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Waits until something listens.
pub(crate) async fn until_reachable(address: SocketAddr, patience: Duration) -> anyhow::Result<()> {
    let reaching = async {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(patience, reaching)
        .await
        .with_context(|| format!("nothing listens on {address}"))
}
