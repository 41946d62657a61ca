//! What one Call's decisions look at: Circuits, and what trackers know, for its method.

use crate::logic::circuit::Admission;
use crate::logic::failover::World;
use crate::logic::methods::{Method, MethodId};
use crate::logic::snapshot::{EndpointIx, Gateway};
use crate::logic::tiers::{Has, Seen};
use crate::logic::units::Nanos;
use crate::shared::snapshot_cell::Live;

/// The outlook of one Call.
#[derive(Clone, Copy)]
pub struct Outlook<'a> {
    live: &'a Live,
    method: MethodId,
    row: Option<&'a Method>,
    /// Its decoded name: looked at where no table has it.
    name: &'a str,
}

impl<'a> Outlook<'a> {
    /// The outlook of a Call of this method.
    pub fn new(live: &'a Live, gateway: &Gateway, method: MethodId, name: &'a str) -> Outlook<'a> {
        let row = gateway.table(&live.snapshot.methods).get(method);
        Outlook { live, method, row, name }
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
        let has = match &self.live.snapshot.capable.get(usize::from(endpoint.0)) {
            Some(capable) if !capable.serves(self.method, self.row, self.name, told.client) => Has::No,
            _ if self.row.is_some() && tips.said_no(self.method, now_ns) => Has::SaidNo,
            _ => Has::Yes,
        };
        Seen { standing: told.standing, tip: told.tip, client: told.client, has, mismatched: told.mismatched }
    }

    #[inline]
    fn is_mismatched(&self, endpoint: EndpointIx) -> bool {
        self.live.tips.is_mismatched(endpoint)
    }
}
