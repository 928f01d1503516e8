//! Whom we trust: the roots that Mozilla ships, and the operator's own.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::EgressError;

pub(super) fn client_config(extra_ca_file: Option<&Path>) -> Result<ClientConfig, EgressError> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = extra_ca_file {
        add_file(&mut roots, path)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(EgressError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), EgressError> {
    let bad = |reason: String| EgressError::CaFile { path: path.to_owned(), reason };
    let before = roots.len();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))? {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    if roots.len() == before {
        return Err(bad("it holds no certificate".into()));
    }
    Ok(())
}
