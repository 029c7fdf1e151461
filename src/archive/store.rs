//! `--store` → a client for it.
//!
//! Invariant: what a URL says wrong is said before anything starts; whether the store is there is
//! found out later, since receiving does not wait for it. A URL is shown without user info and
//! query, where credentials could stand.

use std::{
    fmt, fs,
    path::{self, PathBuf},
    sync::Arc,
    time::Duration,
};

use object_store::{
    ObjectStore, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey},
    memory::InMemory,
    path::Path,
    signer::Signer,
};
use url::Url;

use super::{
    StoreIdentity,
    local::LocalStore,
    variables::{Variables, without_credentials},
};
use crate::tls::install_provider;

/// Trying again is this program's business: it knows what else waits. This only bridges a
/// connection that broke.
const CLIENT_RETRIES: usize = 1;
const CLIENT_RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a URL can't be a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreUrlError {
    #[error(
        "{url:?} is not a URL; use file:///path, s3://bucket/prefix, gs://…, az://… or memory:///"
    )]
    NoUrl {
        url: String,
        source: url::ParseError,
    },
    #[error("{scheme}:// is not a store; use file://, s3://, gs://, az:// or memory:///")]
    UnknownScheme { scheme: String },
    #[error("{url} names no bucket; write {scheme}://bucket/prefix")]
    NoBucket { url: String, scheme: String },
    #[error("{url:?} can't be the name of a {scheme}:// bucket: {rule}")]
    Bucket {
        url: String,
        scheme: String,
        rule: &'static str,
    },
    #[error("{url} is not an absolute path; use file:///path")]
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
    /// Each names the variable and says what to do.
    #[error("{}", .0.join("\n       "))]
    Settings(Vec<String>),
    #[error("cannot open the store's folder")]
    Folder(#[source] object_store::Error),
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

impl StoreKind {
    /// The rule that a bucket's name breaks. Where the clouds differ from stores that speak their
    /// protocol, the wider rule counts.
    fn bucket_mistake(self, bucket: &str) -> Option<&'static str> {
        let within = |few: usize, many: usize| (few..=many).contains(&bucket.len());
        let made_of = |others: &[u8]| {
            let mut bytes = bucket.bytes();
            bytes.all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
        };
        let is_lower = || !bucket.bytes().any(|byte| byte.is_ascii_uppercase());
        match self {
            Self::File | Self::Memory => None,
            Self::S3 | Self::Google => (!within(3, 255) || !made_of(b"-_."))
                .then_some("use 3 or more letters, digits, dots, dashes and underscores"),
            Self::Azure => (!within(3, 63) || !made_of(b"-$") || !is_lower()).then_some(
                "use the name of a container (3 to 63 lower-case letters, digits and dashes), and \
                 name the account in AZURE_STORAGE_ACCOUNT_NAME",
            ),
        }
    }
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
    /// The folder that these are in.
    pub(super) folder: Option<PathBuf>,
}

impl OpenStore {
    pub(super) fn over(client: Arc<dyn ObjectStore>) -> Self {
        Self {
            client,
            signer: None,
            prefix: Path::default(),
            is_local: false,
            folder: None,
        }
    }

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
        if let Some(rule) = kind.bucket_mistake(&bucket) {
            return Err(StoreUrlError::Bucket {
                url: bucket,
                scheme: url.scheme().to_owned(),
                rule,
            });
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

    /// What tells this store from every other, where its client is set up by these variables.
    pub fn identity(&self, variables: &Variables) -> StoreIdentity {
        let (endpoint, account) = match self.kind {
            StoreKind::File => {
                // However it is written: a relative path, a slash at the end.
                let path = path::absolute(&self.path).unwrap_or_else(|_| self.path.clone().into());
                let path: PathBuf = path.components().collect();
                return StoreIdentity::new(Self::folder(&path).to_string(), None, None);
            }
            StoreKind::Memory | StoreKind::Google => (None, None),
            StoreKind::S3 => (variables.s3_endpoint(), None),
            StoreKind::Azure => (variables.azure_endpoint(), variables.azure_account()),
        };
        StoreIdentity::new(self.to_string(), endpoint, account)
    }

    /// Whether what is stored outlives the process.
    pub fn is_lasting(&self) -> bool {
        self.kind != StoreKind::Memory
    }

    /// Says everything that is known to be wrong with the settings of the store's client, without
    /// asking anything of the store.
    pub fn check(&self, variables: &Variables) -> Result<(), Vec<String>> {
        install_provider();
        match self.kind {
            StoreKind::File | StoreKind::Memory => Ok(()),
            StoreKind::S3 => self.s3(variables).map(drop),
            StoreKind::Google => self.google(variables).map(drop),
            StoreKind::Azure => self.azure(variables).map(drop),
        }
    }

    pub(super) fn open(&self, variables: &Variables) -> Result<OpenStore, OpenStoreError> {
        install_provider();
        let wrong = OpenStoreError::Settings;
        let (client, signer): (Arc<dyn ObjectStore>, _) = match self.kind {
            StoreKind::File => {
                let folder = self.path.as_ref();
                let disk = match fs::create_dir_all(folder) {
                    Ok(()) => LocalStore::open(folder),
                    Err(error) => {
                        // Receiving goes on: it may be put right while the spool holds.
                        tracing::error!(
                            folder = self.path, %error,
                            "cannot create the store's folder"
                        );
                        LocalStore::open_later(folder)
                    }
                };
                (Arc::new(disk.map_err(OpenStoreError::Folder)?), None)
            }
            StoreKind::Memory => (Arc::new(InMemory::new()), None),
            StoreKind::S3 => signing(self.s3(variables).map_err(wrong)?),
            StoreKind::Google => signing(self.google(variables).map_err(wrong)?),
            StoreKind::Azure => signing(self.azure(variables).map_err(wrong)?),
        };
        Ok(OpenStore {
            client,
            signer,
            prefix: self.prefix.clone(),
            is_local: self.kind == StoreKind::File,
            folder: self.local_folder(),
        })
    }

    fn s3(&self, variables: &Variables) -> Result<AmazonS3, Vec<String>> {
        variables.make::<AmazonS3ConfigKey, _>(|variables| {
            variables
                .apply("AWS_", AmazonS3Builder::new(), AmazonS3Builder::with_config)
                .with_bucket_name(&self.bucket)
                .with_allow_http(is_plain(variables.s3_endpoint()))
                .with_retry(retries())
                .build()
        })
    }

    fn google(&self, variables: &Variables) -> Result<GoogleCloudStorage, Vec<String>> {
        variables.make::<GoogleConfigKey, _>(|variables| {
            let mut builder = GoogleCloudStorageBuilder::new();
            if let Some(path) = variables.get("SERVICE_ACCOUNT") {
                builder = builder.with_service_account_path(path);
            }
            variables
                .apply("GOOGLE_", builder, GoogleCloudStorageBuilder::with_config)
                .with_bucket_name(&self.bucket)
                .with_retry(retries())
                .build()
        })
    }

    fn azure(&self, variables: &Variables) -> Result<MicrosoftAzure, Vec<String>> {
        variables.make::<AzureConfigKey, _>(|variables| {
            let mut builder = variables
                .apply(
                    "AZURE_",
                    MicrosoftAzureBuilder::new(),
                    MicrosoftAzureBuilder::with_config,
                )
                .with_container_name(&self.bucket);
            if let Some(msi) = variables.get("IDENTITY_ENDPOINT") {
                builder = builder.with_msi_endpoint(msi);
            }
            let endpoint = variables.azure_endpoint();
            if endpoint.is_some() {
                builder = builder.with_allow_http(is_plain(endpoint));
            }
            builder.with_retry(retries()).build()
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

fn retries() -> RetryConfig {
    RetryConfig {
        max_retries: CLIENT_RETRIES,
        retry_timeout: CLIENT_RETRY_TIMEOUT,
        ..RetryConfig::default()
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
        for bucket in [
            "s3://b",
            "s3://a:80",
            "gs://b%C3%BCcket/x",
            "az://Container",
            "az://my_container",
            "abfss://container@account.dfs.core.windows.net/x",
        ] {
            let parsed = StoreUrl::parse(bucket);
            assert!(
                matches!(parsed, Err(E::Bucket { .. })),
                "{bucket}: {parsed:?}"
            );
        }
        for bucket in [
            "s3://My_old.bucket",
            "gs://a.b-c",
            "az://$web/x",
            "az://con-1",
        ] {
            assert!(StoreUrl::parse(bucket).is_ok(), "{bucket}");
        }
    }

    #[test]
    fn an_identity_tells_stores_apart_whose_urls_are_equal() {
        let identity = |url, variables: &[(&'static str, &'static str)]| {
            let variables = variables.iter().copied().collect();
            StoreUrl::parse(url).unwrap().identity(&variables)
        };
        let at = |endpoint| identity("s3://bucket/a", &[("AWS_ENDPOINT_URL", endpoint)]);
        let cloud = identity("s3://bucket/a/", &[("AZURE_STORAGE_ACCOUNT_NAME", "mine")]);
        assert_eq!(cloud, identity("s3://bucket/a", &[]));
        assert_ne!(cloud, identity("s3://bucket/b", &[]));
        assert_ne!(cloud, at("http://minio:9000"));
        assert_ne!(at("http://minio:9001"), at("http://minio:9000"));
        assert_eq!(at("http://me:secret@minio:9000/"), at("http://minio:9000"));
        let of = |account| {
            identity(
                "az://container/a",
                &[("AZURE_STORAGE_ACCOUNT_NAME", account)],
            )
        };
        assert_ne!(of("mine"), of("theirs"));
        assert_eq!(of("mine"), of("mine"));
        let folder = identity("file:///a/b/", &[("AWS_ENDPOINT_URL", "http://minio:9000")]);
        assert_eq!(folder, identity("file:///a/b", &[]));
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
