//! `[[method]]`: how a configuration adds a row to the tables, or tightens one. Never loosens: what a method does is
//! no matter of taste, and a wrong word here would let a Call be replayed that must not be.

use super::call::Class;
use super::capability::namespace;
use super::facts::{Clients, Reads, Shows};
use super::methods::{Method, Methods, Served, Table, Verbs};
use super::snapshot::{Protocol, Tier};

/// Most methods of one configuration.
pub const OWN_METHODS_MAX: usize = 1_000;

/// One method as a configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnMethod {
    /// Which tables it is for.
    pub protocol: Protocol,
    /// Its exact name.
    pub name: Box<str>,
    /// What a repetition would mean; a new row needs it.
    pub class: Option<Class>,
    /// The lowest tier that serves it.
    pub tier: Option<Tier>,
    /// What an Endpoint must be configured to have.
    pub capability: Option<Box<str>>,
}

/// Why a table does not take a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is in no table, and has no class.
    NoClass,
    /// It is in a table with this class, and the new one is looser.
    Looser(Class),
    /// This name is in a table, and some nodes take one for the other.
    Spelled(Box<str>),
    /// It is one of those that this template stands for.
    OneOf(Box<str>),
    /// A template may not be added.
    Template,
}

impl Methods {
    /// Adds a method to the tables of its protocol, or tightens it where it is a row; all of them or none.
    pub fn extend(&mut self, own: &OwnMethod) -> Result<(), Refusal> {
        let mut tables = self.of_protocol(own.protocol);
        tables.iter().try_for_each(|table| judge(table, own))?;
        let is_row = |table: &&mut Table| table.by_name.contains_key(&own.name);
        if own.class.is_none() && !tables.iter().any(is_row) {
            return Err(Refusal::NoClass);
        }
        tables.iter_mut().for_each(|table| apply(table, own));
        Ok(())
    }
}

fn judge(table: &Table, own: &OwnMethod) -> Result<(), Refusal> {
    let id = table.find(&own.name);
    match table.get(id) {
        Some(row) if row.name == own.name => match own.class {
            Some(class) if strictness(class) < strictness(row.class) => Err(Refusal::Looser(row.class)),
            _ => Ok(()),
        },
        Some(row) => Err(Refusal::OneOf(row.name.clone())),
        None => {
            if own.name.contains(['{', '}']) {
                return Err(Refusal::Template);
            }
            let spelled = table.rows.iter().find(|row| row.name.eq_ignore_ascii_case(&own.name));
            spelled.map_or(Ok(()), |row| Err(Refusal::Spelled(row.name.clone())))
        }
    }
}

fn apply(table: &mut Table, own: &OwnMethod) {
    if let Some(at) = table.by_name.get(&own.name) {
        let Some(row) = table.rows.get_mut(usize::from(*at)) else { return };
        row.class = own.class.unwrap_or(row.class);
        row.tier = own.tier.map_or(row.tier, |tier| tier.max(row.tier));
        row.needs = own.capability.clone().or(row.needs.take());
        return;
    }
    let (Some(class), Ok(at)) = (own.class, u16::try_from(table.rows.len())) else { return };
    let clients = match own.capability {
        Some(_) => Clients::EVERY,
        None => table.namespaces.clients(namespace(&own.name)),
    };
    let post = Verbs { get: Served::No, post: Served::Yes };
    let any = Verbs { get: Served::Yes, ..post };
    let row = Method {
        name: own.name.clone(),
        class,
        capability: own.capability.clone().unwrap_or_else(|| "own".into()),
        // As of a path that no table knows.
        verbs: if own.protocol == Protocol::TronHttp { any } else { post },
        clients,
        reads: Reads::Nothing,
        shows: Shows::Nothing,
        tier: own.tier.unwrap_or(Tier::Minimal),
        needs: own.capability.clone(),
    };
    // Without a capability it brings its namespace no client; with one it must not, for other methods of it.
    table.namespaces.add(&Method { clients: Clients::default(), ..row.clone() });
    table.by_name.insert(row.name.clone(), at);
    table.rows.push(row);
}

/// How much a class forbids.
const fn strictness(class: Class) -> u8 {
    match class {
        Class::Stateless => 0,
        // Also run to its end when the caller has gone, which a local one is not: only an effect is stricter.
        Class::SignedBroadcast => 2,
        Class::Local => 1,
        Class::Effect | Class::Unrecognised => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::super::methods::{Family, MethodId};
    use super::*;

    fn own(name: &str, class: Option<Class>) -> OwnMethod {
        let protocol = if name.starts_with('/') { Protocol::TronHttp } else { Protocol::JsonRpc };
        OwnMethod { protocol, name: name.into(), class, tier: None, capability: None }
    }

    const FAMILIES: [Family; 3] = [Family::Evm, Family::Tron, Family::Solana];

    #[test]
    fn a_new_method_is_a_row_of_each_table_of_its_protocol() {
        let mut methods = Methods::embedded();
        let before = FAMILIES.map(|family| methods.table(Protocol::JsonRpc, family).rows().len());
        let described = OwnMethod {
            tier: Some(Tier::Archive),
            capability: Some("acme".into()),
            ..own("acme_getThing", Some(Class::Stateless))
        };
        assert_eq!(methods.extend(&described), Ok(()));
        for (family, before) in FAMILIES.iter().zip(before) {
            let table = methods.table(Protocol::JsonRpc, *family);
            let id = table.find("acme_getThing");
            assert_eq!((usize::from(id.0), table.other()), (before, MethodId(before as u16 + 1)));
            let row = table.get(id).unwrap();
            assert_eq!((row.class, row.tier, row.needs.as_deref()), (Class::Stateless, Tier::Archive, Some("acme")));
            assert_eq!(table.label(table.other()), "other");
            assert!(!table.has_the_rows_of(Methods::embedded().table(Protocol::JsonRpc, *family)));
        }
        let http = methods.table(Protocol::TronHttp, Family::Tron);
        assert_eq!(http.find("acme_getThing"), http.other());
        assert!(http.has_the_rows_of(Methods::embedded().table(Protocol::TronHttp, Family::Tron)));
        assert_eq!(methods.extend(&own("/wallet/acme", Some(Class::Local))), Ok(()));
        let http = methods.table(Protocol::TronHttp, Family::Tron);
        let row = http.get(http.find("/wallet/acme")).unwrap();
        assert_eq!((row.class, row.verbs.get, row.verbs.post), (Class::Local, Served::Yes, Served::Yes));
    }

    #[test]
    fn a_known_method_gets_stricter_and_never_looser() {
        use Class::{Effect, Local, Stateless};
        for (name, class, expected) in [
            ("eth_call", Local, Ok(())),
            ("eth_call", Effect, Ok(())),
            ("eth_call", Stateless, Ok(())),
            ("eth_newFilter", Local, Ok(())),
            ("eth_newFilter", Effect, Ok(())),
            ("eth_newFilter", Stateless, Err(Refusal::Looser(Local))),
            ("eth_sendTransaction", Effect, Ok(())),
            ("eth_sendTransaction", Local, Err(Refusal::Looser(Effect))),
            ("eth_sendRawTransaction", Effect, Ok(())),
            ("eth_sendRawTransaction", Stateless, Err(Refusal::Looser(Class::SignedBroadcast))),
            ("eth_sendRawTransaction", Local, Err(Refusal::Looser(Class::SignedBroadcast))),
            // TRON only reads it, others have no such list.
            ("eth_accounts", Stateless, Err(Refusal::Looser(Local))),
            ("/wallet/broadcasttransaction", Effect, Ok(())),
        ] {
            let mut methods = Methods::embedded();
            let described = own(name, Some(class));
            assert_eq!(methods.extend(&described), expected, "{name} {class:?}");
            let table = methods.table(described.protocol, Family::Evm);
            let fresh = Methods::embedded();
            let known = fresh.table(described.protocol, Family::Evm);
            let kept = if expected.is_ok() { class } else { known.class(known.find(name)) };
            assert_eq!(table.class(table.find(name)), kept, "{name}");
            assert!(table.has_the_rows_of(known), "{name}");
        }
    }

    #[test]
    fn what_is_not_said_about_a_known_method_stays() {
        let mut methods = Methods::embedded();
        let described = OwnMethod { tier: Some(Tier::Full), capability: Some("x".into()), ..own("eth_getLogs", None) };
        assert_eq!(methods.extend(&described), Ok(()));
        let table = methods.table(Protocol::JsonRpc, Family::Evm);
        let row = table.get(table.find("eth_getLogs")).unwrap();
        assert_eq!((row.class, row.tier, row.reads), (Class::Stateless, Tier::Full, Reads::Logs(0)));
        let solana = methods.table(Protocol::JsonRpc, Family::Solana);
        assert_eq!(solana.find("eth_getLogs"), solana.other());
    }

    #[test]
    fn a_name_that_a_node_could_take_for_a_row_is_none_of_ones_own() {
        let mut methods = Methods::embedded();
        let class = Some(Class::Stateless);
        for (name, refusal) in [
            ("acme_getThing", Refusal::NoClass),
            ("Debug_setHead", Refusal::Spelled("debug_setHead".into())),
            ("getslot", Refusal::Spelled("getSlot".into())),
            ("/v1/accounts/TXYZ", Refusal::OneOf("/v1/accounts/{address}".into())),
            ("/v1/acme/{x}", Refusal::Template),
        ] {
            let class = if refusal == Refusal::NoClass { None } else { class };
            assert_eq!(methods.extend(&own(name, class)), Err(refusal), "{name}");
        }
        for (protocol, family) in FAMILIES.map(|family| (Protocol::JsonRpc, family)) {
            assert!(methods.table(protocol, family).has_the_rows_of(Methods::embedded().table(protocol, family)));
        }
        assert_eq!(methods.extend(&own("/v1/accounts/{address}", Some(Class::Effect))), Ok(()));
        let table = methods.table(Protocol::TronHttp, Family::Tron);
        assert_eq!(table.class(table.find("/v1/accounts/TXYZ")), Class::Effect);
    }
}
