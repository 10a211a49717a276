//! Whose certificates are trusted.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::Connector;

/// Whose certificates are trusted: those of one file, or those that the system trusts.
#[derive(Debug, Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// That of the certificates (PEM) in `ca_file`; without one that of the system, which may be none at all.
    ///
    /// # Errors
    /// The file can't be read, or has no certificate in it.
    pub fn read(ca_file: Option<&Path>) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        match ca_file {
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(path) => {
                let named = |error: &dyn std::fmt::Display| {
                    io::Error::other(format!("{}: {error}", path.display()))
                };
                for certificate in
                    CertificateDer::pem_file_iter(path).map_err(|error| named(&error))?
                {
                    let certificate = certificate.map_err(|error| named(&error))?;
                    roots.add(certificate).map_err(|error| named(&error))?;
                }
                if roots.is_empty() {
                    return Err(named(&"no certificate in it"));
                }
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        Ok(Self(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }

    /// Connections as `tcp` makes them, to `http` and `https`; each is there, or given up, within `patience`.
    #[must_use]
    pub fn connector(&self, mut tcp: HttpConnector, patience: Duration) -> Connector {
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(patience));
        let inner = HttpsConnectorBuilder::new()
            .with_tls_config(ClientConfig::clone(&self.0))
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Connector { inner, patience }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let refused = |path: &Path| Trust::read(Some(path)).unwrap_err().to_string();
        assert!(refused(&path).contains("ca.pem"));
        for text in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            std::fs::write(&path, text).unwrap();
            assert!(refused(&path).contains("ca.pem"), "{text}");
        }
        assert!(Trust::read(None).is_ok(), "whatever the system trusts");
    }
}
