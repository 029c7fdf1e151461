//! The store that the sidecars write to, and what goes wrong with it.
//!
//! A local folder fails by its volume, an S3 server by the proxy in front of it; `MinIO` is also
//! killed. Invariant: the checks read by a way of their own, which never fails.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::ValueEnum;
use object_store::{
    ObjectStore, aws::AmazonS3Builder, local::LocalFileSystem, path::Path as StorePath,
};
use tokio::process::{Child, Command};

use crate::{
    fence::Fence,
    plan::StoreFault,
    proxy::{Passage, Proxy, free_port, until_reachable},
    s3::{BUCKET, S3Server},
    volume::{Volume, VolumeFault},
};

/// Short, like the names of XRs: the S3 server inside the harness makes file names from keys, and
/// these have 255 bytes at most.
const PREFIX: &str = "p";
const USER: &str = "inspector";
const PASSWORD: &str = "inspector-secret";
const REGION: &str = "us-east-1";
const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Kind {
    /// A local folder
    File,
    /// An S3 server inside the harness
    S3,
    /// A real `MinIO`
    Minio,
}

#[derive(Debug)]
pub(crate) struct Store {
    url: String,
    variables: Vec<(&'static str, String)>,
    reader: Reader,
    server: Server,
}

/// The checks' own way to the store.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) client: Arc<dyn ObjectStore>,
    pub(crate) prefix: StorePath,
    /// For commands that read the store.
    pub(crate) url: String,
    pub(crate) variables: Vec<(&'static str, String)>,
}

#[derive(Debug)]
enum Server {
    Folder(Option<Volume>),
    S3 { proxy: Proxy, _server: S3Server },
    Minio { proxy: Proxy, minio: Box<Minio> },
}

impl Store {
    /// A store in this folder; on a volume of its own, if there is one.
    pub(crate) fn in_folder(folder: &Path, volume: Option<Volume>) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let url = format!("file://{}", folder.display());
        Ok(Self {
            url: url.clone(),
            variables: Vec::new(),
            reader: Reader {
                client: Arc::new(LocalFileSystem::new_with_prefix(folder)?),
                prefix: StorePath::default(),
                url,
                variables: Vec::new(),
            },
            server: Server::Folder(volume),
        })
    }

    pub(crate) async fn s3() -> anyhow::Result<Self> {
        let server = S3Server::start().await;
        let address = server.address();
        let proxy = Proxy::start(address).await?;
        let endpoint = proxy.url();
        let server = Server::S3 {
            proxy,
            _server: server,
        };
        Self::behind(&endpoint, address, server)
    }

    pub(crate) async fn minio(
        program: PathBuf,
        folder: &Path,
        fence: &Fence,
    ) -> anyhow::Result<Self> {
        let port = free_port().await?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let data = folder.join("minio");
        // A folder that is there when it starts is a bucket.
        fs::create_dir_all(data.join(BUCKET))?;
        let mut minio = Minio {
            program,
            data,
            log: folder.join("minio.log"),
            address,
            group: fence.group(),
            child: None,
        };
        minio.start().await?;
        let proxy = Proxy::start(address).await?;
        let endpoint = proxy.url();
        let minio = Box::new(minio);
        Self::behind(&endpoint, address, Server::Minio { proxy, minio })
    }

    fn behind(endpoint: &str, address: SocketAddr, server: Server) -> anyhow::Result<Self> {
        let url = format!("s3://{BUCKET}/{PREFIX}");
        let direct = format!("http://{address}");
        let client = AmazonS3Builder::new()
            .with_endpoint(&direct)
            .with_allow_http(true)
            .with_bucket_name(BUCKET)
            .with_access_key_id(USER)
            .with_secret_access_key(PASSWORD)
            .with_region(REGION)
            .build()?;
        Ok(Self {
            url: url.clone(),
            variables: variables(endpoint),
            reader: Reader {
                client: Arc::new(client),
                prefix: PREFIX.into(),
                url,
                variables: variables(&direct),
            },
            server,
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What a sidecar needs to reach it.
    pub(crate) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }

    pub(crate) fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Whether the fault could be injected.
    pub(crate) async fn begin(&mut self, fault: StoreFault) -> bool {
        let passage = match fault {
            StoreFault::Down => Passage::Closed,
            StoreFault::Slow(delay) => Passage::Slow(delay),
            StoreFault::Refusing(status) => Passage::Refusing(status),
            StoreFault::Cutting(after) => Passage::Cutting(after),
        };
        match &mut self.server {
            Server::Folder(None) => return false,
            Server::Folder(Some(volume)) => {
                let fault = match fault {
                    StoreFault::Down | StoreFault::Slow(_) => VolumeFault::ReadOnly,
                    StoreFault::Refusing(_) => VolumeFault::NoInodes,
                    StoreFault::Cutting(left) => VolumeFault::Full { left },
                };
                return volume.begin(fault).await;
            }
            Server::Minio { minio, .. } if fault == StoreFault::Down => minio.kill().await,
            Server::S3 { proxy, .. } | Server::Minio { proxy, .. } => proxy.set(passage),
        }
        true
    }

    pub(crate) async fn end_fault(&mut self) -> anyhow::Result<()> {
        match &mut self.server {
            Server::Folder(None) => {}
            Server::Folder(Some(volume)) => volume.end_fault()?,
            Server::S3 { proxy, .. } => proxy.set(Passage::Open),
            Server::Minio { proxy, minio } => {
                proxy.set(Passage::Open);
                if minio.child.is_none() {
                    minio.start().await?;
                }
            }
        }
        Ok(())
    }
}

fn variables(endpoint: &str) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", endpoint.to_owned()),
        ("AWS_ACCESS_KEY_ID", USER.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", PASSWORD.to_owned()),
        ("AWS_REGION", REGION.to_owned()),
    ]
}

#[derive(Debug)]
struct Minio {
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
    address: SocketAddr,
    group: i32,
    child: Option<Child>,
}

impl Minio {
    async fn start(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(["server", "--quiet", "--address"])
            .arg(self.address.to_string())
            .arg(&self.data)
            .env("MINIO_ROOT_USER", USER)
            .env("MINIO_ROOT_PASSWORD", PASSWORD)
            .env("MINIO_UPDATE", "off")
            .env("MINIO_CI_CD", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(self.group)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        until_reachable(self.address, PATIENCE).await
    }

    async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.unwrap_or_default();
        }
    }
}
