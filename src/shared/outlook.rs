//! What one Call's decisions look at: Circuits, and what trackers know, for its method.

use crate::logic::circuit::Admission;
use crate::logic::facts::{Client, Clients};
use crate::logic::failover::World;
use crate::logic::methods::{Method, MethodId, Table};
use crate::logic::snapshot::{EndpointIx, Gateway};
use crate::logic::tiers::{Has, Seen};
use crate::logic::units::Nanos;
use crate::shared::snapshot_cell::Live;
use crate::shared::tip_board::EndpointTips;

/// The outlook of one Call.
#[derive(Clone, Copy)]
pub struct Outlook<'a> {
    live: &'a Live,
    table: &'a Table,
    method: MethodId,
    row: Option<&'a Method>,
    /// Its decoded name: looked at where no table has it.
    name: &'a str,
}

impl<'a> Outlook<'a> {
    /// The outlook of a Call of this method.
    pub fn new(live: &'a Live, gateway: &Gateway, method: MethodId, name: &'a str) -> Outlook<'a> {
        let table = gateway.table(&live.snapshot.methods);
        Outlook { live, table, method, row: table.get(method), name }
    }

    /// Whether an Endpoint has the method, by its software, its configuration, and what it says it offers.
    fn serves(&self, endpoint: EndpointIx, tips: &EndpointTips, client: Client) -> bool {
        let Some(capable) = self.live.snapshot.capable.get(usize::from(endpoint.0)) else { return true };
        let clients = self.row.map_or(Clients::default(), |row| row.clients);
        match tips.closed() {
            0 => capable.serves(self.method, clients, self.name, client),
            closed => {
                let namespace = self.table.namespace_of(self.method);
                capable.serves_but(self.method, clients, self.name, client, (namespace, closed))
            }
        }
    }
}

impl World for Outlook<'_> {
    #[inline]
    fn admission(&self, endpoint: EndpointIx, now_ns: Nanos) -> Admission {
        self.live.board.admission(endpoint, now_ns)
    }

    fn seen(&self, endpoint: EndpointIx, now_ns: Nanos) -> Seen {
        let Some(tips) = self.live.tips.endpoint(endpoint) else { return Seen::default() };
        let told = tips.told(now_ns);
        let has = match self.serves(endpoint, tips, told.client) {
            false => Has::No,
            true if self.row.is_some() && tips.said_no(self.method, now_ns) => Has::SaidNo,
            true => Has::Yes,
        };
        Seen { standing: told.standing, tip: told.tip, client: told.client, has, mismatched: told.mismatched }
    }

    #[inline]
    fn is_mismatched(&self, endpoint: EndpointIx) -> bool {
        self.live.tips.is_mismatched(endpoint)
    }
}
