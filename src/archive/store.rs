//! `--store` → a client for it.
//!
//! Invariant: what a URL says wrong is said before anything starts; whether the store is there is
//! found out later, since receiving does not wait for it. A URL is shown without user info and
//! query, where credentials could stand.

use std::{
    collections::BTreeMap, env, ffi::OsString, fmt, fs, path::PathBuf, str::FromStr, sync::Arc,
    time::Duration,
};

use object_store::{
    ObjectStore, RetryConfig, aws::AmazonS3Builder, azure::MicrosoftAzureBuilder,
    gcp::GoogleCloudStorageBuilder, local::LocalFileSystem, memory::InMemory, path::Path,
    signer::Signer,
};
use url::Url;

use crate::tls::install_provider;

/// Trying again is this program's business: it knows what else waits. This only bridges a
/// connection that broke.
const CLIENT_RETRIES: usize = 1;
const CLIENT_RETRY_TIMEOUT: Duration = Duration::from_secs(10);

const S3_ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
const AZURE_ENDPOINTS: [&str; 2] = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"];

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

/// Variables that set up a store's client. Their values are never shown.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Those of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(env::vars_os().filter_map(text).collect())
    }

    /// Where the store is, if not where its cloud is.
    pub fn endpoint(&self) -> Option<&str> {
        self.first_of(&S3_ENDPOINTS)
            .or_else(|| self.first_of(&AZURE_ENDPOINTS))
    }

    fn first_of(&self, names: &[&str]) -> Option<&str> {
        names
            .iter()
            .find_map(|name| self.0.get(*name))
            .map(String::as_str)
    }

    /// Hands those that begin with `prefix`, and that it knows, to a builder.
    fn apply<B, K: FromStr>(
        &self,
        prefix: &str,
        builder: B,
        with_config: impl Fn(B, K, String) -> B,
    ) -> B {
        let known = self.0.iter().filter_map(|(name, value)| {
            let key = name
                .starts_with(prefix)
                .then(|| name.to_ascii_lowercase().parse())?;
            Some((key.ok()?, value.clone()))
        });
        known.fold(builder, |builder, (key, value)| {
            with_config(builder, key, value)
        })
    }
}

impl<N: Into<String>> FromIterator<(N, N)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, N)>>(variables: I) -> Self {
        Self(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
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
    /// The same client, if it can sign addresses.
    pub(super) signer: Option<Arc<dyn Signer>>,
    pub(super) prefix: Path,
    /// Files on local disk; they hold no Content-Type.
    pub(super) is_local: bool,
}

impl OpenStore {
    /// How many objects are read at once: a store far away takes its time for each, whatever else it
    /// is asked; each file takes a thread.
    pub(super) fn at_once(&self) -> usize {
        if self.is_local { 4 } else { 32 }
    }
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

    pub(super) fn open(&self, variables: &Variables) -> Result<OpenStore, OpenStoreError> {
        let retry = RetryConfig {
            max_retries: CLIENT_RETRIES,
            retry_timeout: CLIENT_RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        install_provider();
        let (client, signer): (Arc<dyn ObjectStore>, _) = match self.kind {
            StoreKind::File => {
                if let Err(error) = fs::create_dir_all(&self.path) {
                    // Receiving goes on all the same: it may be put right while the spool holds.
                    tracing::error!(folder = self.path, %error, "cannot create the store's folder");
                    return self.open_later();
                }
                let disk = LocalFileSystem::new_with_prefix(&self.path)?;
                // The spool lets go of what was stored: it has to be on the platter.
                (Arc::new(disk.with_fsync(true)), None)
            }
            StoreKind::Memory => (Arc::new(InMemory::new()), None),
            StoreKind::S3 => {
                let endpoint = variables.first_of(&S3_ENDPOINTS);
                let builder = variables
                    .apply("AWS_", AmazonS3Builder::new(), AmazonS3Builder::with_config)
                    .with_bucket_name(&self.bucket)
                    .with_allow_http(is_plain(endpoint));
                signing(builder.with_retry(retry).build()?)
            }
            StoreKind::Google => {
                let mut builder = GoogleCloudStorageBuilder::new();
                if let Some(path) = variables.first_of(&["SERVICE_ACCOUNT"]) {
                    builder = builder.with_service_account_path(path);
                }
                let builder = variables
                    .apply("GOOGLE_", builder, GoogleCloudStorageBuilder::with_config)
                    .with_bucket_name(&self.bucket);
                signing(builder.with_retry(retry).build()?)
            }
            StoreKind::Azure => {
                let endpoint = variables.first_of(&AZURE_ENDPOINTS);
                let mut builder = variables
                    .apply(
                        "AZURE_",
                        MicrosoftAzureBuilder::new(),
                        MicrosoftAzureBuilder::with_config,
                    )
                    .with_container_name(&self.bucket);
                if let Some(msi) = variables.first_of(&["IDENTITY_ENDPOINT"]) {
                    builder = builder.with_msi_endpoint(msi);
                }
                if endpoint.is_some() {
                    builder = builder.with_allow_http(is_plain(endpoint));
                }
                signing(builder.with_retry(retry).build()?)
            }
        };
        Ok(OpenStore {
            client,
            signer,
            prefix: self.prefix.clone(),
            is_local: self.kind == StoreKind::File,
        })
    }
}

impl StoreUrl {
    /// A folder on local disk that can't be there yet; every write tries to make it.
    fn open_later(&self) -> Result<OpenStore, OpenStoreError> {
        let folder = std::path::absolute(&self.path).unwrap_or_else(|_| PathBuf::from(&self.path));
        let prefix = Path::from_absolute_path(folder).map_err(object_store::Error::from)?;
        let client = Arc::new(LocalFileSystem::new().with_fsync(true));
        Ok(OpenStore {
            client,
            signer: None,
            prefix,
            is_local: true,
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

/// A client that also signs.
fn signing<S: ObjectStore + Signer>(store: S) -> (Arc<dyn ObjectStore>, Option<Arc<dyn Signer>>) {
    let store = Arc::new(store);
    let signer: Arc<dyn Signer> = Arc::<S>::clone(&store);
    (store, Some(signer))
}

/// Plain http is for endpoints that say so, whatever other settings say.
fn is_plain(endpoint: Option<&str>) -> bool {
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
