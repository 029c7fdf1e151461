//! `--store` → a client for it.
//!
//! Invariant: what a URL says wrong is said before anything starts; whether the store is there is
//! found out later, since receiving does not wait for it. A URL is shown without user info and
//! query, where credentials could stand.

use std::{env, fmt, fs, io, path::PathBuf, sync::Arc, time::Duration};

use object_store::{
    ObjectStore, RetryConfig, aws::AmazonS3Builder, azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder, local::LocalFileSystem, memory::InMemory, path::Path,
};
use url::Url;

/// Trying again is this program's business: it knows what else waits. This only bridges a
/// connection that broke.
const CLIENT_RETRIES: usize = 1;
const CLIENT_RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a URL can't be a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreUrlError {
    #[error(
        "{url:?} is no URL; write file:///path, s3://bucket/prefix, gs://…, az://… or memory:///"
    )]
    NoUrl {
        url: String,
        source: url::ParseError,
    },
    #[error("{scheme}:// is no store; use file://, s3://, gs://, az:// or memory:///")]
    UnknownScheme { scheme: String },
    #[error("{url} names no bucket; write {scheme}://bucket/prefix")]
    NoBucket { url: String, scheme: String },
    #[error("{url} is no absolute path; write file:///path")]
    NoPath { url: String },
    #[error("{url} has a prefix that can't be one")]
    Prefix {
        url: String,
        source: object_store::path::Error,
    },
}

/// Why a client can't be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error("cannot create {path:?}")]
    Create { path: PathBuf, source: io::Error },
    #[error("cannot use the store's settings")]
    Settings(#[from] object_store::Error),
}

/// Where objects go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreUrl {
    kind: StoreKind,
    bucket: String,
    /// Of the bucket, or the folder of a store on local disk.
    path: String,
    prefix: Path,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum StoreKind {
    File,
    Memory,
    S3,
    Google,
    Azure,
}

/// A client, and where in the store it is to work.
#[derive(Clone, Debug)]
pub(super) struct OpenStore {
    pub(super) client: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    /// A local file holds no Content-Type.
    pub(super) takes_attributes: bool,
}

impl StoreUrl {
    pub fn parse(text: &str) -> Result<Self, StoreUrlError> {
        let url = Url::parse(text).map_err(|source| StoreUrlError::NoUrl {
            url: without_credentials(text),
            source,
        })?;
        let kind = match url.scheme() {
            "file" => StoreKind::File,
            "memory" => StoreKind::Memory,
            "s3" | "s3a" => StoreKind::S3,
            "gs" => StoreKind::Google,
            "az" | "azure" | "abfs" | "abfss" => StoreKind::Azure,
            scheme => {
                return Err(StoreUrlError::UnknownScheme {
                    scheme: scheme.to_owned(),
                });
            }
        };
        let bucket = url.host_str().unwrap_or_default().to_owned();
        let shown = without_credentials(text);
        match kind {
            StoreKind::File if !bucket.is_empty() || url.path() == "/" => {
                return Err(StoreUrlError::NoPath { url: shown });
            }
            StoreKind::S3 | StoreKind::Google | StoreKind::Azure if bucket.is_empty() => {
                return Err(StoreUrlError::NoBucket {
                    url: shown,
                    scheme: url.scheme().to_owned(),
                });
            }
            _ => {}
        }
        let prefix = match kind {
            StoreKind::File => Path::default(),
            _ => Path::from_url_path(url.path()).map_err(|source| StoreUrlError::Prefix {
                url: shown.clone(),
                source,
            })?,
        };
        let path = match kind {
            StoreKind::File => match url.to_file_path() {
                Ok(path) => path.to_string_lossy().into_owned(),
                Err(()) => return Err(StoreUrlError::NoPath { url: shown }),
            },
            _ => prefix.to_string(),
        };
        Ok(Self {
            kind,
            bucket,
            path,
            prefix,
        })
    }

    /// A folder on local disk.
    pub fn folder(path: &std::path::Path) -> Self {
        Self {
            kind: StoreKind::File,
            bucket: String::new(),
            path: path.to_string_lossy().into_owned(),
            prefix: Path::default(),
        }
    }

    /// The folder, if it is one on local disk.
    pub fn local_folder(&self) -> Option<PathBuf> {
        (self.kind == StoreKind::File).then(|| PathBuf::from(&self.path))
    }

    /// Whether what is stored outlives the process.
    pub fn is_lasting(&self) -> bool {
        self.kind != StoreKind::Memory
    }

    pub(super) fn open(&self) -> Result<OpenStore, OpenStoreError> {
        let retry = RetryConfig {
            max_retries: CLIENT_RETRIES,
            retry_timeout: CLIENT_RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        let client: Arc<dyn ObjectStore> = match self.kind {
            StoreKind::File => {
                fs::create_dir_all(&self.path).map_err(|source| OpenStoreError::Create {
                    path: PathBuf::from(&self.path),
                    source,
                })?;
                let disk = LocalFileSystem::new_with_prefix(&self.path)?;
                // The spool lets go of what was stored: it has to be on the platter.
                Arc::new(disk.with_fsync(true).with_automatic_cleanup(true))
            }
            StoreKind::Memory => Arc::new(InMemory::new()),
            StoreKind::S3 => {
                let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
                let endpoint = endpoints.iter().find_map(|name| env::var(name).ok());
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.bucket);
                if let Some(endpoint) = &endpoint {
                    builder = builder.with_endpoint(endpoint);
                }
                Arc::new(
                    builder
                        .with_allow_http(is_plain(endpoint))
                        .with_retry(retry)
                        .build()?,
                )
            }
            StoreKind::Google => Arc::new(
                GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(&self.bucket)
                    .with_retry(retry)
                    .build()?,
            ),
            StoreKind::Azure => {
                let endpoints = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"];
                let endpoint = endpoints.iter().find_map(|name| env::var(name).ok());
                let mut builder =
                    MicrosoftAzureBuilder::from_env().with_container_name(&self.bucket);
                if endpoint.is_some() {
                    builder = builder.with_allow_http(is_plain(endpoint));
                }
                Arc::new(builder.with_retry(retry).build()?)
            }
        };
        Ok(OpenStore {
            client,
            prefix: self.prefix.clone(),
            takes_attributes: self.kind != StoreKind::File,
        })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, path, .. } = self;
        match self.kind {
            StoreKind::File => write!(out, "file://{path}"),
            StoreKind::Memory => write!(out, "memory:///{path}"),
            StoreKind::S3 => write!(out, "s3://{bucket}/{path}"),
            StoreKind::Google => write!(out, "gs://{bucket}/{path}"),
            StoreKind::Azure => write!(out, "az://{bucket}/{path}"),
        }
    }
}

/// Plain http is for endpoints that say so, whatever other settings say.
fn is_plain(endpoint: Option<String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_what_is_wrong_with_them() {
        use StoreUrlError as E;
        assert!(matches!(StoreUrl::parse("bucket"), Err(E::NoUrl { .. })));
        assert!(matches!(
            StoreUrl::parse("ftp://x/y"),
            Err(E::UnknownScheme { .. })
        ));
        assert!(matches!(
            StoreUrl::parse("s3:///prefix"),
            Err(E::NoBucket { .. })
        ));
        assert!(matches!(
            StoreUrl::parse("file://relative/path"),
            Err(E::NoPath { .. })
        ));
        assert!(matches!(StoreUrl::parse("file:///"), Err(E::NoPath { .. })));
    }

    #[test]
    fn urls_are_shown_without_credentials() {
        let shown = |url| StoreUrl::parse(url).unwrap().to_string();
        assert_eq!(
            shown("s3://key:secret@bucket/a/b/?token=x"),
            "s3://bucket/a/b"
        );
        assert_eq!(shown("file:///tmp/a%20b"), "file:///tmp/a b");
        assert_eq!(shown("memory:///"), "memory:///");
        let error = StoreUrl::parse("s3://key:secret@/prefix").unwrap_err();
        assert!(
            !format!("{error} {error:?}").contains("secret"),
            "{error:?}"
        );
    }
}
