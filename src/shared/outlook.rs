//! What one Call's decisions look at: Circuits, and what trackers know, for its method.

use crate::logic::block::Asked;
use crate::logic::circuit::Admission;
use crate::logic::facts::{Client, Clients, Reads};
use crate::logic::failover::World;
use crate::logic::methods::{Method, MethodId, Table};
use crate::logic::snapshot::{EndpointIx, Gateway, Network, Route};
use crate::logic::tiers::{Has, Requirement, Seen};
use crate::logic::units::Nanos;
use crate::shared::snapshot_cell::Live;
use crate::shared::tip_board::{EndpointTips, NetworkTips, TipBoard};

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

    /// What is known of the method; `None` = no table has it.
    pub fn row(&self) -> Option<&'a Method> {
        self.row
    }

    /// Its id, if a table has it.
    pub fn listed(&self) -> Option<MethodId> {
        self.row.map(|_| self.method)
    }

    /// What trackers know.
    pub fn tips(&self) -> &'a TipBoard {
        &self.live.tips
    }

    /// What of the chain the method reads: where in the arguments of a Call to look.
    pub fn reads(&self) -> Reads {
        self.row.map_or(Reads::Nothing, |row| row.reads)
    }

    /// What is known of the chain of a Route's targets.
    pub fn chain(&self, route: &Route) -> Option<&'a NetworkTips> {
        self.live.tips.network(self.network(route))
    }

    fn network(&self, route: &Route) -> usize {
        // The others may be of another chain: the candidate filter has dropped them.
        let first = route.targets.get(route.eligible.trailing_zeros() as usize);
        first.map_or(0, |target| self.live.tips.network_ix(target.endpoint))
    }

    /// What a Call that asks so much of the past needs of the Endpoints of a tiered Route.
    pub fn requirement(&self, route: &Route, past: Option<Asked>) -> Requirement {
        let network = self.live.snapshot.networks.get(self.network(route));
        let finality_depth = network.map_or(Network::FINALITY_DEPTH, |network| network.finality_depth);
        let best = self.chain(route).and_then(NetworkTips::best);
        Requirement::of(self.reads(), self.row.map(|row| row.tier), past, best, finality_depth)
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
            false if !told.identified => Has::NotKnown,
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
