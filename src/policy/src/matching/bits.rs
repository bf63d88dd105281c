//! Sets of small numbers: which minions of a sorted list a target means.

/// A set of numbers below a length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// The empty set below `len`.
    pub(super) fn none(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            len,
        }
    }

    /// Every number below `len`.
    pub(super) fn all(len: usize) -> Self {
        let mut bits = Self {
            words: vec![u64::MAX; len.div_ceil(64)],
            len,
        };
        if let Some(last) = bits.words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last = (1 << (len % 64)) - 1;
        }
        bits
    }

    /// The set of the numbers that satisfy `holds`.
    pub(super) fn of(len: usize, mut holds: impl FnMut(usize) -> bool) -> Self {
        let mut bits = Self::none(len);
        for number in 0..len {
            if holds(number) {
                bits.insert(number);
            }
        }
        bits
    }

    /// Adds a number; one that is too large is ignored.
    pub(super) fn insert(&mut self, number: usize) {
        if number < self.len
            && let Some(word) = self.words.get_mut(number / 64)
        {
            *word |= 1 << (number % 64);
        }
    }

    /// Takes a number out.
    pub(super) fn remove(&mut self, number: usize) {
        if let Some(word) = self.words.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// How many bytes of memory the members take.
    pub(super) fn size(&self) -> usize {
        size_of_val(self.words.as_slice())
    }

    /// Makes room for numbers below a larger length.
    pub(super) fn grow(&mut self, len: usize) {
        self.len = self.len.max(len);
        self.words.resize(self.len.div_ceil(64), 0);
    }

    /// Whether the number is in the set.
    pub(super) fn contains(&self, number: usize) -> bool {
        let word = self.words.get(number / 64);
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Adds the members of `other`, a set below the same length.
    pub(super) fn unite(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Keeps only what is in `other` too.
    pub(super) fn intersect(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Takes the members of `other` out.
    pub(super) fn subtract(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    /// The members in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.checked_sub(1)?;
                Some(index * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn bits_behave_like_a_set(
            a in prop::collection::btree_set(0_usize..130, 0..40),
            b in prop::collection::btree_set(0_usize..130, 0..40),
        ) {
            let bits = |set: &BTreeSet<usize>| Bits::of(130, |n| set.contains(&n));
            let back = |bits: &Bits| bits.iter().collect::<BTreeSet<usize>>();
            let mut united = bits(&a);
            united.unite(&bits(&b));
            prop_assert_eq!(back(&united), &a | &b);
            let mut common = bits(&a);
            common.intersect(&bits(&b));
            prop_assert_eq!(back(&common), &a & &b);
            let mut rest = bits(&a);
            rest.subtract(&bits(&b));
            prop_assert_eq!(back(&rest), &a - &b);
            let mut complement = Bits::all(130);
            complement.subtract(&bits(&a));
            prop_assert_eq!(complement.iter().count(), 130 - a.len());
            prop_assert!((0..130).all(|n| bits(&a).contains(n) == a.contains(&n)));
        }
    }

    #[test]
    fn number_beyond_the_length_is_not_added_until_there_is_room() {
        let mut bits = Bits::none(65);
        bits.insert(64);
        bits.insert(65);
        assert_eq!(bits.iter().collect::<Vec<_>>(), [64]);
        for (len, inserted) in [(64, 65), (66, 65), (130, 129)] {
            bits.grow(len);
            bits.insert(inserted);
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), [64, 65, 129]);
        assert_eq!(bits.size(), 24);
    }

    #[test]
    fn the_full_set_has_no_member_too_many() {
        for len in [0, 1, 63, 64, 65, 128] {
            assert_eq!(Bits::all(len).iter().count(), len);
        }
    }
}
