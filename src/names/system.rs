//! What the system says about names: the hosts file, `resolv.conf`, and the DNS servers that are asked.

use crate::logic::names::{Family, TTL_MAX_NS, candidates, is_localhost, is_usable};
use crate::logic::units::{Nanos, SECOND};
use futures_util::future::{Either, select};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, Resolver, TokioResolver, system_conf};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// One question to one server takes no longer.
const QUESTION_NS: Nanos = 2 * SECOND;
/// Once one family of addresses is known, the other one is waited for so long: many networks lose its questions.
const OTHER_FAMILY_NS: Nanos = SECOND;
const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// What the system says about names: its files, and the servers to ask.
pub(super) struct System {
    /// The servers that the configuration names.
    pub(super) resolvers: Vec<SocketAddr>,
    /// Who asks; `None` = nobody can be asked.
    pub(super) resolver: Option<Arc<Questions>>,
    hosts: Hosts,
    stamps: [Stamp; 2],
    /// What an older one brings does not count.
    pub(super) generation: u64,
}

/// By which a file is known to be another one: changed when, how large, which.
type Stamp = Option<(i64, i64, u64, u64)>;

fn stamp(path: &str) -> Stamp {
    std::fs::metadata(path).ok().map(|file| (file.mtime(), file.mtime_nsec(), file.size(), file.ino()))
}

impl System {
    /// Reads it all; an empty list of servers = those of `resolv.conf`.
    pub(super) fn read(resolvers: &[SocketAddr], generation: u64) -> System {
        // Before reading: what changes meanwhile is read once more.
        let stamps = [stamp(HOSTS), stamp(RESOLV_CONF)];
        let resolver = Questions::to(resolvers);
        if let Err(error) = &resolver {
            tracing::error!(%error, "no DNS server can be asked");
        }
        System {
            resolvers: resolvers.to_vec(),
            resolver: resolver.ok().map(Arc::new),
            hosts: Hosts::from_system().unwrap_or_default(),
            stamps,
            generation,
        }
    }

    /// Whether a file has changed since.
    pub(super) fn is_old(&self) -> bool {
        self.stamps != [stamp(HOSTS), stamp(RESOLV_CONF)]
    }

    /// What needs no DNS: names in the hosts file, and this machine. They stay until the file changes.
    pub(super) fn at_home(&self, host: &str) -> Option<(Family, Family)> {
        let name = Name::from_ascii(host).ok()?;
        let family = |kind: RecordType| {
            let found = self.hosts.lookup_static_host(&Query::query(name.clone(), kind))?;
            let addresses = found.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
            Some(Family::Known(addresses, TTL_MAX_NS))
        };
        match (family(RecordType::AAAA), family(RecordType::A)) {
            (None, None) if is_localhost(host) => {
                let (v6, v4) = (IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from(Ipv4Addr::LOCALHOST));
                Some((Family::Known(vec![v6], TTL_MAX_NS), Family::Known(vec![v4], TTL_MAX_NS)))
            }
            (None, None) => None,
            (v6, v4) => Some((v6.unwrap_or(Family::Nothing), v4.unwrap_or(Family::Nothing))),
        }
    }
}

/// Asks DNS servers, with the system's settings.
pub(super) struct Questions {
    resolver: TokioResolver,
    search: Vec<String>,
    ndots: usize,
}

impl Questions {
    /// To these servers, or else to those of the system.
    fn to(servers: &[SocketAddr]) -> Result<Questions, NetError> {
        // Without a usable file a server on this machine is asked, as libc does.
        let here = || ResolverConfig::from_name_servers(vec![server(([127, 0, 0, 1], 53).into())]);
        let system = system_conf::read_system_conf();
        let (mut config, mut options) = system.unwrap_or_else(|_| (here(), ResolverOpts::default()));
        if !servers.is_empty() {
            config.name_servers = servers.iter().copied().map(server).collect();
        }
        let (search, ndots) = (config.search.iter().map(Name::to_ascii).collect(), options.ndots);
        // The TTL is looked after here, and an answer of the cache would be one that is over.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.timeout = options.timeout.min(Duration::from_nanos(QUESTION_NS));
        let builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        Ok(Questions { resolver: builder.with_options(options).build()?, search, ndots })
    }

    /// The addresses of a host: of the first candidate that has any. The families of one host are never taken from
    /// two names. Where nobody can say whether the host exists as it is written, no other one takes its place.
    pub(super) async fn addresses(&self, host: &str) -> (Family, Family) {
        let mut failed = false;
        for (name, as_written) in candidates(host, self.ndots, &self.search) {
            // Too long with its domain: no such name.
            let Ok(name) = Name::from_ascii(&name) else { continue };
            let (v6, v4) = both(&self.resolver, name).await;
            match (&v6, &v4) {
                (Family::Known(..), _) | (_, Family::Known(..)) => return (v6, v4),
                (Family::Failed, _) | (_, Family::Failed) => failed = true,
                (Family::Nothing, Family::Nothing) => {}
            }
            if failed && as_written {
                break;
            }
        }
        if failed { (Family::Failed, Family::Failed) } else { (Family::Nothing, Family::Nothing) }
    }
}

fn server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// Asks for both families at once.
async fn both(resolver: &TokioResolver, name: Name) -> (Family, Family) {
    let (v6, v4) = (one(resolver, name.clone(), RecordType::AAAA), one(resolver, name, RecordType::A));
    match select(pin!(v6), pin!(v4)).await {
        Either::Left((v6, v4)) => {
            let v4 = other(&v6, v4).await;
            (v6, v4)
        }
        Either::Right((v4, v6)) => {
            let v6 = other(&v4, v6).await;
            (v6, v4)
        }
    }
}

/// The second family, for which a first one that is known does not wait long.
async fn other(first: &Family, second: impl Future<Output = Family>) -> Family {
    match first {
        Family::Known(..) => timeout(Duration::from_nanos(OTHER_FAMILY_NS), second).await.unwrap_or(Family::Failed),
        _ => second.await,
    }
}

async fn one(resolver: &TokioResolver, name: Name, kind: RecordType) -> Family {
    match resolver.lookup(name, kind).await {
        Ok(found) => {
            let addresses = found.answers().iter().filter_map(|record| record.data.ip_addr());
            let addresses: Vec<IpAddr> = addresses.filter(is_usable).collect();
            // The names on the way to the addresses have a TTL too.
            let ttl_s = found.answers().iter().map(|record| record.ttl).min().unwrap_or(0);
            if addresses.is_empty() {
                return Family::Nothing;
            }
            Family::Known(addresses, u64::from(ttl_s) * SECOND)
        }
        Err(error) if error.is_no_records_found() => Family::Nothing,
        Err(_) => Family::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(hosts_file: &str) -> System {
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf(hosts_file.as_bytes()).unwrap();
        System { resolvers: Vec::new(), resolver: None, hosts, stamps: [None; 2], generation: 0 }
    }

    fn known(addresses: &[&str]) -> Family {
        Family::Known(addresses.iter().map(|text| text.parse().unwrap()).collect(), TTL_MAX_NS)
    }

    #[test]
    fn the_hosts_file_comes_first_and_says_all_that_there_is() {
        let system = system("10.0.0.1 Node.Test node # one\n10.0.0.2 node.test\n::7 six.test\n127.0.0.9 localhost\n");
        assert_eq!(system.at_home("node.test"), Some((Family::Nothing, known(&["10.0.0.1", "10.0.0.2"]))));
        assert_eq!(system.at_home("node.test."), system.at_home("node.test"));
        assert_eq!(system.at_home("six.test"), Some((known(&["::7"]), Family::Nothing)));
        assert_eq!(system.at_home("localhost"), Some((Family::Nothing, known(&["127.0.0.9"]))));
        assert_eq!(system.at_home("a.localhost"), Some((known(&["::1"]), known(&["127.0.0.1"]))));
        assert_eq!(system.at_home("other.test"), None);
    }

    #[test]
    fn a_file_that_is_written_again_or_gone_is_another_one() {
        let path = std::env::temp_dir().join(format!("ringway-names-{}", std::process::id()));
        let path = path.to_str().unwrap();
        assert_eq!(stamp(path), None);
        std::fs::write(path, "one").unwrap();
        let first = stamp(path);
        std::fs::write(path, "three").unwrap();
        let second = stamp(path);
        std::fs::remove_file(path).unwrap();
        assert!(first.is_some() && second.is_some() && first != second);
        assert_eq!(stamp(path), None);
    }

    #[test]
    fn servers_are_asked_at_their_port_over_udp_and_tcp() {
        let server = server("[::1]:5353".parse().unwrap());
        assert_eq!(server.ip, IpAddr::from(Ipv6Addr::LOCALHOST));
        assert_eq!(server.connections.iter().map(|way| way.port).collect::<Vec<_>>(), [5353, 5353]);
    }
}
