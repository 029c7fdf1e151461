//! An authority of our own, what it issues, and TLS in front of a server that has none.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// What a server shows, and whom it lets in.
pub(crate) struct ServerTls {
    pub(crate) shown: Issued,
    /// Issuer of the certificates that clients have to show.
    pub(crate) clients: Option<String>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, name: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        Issued {
            certificate: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// A server called localhost.
    pub(crate) fn server(&self) -> ServerTls {
        ServerTls {
            shown: self.issue("localhost"),
            clients: None,
        }
    }
}

/// Takes TLS off, and hands requests of HTTP/1 on, one a connection.
pub(crate) fn terminate_tls(tls: &ServerTls, inner: SocketAddr) -> SocketAddr {
    let config = Arc::new(server_config(tls));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            // A client that does not like what it sees goes away; that is what tests are about.
            thread::spawn(move || drop(hand_on(stream, config, inner)));
        }
    });
    address
}

fn hand_on(stream: TcpStream, config: Arc<ServerConfig>, inner: SocketAddr) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut outer = StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !is_complete(&request) {
        let count = outer.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(&buffer[..count]);
    }
    let head = request.windows(2).position(|pair| pair == b"\r\n").unwrap();
    request.splice(head..head, *b"\r\nconnection: close");
    let mut plain = TcpStream::connect(inner)?;
    plain.write_all(&request)?;
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer)?;
    outer.write_all(&answer)?;
    outer.conn.send_close_notify();
    outer.flush()
}

fn is_complete(request: &[u8]) -> bool {
    let Some(head) = request.windows(4).position(|end| end == b"\r\n\r\n") else {
        return false;
    };
    let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    request.len() >= head + 4 + length.map_or(0, |length| length.parse().unwrap())
}

fn server_config(tls: &ServerTls) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match &tls.clients {
        None => builder.with_no_client_auth(),
        Some(issuer) => {
            let mut roots = RootCertStore::empty();
            let issuer = CertificateDer::from_pem_slice(issuer.as_bytes()).unwrap();
            roots.add(issuer).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let certificate = CertificateDer::from_pem_slice(tls.shown.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(tls.shown.key.as_bytes()).unwrap();
    builder.with_single_cert(vec![certificate], key).unwrap()
}
