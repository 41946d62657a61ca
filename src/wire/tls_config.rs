//! What the TLS library works with, made from certificates and keys: one configuration for each Endpoint, and one
//! for all listeners.

use crate::logic::tls::{Certificate, KeyForm, ListenTls, PrivateKey, UpstreamTls};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use std::sync::{Arc, OnceLock};

/// The only protocol that is spoken inside (RFC 7301).
const ALPN: &[u8] = b"http/1.1";
/// Sessions per shard and Endpoint that can be resumed.
const SESSIONS: usize = 32;

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// Whom this machine trusts; where it says nothing, whom Mozilla trusts. Read from files once, so it is called
/// before any shard needs it.
pub fn machine_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        // Machines have certificates that are odd in some way: the others count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        Arc::new(roots)
    };
    ROOTS.get_or_init(read).clone()
}

/// The calling side's configuration towards a host, and the name that it must prove.
///
/// # Errors
/// What the library says of the certificates; the configuration's own checks find it before.
pub fn client(host: &str, tls: &UpstreamTls) -> Result<(Arc<ClientConfig>, ServerName<'static>), Error> {
    let roots = if tls.roots.is_empty() { machine_roots() } else { Arc::new(roots(&tls.roots)?) };
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder.with_client_auth_cert(chain(&identity.chain), private(&identity.key))?,
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    let name = host.trim_end_matches('.').to_owned();
    let name = ServerName::try_from(name).map_err(|_| Error::General("no name for TLS".into()))?;
    Ok((Arc::new(config), name))
}

/// What listeners keep over a reload: the keys of their tickets.
pub type Tickets = Arc<dyn ProducesTickets>;

/// Keys for tickets that all shards share; they rotate by themselves.
///
/// # Errors
/// If the machine has no randomness.
pub fn tickets() -> Result<Tickets, Error> {
    rustls::crypto::ring::Ticketer::new()
}

/// The serving side's configuration.
///
/// # Errors
/// What the library says of the certificates; the configuration's own checks find it before.
pub fn server(tls: &ListenTls, tickets: Tickets) -> Result<Arc<ServerConfig>, Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = if tls.client_roots.is_empty() {
        builder.with_no_client_auth()
    } else {
        let roots = Arc::new(roots(&tls.client_roots)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        builder.with_client_cert_verifier(verifier.map_err(|error| Error::General(error.to_string()))?)
    };
    let mut config = builder.with_single_cert(chain(&tls.identity.chain), private(&tls.identity.key))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Tickets carry the session, so that any shard can take it up again; nothing is remembered here.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = tickets;
    // One ticket is enough for a client that keeps its connection.
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

fn roots(certificates: &[Certificate]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    certificates.iter().try_for_each(|one| roots.add(CertificateDer::from(one.to_vec())))?;
    Ok(roots)
}

fn chain(certificates: &[Certificate]) -> Vec<CertificateDer<'static>> {
    certificates.iter().map(|one| CertificateDer::from(one.to_vec())).collect()
}

fn private(key: &PrivateKey) -> PrivateKeyDer<'static> {
    let der = key.der.to_vec();
    match key.form {
        KeyForm::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
        KeyForm::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
        KeyForm::Sec1 => PrivateKeyDer::Sec1(der.into()),
    }
}
