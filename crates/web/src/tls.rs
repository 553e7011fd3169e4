//! Encrypted connections: a certificate of one's own, or one made here and known by its fingerprint.

use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{fmt, sync::Arc};
use tokio_rustls::TlsAcceptor;

/// What a server shows to whoever connects.
#[derive(Clone)]
pub struct TlsIdentity {
    config: Arc<ServerConfig>,
    fingerprint: String,
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// A certificate and its key, as PEM.
pub struct MadeCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its key: a secret.
    pub key: String,
}

impl fmt::Debug for MadeCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MadeCertificate").finish_non_exhaustive()
    }
}

impl MadeCertificate {
    /// One that is signed by itself, for a server that goes by `names` (addresses among them).
    ///
    /// # Errors
    /// When there are no random numbers, or a name is none.
    pub fn new(names: &[String]) -> Result<MadeCertificate, String> {
        let cannot = |e: rcgen::Error| format!("cannot make a certificate: {e}");
        let key = KeyPair::generate().map_err(cannot)?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(cannot)?;
        let name = names.first().map_or("quietcores", String::as_str);
        params.distinguished_name.push(DnType::CommonName, format!("quietcores on {name}"));
        // Whoever trusts it trusts its fingerprint: it does not end by itself. A box without a battery begins in the past.
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2049, 12, 31);
        let made = params.self_signed(&key).map_err(cannot)?;
        Ok(MadeCertificate { certificate: made.pem(), key: key.serialize_pem() })
    }
}

impl TlsIdentity {
    /// Of a certificate (with those that vouch for it behind it) and its key, as PEM.
    ///
    /// # Errors
    /// A sentence, where they are none or do not belong together.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<TlsIdentity, String> {
        let none = |e| format!("there is no certificate in this file (PEM): {e}");
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>().map_err(none)?;
        let first = chain.first().ok_or("there is no certificate in this file (PEM)")?;
        let digest = ring::digest::digest(&ring::digest::SHA256, first);
        let pairs: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| format!("there is no private key in this file (PEM): {e}"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let refused = |e: rustls::Error| format!("the certificate and its key are refused: {e}");
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(refused)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Bounded, whoever begins how many sessions.
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(64);
        Ok(TlsIdentity { config: Arc::new(config), fingerprint: pairs.join(":") })
    }

    /// SHA-256 of the certificate, as browsers show it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_certificate_is_taken_and_keeps_its_fingerprint() {
        let made = MadeCertificate::new(&["127.0.0.1".into(), "studio.local".into()]).unwrap();
        let one = TlsIdentity::new(made.certificate.as_bytes(), made.key.as_bytes()).unwrap();
        let again = TlsIdentity::new(made.certificate.as_bytes(), made.key.as_bytes()).unwrap();
        assert_eq!(one.fingerprint(), again.fingerprint());
        assert_eq!(one.fingerprint().len(), 32 * 3 - 1);
        let other = MadeCertificate::new(&["127.0.0.1".into()]).unwrap();
        assert!(TlsIdentity::new(made.certificate.as_bytes(), other.key.as_bytes()).is_err());
        for (certificate, key) in
            [("", made.key.as_str()), (made.certificate.as_str(), ""), ("x", "y")]
        {
            let why = TlsIdentity::new(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(why.contains("PEM"), "{why}");
        }
        assert!(!format!("{made:?}{one:?}").contains("PRIVATE"));
    }
}
