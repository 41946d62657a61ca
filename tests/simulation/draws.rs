//! Are weighted choices made by relative weight? Each choice becomes one number that is uniform over 0..1
//! if, and only if, the choice had the right probabilities; those numbers are counted in bins.

use crate::simulation::oracle::{Choice, positions};
use crate::simulation::random::Random;
use ringway::logic::snapshot::Route;

const BINS: usize = 64;

#[derive(Debug, Clone)]
pub struct Draws {
    /// First choices, those after a removal, and how far those are from the choice before: if the one told
    /// anything about the other, that distance would not be uniform.
    bins: [[u64; BINS]; 3],
}

impl Draws {
    pub fn new() -> Draws {
        Draws { bins: [[0; BINS]; 3] }
    }

    /// The number that stands for a choice.
    pub fn value(route: &Route, choice: Choice, random: &mut Random) -> f64 {
        let weight = |at: u8| f64::from(route.targets[usize::from(at)].weight);
        let (mut below, mut total) = (0.0, 0.0);
        for at in positions(choice.among) {
            below += if at < choice.at { weight(at) } else { 0.0 };
            total += weight(at);
        }
        (below + random.unit() * weight(choice.at)) / total
    }

    pub fn first(&mut self, value: f64) {
        self.count(0, value);
    }

    pub fn later(&mut self, value: f64, before: f64) {
        self.count(1, value);
        self.count(2, (value - before).rem_euclid(1.0));
    }

    fn count(&mut self, which: usize, value: f64) {
        let bin = ((value * BINS as f64) as usize).min(BINS - 1);
        self.bins[which][bin] += 1;
    }

    pub fn add(&mut self, other: &Draws) {
        let mine = self.bins.iter_mut().flatten();
        mine.zip(other.bins.iter().flatten()).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub fn counted(&self) -> [u64; 3] {
        self.bins.map(|bins| bins.iter().sum())
    }

    /// With 63 degrees of freedom a right chooser passes 150 once in some 10^8 runs. Names the worst.
    pub fn objection(&self) -> Option<String> {
        let worst =
            self.bins.iter().zip(["first", "later", "successive"]).map(|(bins, which)| (chi(bins), which, bins));
        let (chi, which, bins) = worst.max_by(|one, other| one.0.total_cmp(&other.0))?;
        (chi > 150.0).then(|| format!("{which} weighted choices are not by weight: chi-square {chi:.0}, {bins:?}"))
    }
}

fn chi(bins: &[u64; BINS]) -> f64 {
    let expected = bins.iter().sum::<u64>() as f64 / BINS as f64;
    // Too few say nothing.
    if expected < 5.0 {
        return 0.0;
    }
    bins.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum()
}
