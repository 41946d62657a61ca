//! `GET /v1/methods/unlisted`: the names behind the method `other` in the metrics.

use crate::ops::admin::Page;
use crate::shared::snapshot_cell::Live;
use crate::shared::unlisted;
use serde::Serialize;

/// The most names that are told.
const NAMES: usize = 100;

#[derive(Serialize)]
struct Told {
    total: u64,
    methods: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    count: u64,
}

/// The names that came most often, and how many Calls had one.
pub(super) fn page(live: &Live) -> Page {
    let shards = &live.counters.unlisted;
    // The names first: no sum of counts is above the total then.
    let methods = unlisted::top(shards, NAMES).into_iter().map(|(name, count)| Named { name, count }).collect();
    Page::of(200, &Told { total: unlisted::total(shards), methods })
}
