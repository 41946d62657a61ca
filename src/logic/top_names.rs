//! Which names come most often, in a memory that nobody can make grow: the space-saving counters of Metwally,
//! Agrawal and El Abbadi ("Efficient computation of frequent and top-k elements in data streams", 2005).
//!
//! While there are fewer names than places every count is exact. After that a new name takes the place of the rarest,
//! with its count on top of it, and with what it took over remembered as its error: what is told is the count without
//! the error, so a name came at least so often. A name that is more than one in [`NAMES_MAX`] always has a place.

/// Names that are kept.
pub const NAMES_MAX: usize = 256;
/// The longest name; what is behind it is cut off, at the end of a character.
pub const NAME_BYTES_MAX: usize = 128;

/// A name in its place, so that nothing is allocated for the next one.
#[derive(Debug, Clone, Copy)]
struct Place {
    name: [u8; NAME_BYTES_MAX],
    length: u8,
    count: u64,
    error: u64,
}

impl Place {
    fn of(name: &[u8], error: u64) -> Place {
        let mut place = Place { name: [0; NAME_BYTES_MAX], length: 0, count: error.saturating_add(1), error };
        if let Some(front) = place.name.get_mut(..name.len()) {
            front.copy_from_slice(name);
            place.length = name.len() as u8;
        }
        place
    }

    fn name(&self) -> &[u8] {
        self.name.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Only whole characters were written, so none is left out.
    fn told(&self) -> Option<(&str, u64)> {
        Some((std::str::from_utf8(self.name()).ok()?, self.count.saturating_sub(self.error)))
    }
}

/// The counters. Empty ones take no memory.
#[derive(Debug, Clone, Default)]
pub struct TopNames(Vec<Place>);

impl TopNames {
    /// Counts a name once.
    pub fn note(&mut self, name: &str) {
        let name = cut(name).as_bytes();
        if let Some(place) = self.0.iter_mut().find(|place| place.name() == name) {
            place.count = place.count.saturating_add(1);
            return;
        }
        if self.0.len() < NAMES_MAX {
            self.0.push(Place::of(name, 0));
            return;
        }
        if let Some(rarest) = self.0.iter_mut().min_by_key(|place| place.count) {
            *rarest = Place::of(name, rarest.count);
        }
    }

    /// The names, and how often each came at least; in no order.
    pub fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().filter_map(Place::told)
    }
}

/// The front of a name that fits.
fn cut(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn sorted(names: &TopNames) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = names.counts().collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        all
    }

    #[test]
    fn few_names_are_counted_exactly() {
        let mut names = TopNames::default();
        for at in 0..NAMES_MAX {
            (0..=at).for_each(|_| names.note(&format!("name-{at}")));
        }
        let counts: HashMap<_, _> = names.counts().collect();
        assert_eq!(counts.len(), NAMES_MAX);
        assert!((0..NAMES_MAX).all(|at| counts[&*format!("name-{at}")] == at as u64 + 1));
    }

    #[test]
    fn heavy_hitters_stand_on_top_of_ten_thousand_others_and_no_count_is_too_high() {
        // Mixed by a fixed generator: each heavy one comes from time to time between names that come once.
        let (mut names, mut truth, mut state) = (TopNames::default(), HashMap::<String, u64>::new(), 7u64);
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for at in 0..20_000 {
            let name = match random() % 2 {
                0 => format!("heavy-{}", random() % 10),
                _ => format!("random-{at}-{}", random()),
            };
            names.note(&name);
            *truth.entry(name).or_default() += 1;
        }
        assert!(truth.len() > 9_000);
        let told = sorted(&names);
        assert_eq!(told.len(), NAMES_MAX);
        let (mut heavy, others) = (told[..10].to_vec(), &told[10..]);
        heavy.sort_unstable();
        let ids: Vec<_> = heavy.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(ids, (0..10).map(|at| format!("heavy-{at}")).collect::<Vec<_>>());
        let bound = 20_000 / NAMES_MAX as u64;
        for (name, count) in heavy {
            assert!((truth[name] - bound..=truth[name]).contains(&count), "{name}: {count} of {}", truth[name]);
        }
        assert!(others.iter().all(|(name, count)| (1..=truth[*name]).contains(count)));
    }

    #[test]
    fn nobody_makes_it_grow() {
        let mut names = TopNames::default();
        for at in 0..10_000 {
            names.note(&format!("{at}{}", "x".repeat(at)));
        }
        assert!(names.0.len() == NAMES_MAX && names.0.capacity() <= NAMES_MAX, "{}", names.0.capacity());
        assert!(names.counts().all(|(name, _)| name.len() <= NAME_BYTES_MAX));
    }

    #[test]
    fn long_names_are_cut_at_the_end_of_a_character() {
        let mut names = TopNames::default();
        let long = format!("a{}", "é".repeat(100));
        (0..3).for_each(|_| names.note(&long));
        names.note(&format!("{long}, and on"));
        names.note("");
        names.note("\u{7}\"\n");
        let cut = format!("a{}", "é".repeat(63));
        assert_eq!(sorted(&names), [(&*cut, 4), ("", 1), ("\u{7}\"\n", 1)]);
    }
}
