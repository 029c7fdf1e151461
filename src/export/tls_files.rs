//! Certificates and keys, read from the files that the settings name.
//!
//! Invariant: what is wrong with a file is reported with its path; what a file holds is never
//! shown.

use std::{
    fmt, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};

use super::settings::TlsFiles;

/// A system's whole list of authorities takes a fifth of this.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What is wrong with a file that TLS needs.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsFileError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is too large to be a certificate or a key", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} holds no certificate in PEM", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} holds no private key in PEM", path.display())]
    NoKey { path: PathBuf },
    #[error("{} holds a certificate that can't be used", path.display())]
    Certificate {
        path: PathBuf,
        source: rustls::Error,
    },
    #[error("{} and {} can't be used together", certificate.display(), key.display())]
    Identity {
        certificate: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

/// What the files hold, checked.
#[derive(Clone, Default, Eq, PartialEq)]
pub(super) struct TlsMaterial {
    /// Trusted in place of the system's; PEM.
    pub(super) ca: Option<Vec<u8>>,
    pub(super) identity: Option<Identity>,
}

/// Who this client is; PEM.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Identity {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TlsMaterial")
    }
}

impl TlsMaterial {
    pub(super) fn read(files: &TlsFiles) -> Result<Self, TlsFileError> {
        let ca = files.ca.as_deref().map(read_ca).transpose()?;
        let identity = files.identity.as_ref();
        let identity = identity
            .map(|files| read_identity(&files.certificate, &files.key))
            .transpose()?;
        Ok(Self { ca, identity })
    }
}

fn read_ca(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    let pem = read(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, &pem)? {
        roots
            .add(certificate)
            .map_err(|source| TlsFileError::Certificate {
                path: path.to_owned(),
                source,
            })?;
    }
    Ok(pem)
}

fn read_identity(certificate_path: &Path, key_path: &Path) -> Result<Identity, TlsFileError> {
    let (certificate, key) = (read(certificate_path)?, read(key_path)?);
    let chain = certificates(certificate_path, &certificate)?;
    let private = PrivateKeyDer::from_pem_slice(&key).map_err(|_| TlsFileError::NoKey {
        path: key_path.to_owned(),
    })?;
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|source| {
        TlsFileError::Identity {
            certificate: certificate_path.to_owned(),
            key: key_path.to_owned(),
            source,
        }
    })?;
    Ok(Identity { certificate, key })
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or_else(|| TlsFileError::NoCertificate {
            path: path.to_owned(),
        })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    let mut content = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content))
        .map_err(|source| TlsFileError::Read {
            path: path.to_owned(),
            source,
        })?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(TlsFileError::TooLarge {
            path: path.to_owned(),
        });
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::{super::settings::IdentityFiles, *};

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn file(&self, name: &str, content: &str) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, content).unwrap();
            path
        }
    }

    fn certificate() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn with_ca(ca: PathBuf) -> TlsFiles {
        TlsFiles {
            ca: Some(ca),
            identity: None,
        }
    }

    fn with_identity(certificate: &Path, key: &Path) -> TlsFiles {
        TlsFiles {
            ca: None,
            identity: Some(IdentityFiles {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            }),
        }
    }

    #[test]
    fn a_bad_file_is_named_and_not_shown() {
        use TlsFileError as E;
        let folder = Folder(tempfile::tempdir().unwrap());
        let (pem, key) = certificate();
        let good = folder.file("good.pem", &pem);
        let good_key = folder.file("good.key", &key);
        let other_key = folder.file("other.key", &certificate().1);
        let text = folder.file("text.pem", "secret");
        let odd = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n";
        let odd = folder.file("odd.pem", odd);
        let large = folder.file("large.pem", &"x".repeat(1 << 21));

        let failed = |files: &TlsFiles, name: &str| {
            let error = TlsMaterial::read(files).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(name), "{shown}");
            assert!(!shown.contains("secret"), "{shown}");
            error
        };
        let missing = folder.0.path().join("missing.pem");
        let error = failed(&with_ca(missing), "missing.pem");
        assert!(matches!(error, E::Read { .. }));
        let error = failed(&with_ca(text.clone()), "text.pem");
        assert!(matches!(error, E::NoCertificate { .. }));
        let error = failed(&with_ca(odd), "odd.pem");
        assert!(matches!(error, E::Certificate { .. }));
        let error = failed(&with_ca(large), "large.pem");
        assert!(matches!(error, E::TooLarge { .. }));
        let error = failed(&with_identity(&good, &text), "text.pem");
        assert!(matches!(error, E::NoKey { .. }));
        let error = failed(&with_identity(&good, &other_key), "other.key");
        assert!(matches!(error, E::Identity { .. }));
        TlsMaterial::read(&with_ca(good.clone())).unwrap();
        TlsMaterial::read(&with_identity(&good, &good_key)).unwrap();
    }
}
