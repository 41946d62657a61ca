//! The last 256 heights of a chain and what is known of each: a ring that takes no more memory once it is there.

use super::block::Hash;

/// So many heights are remembered.
pub const WINDOW: u64 = 256;

/// What is known of the block at a height. A block that only its child named has no parent yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Height.
    pub number: u64,
    /// Hash.
    pub hash: Hash,
    /// The parent's hash.
    pub parent: Option<Hash>,
}

/// One place for each height modulo 256; empty until the first block.
#[derive(Debug, Clone, Default)]
pub struct Window {
    places: Vec<Option<Known>>,
}

fn place(number: u64) -> usize {
    (number % WINDOW) as usize
}

impl Window {
    /// What is known at a height.
    pub fn get(&self, number: u64) -> Option<&Known> {
        self.places.get(place(number))?.as_ref().filter(|known| known.number == number)
    }

    /// Whether nothing is known in the place of a height.
    pub fn is_vacant(&self, number: u64) -> bool {
        self.places.get(place(number)).is_none_or(Option::is_none)
    }

    /// Remembers a block, in the place of the one 256 heights away.
    pub fn put(&mut self, known: Known) {
        if self.places.is_empty() {
            self.places.resize(WINDOW as usize, None);
        }
        if let Some(slot) = self.places.get_mut(place(known.number)) {
            *slot = Some(known);
        }
    }

    /// Forgets what does not stay.
    pub fn keep(&mut self, stays: impl Fn(&Known) -> bool) {
        for slot in &mut self.places {
            if slot.as_ref().is_some_and(|known| !stays(known)) {
                *slot = None;
            }
        }
    }

    /// Everything that is known, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Known> {
        self.places.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_height_takes_the_place_of_the_one_256_below() {
        let mut window = Window::default();
        assert_eq!(window.get(0), None);
        for number in [0, 1, 255, 256, u64::MAX] {
            window.put(Known { number, hash: [7; 32], parent: None });
        }
        assert_eq!(
            [0, 1, 255, 256, u64::MAX].map(|number| window.get(number).is_some()),
            [false, true, false, true, true]
        );
        window.keep(|known| known.number != 1);
        assert_eq!((window.get(1), window.iter().count()), (None, 2));
    }
}
